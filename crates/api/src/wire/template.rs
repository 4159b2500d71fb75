//! Templates of pods and Jobs inside other objects.
//!
//! Unlisted fields are ignored; `null` is the same as unset. Must not depend on the kinds that contain a template.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::null::{is_default, null_is_default};
use crate::selector::Labels;
use crate::wire::pod::PodSpec;

/// The metadata of a template, which is copied to the objects created from it.
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
    /// The metadata of every pod.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub metadata: TemplateMetadata,
    /// The spec of every pod.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: PodSpec,
}

/// The spec of a Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// The maximum number of concurrent pods; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<i64>,
    /// The number of pods that must succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<i64>,
    /// `Indexed`, or `NonIndexed` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_mode: Option<String>,
    /// Whether it is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The controller that manages it, if that is not Kubernetes' own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Kubernetes' own scheduling settings, since 1.37.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Value>,
    /// The pod template.
    #[serde(deserialize_with = "null_is_default")]
    pub template: PodTemplate,
}

impl JobSpec {
    /// The maximum number of pods that run concurrently: `parallelism`, but no more than `completions`.
    pub fn max_concurrent_pods(&self) -> i64 {
        let parallelism = self.parallelism.unwrap_or(1);
        self.completions.map_or(parallelism, |completions| parallelism.min(completions)).max(0)
    }

    /// Whether its completion mode is `Indexed`.
    pub fn is_indexed(&self) -> bool {
        self.completion_mode.as_deref() == Some("Indexed")
    }
}
