//! Objects that make pods, and which of those pods are gangs: Job, JobSet, LeaderWorkerSet.
//!
//! What stands here is shared by those who write group objects and references and by the scheduler, which must not
//! place a pod alone that belongs to a gang: so both read an object in the same way.
//!
//! Invariant: all answers follow from the object alone, without a lookup.
//! It must not know how groups are written (controllers) or placed (the engine).

pub mod gang_mode;
mod ganged_owners;
pub mod job;
pub mod job_set;
pub mod leader_worker_set;
pub mod requests;

mod reference;
mod short_name;

pub use gang_mode::GangMode;
pub use ganged_owners::{Carrier, GangedOwners, ProviderName};
pub use reference::{Joining, Reference};
pub use short_name::short_name;

use crate::keys::annotations::{POD_GROUP, WORKLOAD};
use crate::others::{scheduler_plugins, volcano};
use crate::wire::pod::PodSpec;
use crate::wire::template::TemplateMetadata;

/// What is wrong with what an object asks for. Its gangs are not made, and its pods are not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// One word for events.
    pub reason: &'static str,
    /// A sentence that names field and value.
    pub message: String,
}

/// Reasons of flaws.
pub mod flaws {
    /// More replicated Jobs are ganged than a Workload has room for.
    pub const TOO_MANY_GROUPS: &str = "TooManyGroups";
    /// What is written makes no sense.
    pub const INVALID_GANG_MODE: &str = "InvalidGangMode";
    /// Pods that may only be made after others have a place cannot wait for each other.
    pub const EXCLUSIVE_TOPOLOGY: &str = "ExclusiveTopology";
}

/// Whether a pod template names a group already, in whatever way: then that is what its author wants.
pub fn names_a_group(metadata: &TemplateMetadata, spec: &PodSpec) -> bool {
    let annotated =
        [POD_GROUP, WORKLOAD, volcano::GROUP_NAME_ANNOTATION].iter().any(|key| metadata.annotations.contains_key(*key));
    let labelled = metadata.labels.contains_key(scheduler_plugins::POD_GROUP_LABEL);
    annotated || labelled || spec.scheduling_group.is_some() || spec.workload_ref.is_some()
}
