//! A Job as written in the object, with the fields that matter for gangs.
//!
//! Must not depend on which Jobs are gangs: see `owners`.

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};
use crate::wire::condition::Condition;
use crate::wire::object::{Kind, Object};
use crate::wire::template::JobSpec;

/// A Job.
pub type Job = Object<JobKind>;

/// The kind `Job`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobKind;

impl Kind for JobKind {
    type Spec = JobSpec;
    type Status = JobStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "batch";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Job";
    const PLURAL: &'static str = "jobs";
}

/// The status of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// How many of its pods have succeeded, including deleted ones.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub succeeded: i64,
}

impl Job {
    /// Whether it has completed or failed.
    pub fn is_finished(&self) -> bool {
        let ended = |one: &Condition| matches!(one.kind.as_str(), "Complete" | "Failed") && one.is_true();
        self.status.conditions.iter().any(ended)
    }
}
