//! Templates of pods and Jobs inside other objects, as they stand there.
//!
//! Fields that are not listed are ignored; `null` is the same as left out.
//! It must not know who makes what from a template.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::null::{is_default, null_is_default};
use crate::selector::Labels;
use crate::wire::pod::PodSpec;

/// The metadata of a template: what is copied to what is made from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub labels: Labels,
    /// Annotations.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub annotations: Labels,
}

/// A template of pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplate {
    /// What every pod carries.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub metadata: TemplateMetadata,
    /// What every pod asks for.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: PodSpec,
}

/// What a Job is to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// How many pods may run at once; 1 if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<i64>,
    /// How many must succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<i64>,
    /// `Indexed`, or `NonIndexed` if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_mode: Option<String>,
    /// Whether it is to have no pods for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Who looks after it, if that is not Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Kubernetes' own word on how its pods are scheduled, from 1.37 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Value>,
    /// Its pods.
    #[serde(deserialize_with = "null_is_default")]
    pub template: PodTemplate,
}

impl JobSpec {
    /// The most pods that run at once: a Job never has more of them than it has work for.
    pub fn pods_at_once(&self) -> i64 {
        let parallelism = self.parallelism.unwrap_or(1);
        self.completions.map_or(parallelism, |completions| parallelism.min(completions)).max(0)
    }

    /// Whether each pod has an index of its own.
    pub fn is_indexed(&self) -> bool {
        self.completion_mode.as_deref() == Some("Indexed")
    }
}
