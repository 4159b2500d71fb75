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
    /// The completion indexes that have failed for good, such as `1,3-5`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub failed_indexes: String,
}

impl Job {
    /// Whether it has completed or failed.
    pub fn is_finished(&self) -> bool {
        self.has("Complete") || self.has("Failed")
    }

    /// Whether it has completed.
    pub fn is_complete(&self) -> bool {
        self.has("Complete")
    }

    fn has(&self, kind: &str) -> bool {
        Condition::find(&self.status.conditions, kind).is_some_and(Condition::is_true)
    }
}

impl JobStatus {
    /// How many completion indexes have failed for good.
    pub fn failed_index_count(&self) -> i64 {
        let count = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<i64>().ok()?, last.parse::<i64>().ok()?);
            Some(last.saturating_sub(first).saturating_add(1).max(0))
        };
        self.failed_indexes.split(',').filter_map(count).fold(0, i64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_indexes_are_counted() {
        let count =
            |text: &str| JobStatus { failed_indexes: text.to_owned(), ..JobStatus::default() }.failed_index_count();
        assert_eq!((count(""), count("3"), count("1,3-5,7"), count("x")), (0, 1, 5, 0));
    }
}
