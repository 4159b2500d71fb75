//! The owner that a group was made for, as its object says.
//!
//! Names can be used again: a leader, a Job or a JobSet that is deleted and created again has a group of the same name,
//! and pods and groups of both may exist for a while. UIDs tell them apart.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::owners::{job, job_set, leader_worker_set};
use muster_api::selector::Labels;

/// The owner that a group was made for by the controllers, or by those of another scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MadeFor {
    /// A replica of a LeaderWorkerSet, by its leader pod.
    Leader { uid: String, set: String },
    /// A Job.
    Job { uid: String, name: String },
    /// A JobSet.
    JobSet { uid: String, name: String },
}

impl MadeFor {
    /// The owner of the group or groups with this metadata. An object that a user has written for a Job or JobSet has
    /// the members that name it, whatever they belong to.
    pub(crate) fn of(metadata: &ObjectMeta) -> Option<Self> {
        let none = Labels::new();
        let labels = metadata.labels.as_ref().unwrap_or(&none);
        let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let (uid, name) = (owner.uid.clone(), owner.name.clone());
        let is_of =
            |api_group: &str, kind: &str| owner.kind == kind && owner.api_version.split('/').next() == Some(api_group);
        if owner.kind == "Pod" {
            let set = labels.get(leader_worker_set::labels::NAME)?.clone();
            Some(Self::Leader { uid, set })
        } else if is_of("batch", "Job") {
            let is_made = metadata.name.as_deref() == Some(&job::group_name(&name));
            is_made.then_some(Self::Job { uid, name })
        } else if is_of("jobset.x-k8s.io", "JobSet") {
            let is_made = labels.get(job_set::labels::JOB_SET_UID) == Some(&uid);
            is_made.then_some(Self::JobSet { uid, name })
        } else {
            None
        }
    }

    /// Its UID.
    pub(crate) fn uid(&self) -> &str {
        match self {
            Self::Leader { uid, .. } | Self::Job { uid, .. } | Self::JobSet { uid, .. } => uid,
        }
    }
}
