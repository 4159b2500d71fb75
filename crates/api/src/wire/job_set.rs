//! A JobSet as written in the object, `jobsets.jobset.x-k8s.io`, with the fields that matter for gangs.
//!
//! `gangConfig` is a field of the KEP for gang scheduling of JobSets; CRDs without it drop it. Must not depend on which
//! JobSets are gangs: see `owners`.

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

/// The spec of a JobSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetSpec {
    /// Its Jobs.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub replicated_jobs: Vec<ReplicatedJob>,
    /// The order in which they start.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub startup_policy: StartupPolicy,
    /// Whether all Jobs are suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The controller that manages it, if that is not JobSet's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Whether all its pods are one gang.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_config: Option<GangConfig>,
    /// JobSet's own scheduling settings, where it has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Value>,
}

/// The gang mode as a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangConfig {
    /// `Off`, `Gang` or `ReplicatedGang`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_mode: Option<String>,
}

/// The order in which Jobs start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StartupPolicy {
    /// `AnyOrder` or `InOrder`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_policy_order: Option<String>,
}

/// Several Jobs with the same template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicatedJob {
    /// Its name in the set.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The number of Jobs; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// The template.
    #[serde(deserialize_with = "null_is_default")]
    pub template: JobTemplate,
    /// The replicated Jobs that it waits for before its Jobs are created.
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
    /// The metadata of every Job.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub metadata: TemplateMetadata,
    /// The spec of every Job.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: JobSpec,
}

/// The status of a JobSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetStatus {
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// How many Jobs of each replicated Job have ended.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub replicated_jobs_status: Vec<ReplicatedJobStatus>,
}

/// How many Jobs of a replicated Job have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicatedJobStatus {
    /// The replicated Job.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// Jobs that have completed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub succeeded: i64,
    /// Jobs that have failed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub failed: i64,
}

impl JobSet {
    /// Whether it has completed or failed.
    pub fn is_finished(&self) -> bool {
        self.is_complete() || self.has("Failed")
    }

    /// Whether it has completed.
    pub fn is_complete(&self) -> bool {
        self.has("Completed")
    }

    fn has(&self, kind: &str) -> bool {
        Condition::find(&self.status.conditions, kind).is_some_and(Condition::is_true)
    }
}
