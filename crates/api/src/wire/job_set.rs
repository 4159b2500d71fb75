//! A JobSet as it stands in the object, `jobsets.jobset.x-k8s.io`, as far as gangs are concerned.
//!
//! `gangConfig` is a field of the document that describes gangs of JobSets; definitions that do not have it drop it.
//! It must not know which JobSets are gangs: see `makers`.

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::null::{is_default, null_is_default};
use crate::wire::condition::Condition;
use crate::wire::object::{Kind, Object};
use crate::wire::template::{JobSpec, TemplateMetadata};

/// A set of Jobs.
pub type JobSet = Object<JobSetKind>;

/// The kind `JobSet`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobSetKind;

impl Kind for JobSetKind {
    type Spec = JobSetSpec;
    type Status = JobSetStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "jobset.x-k8s.io";
    const VERSION: &'static str = "v1alpha2";
    const KIND: &'static str = "JobSet";
    const PLURAL: &'static str = "jobsets";
}

/// What a JobSet is to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetSpec {
    /// Its Jobs.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub replicated_jobs: Vec<ReplicatedJob>,
    /// In which order they start.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub startup_policy: StartupPolicy,
    /// Whether all Jobs are to have no pods for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Who looks after it, if that is not JobSet's own controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Whether all its pods are one gang.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_config: Option<GangConfig>,
    /// JobSet's own word on how its pods are scheduled, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Value>,
}

/// How pods form gangs, as a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangConfig {
    /// `Off`, `Gang` or `ReplicatedGang`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_mode: Option<String>,
}

/// In which order Jobs start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StartupPolicy {
    /// `AnyOrder` or `InOrder`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_policy_order: Option<String>,
}

/// Several Jobs of one template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicatedJob {
    /// Its name in the set.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// How many Jobs; 1 if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// The template.
    #[serde(deserialize_with = "null_is_default")]
    pub template: JobTemplate,
    /// Whom it waits for before it has Jobs at all.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub depends_on: Vec<Value>,
    /// Whether its pods are a gang.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_config: Option<GangConfig>,
}

/// A template of Jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobTemplate {
    /// What every Job carries.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub metadata: TemplateMetadata,
    /// What every Job does.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: JobSpec,
}

/// What has become of a JobSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetStatus {
    /// What is true of it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}

impl JobSet {
    /// Whether it has come to its end.
    pub fn is_finished(&self) -> bool {
        let ended = |one: &Condition| matches!(one.kind.as_str(), "Completed" | "Failed") && one.is_true();
        self.status.conditions.iter().any(ended)
    }
}
