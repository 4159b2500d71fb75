//! Owner kinds (Job, JobSet, LeaderWorkerSet) and the rules by which their pods form gangs.
//!
//! Shared by the controllers, which write group objects and references, and the scheduler, which must not place a pod
//! of a gang alone: both interpret an owner in the same way.
//!
//! Invariant: all results follow from the object alone, without lookups. Must not depend on how groups are written
//! (controllers) or placed (engine).

pub mod gang_mode;
mod ganged_owners;
pub mod job;
pub mod job_set;
pub mod job_set_topology;
pub mod leader_worker_set;
pub mod requests;

mod reference;
mod short_name;
mod start_order;
mod template_topology;

pub use gang_mode::GangMode;
pub use ganged_owners::{GangedOwners, GroupApi, ProviderName};
pub use reference::{Membership, Reference};
pub use short_name::short_name;

use crate::keys::annotations::{POD_GROUP, WORKLOAD};
use crate::other_schedulers::{scheduler_plugins, volcano};
use crate::wire::pod::PodSpec;
use crate::wire::template::TemplateMetadata;

/// An invalid gang configuration of an owner. Its groups are not created, and its pods are not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangConfigError {
    /// The event reason.
    pub reason: &'static str,
    /// The message, with field and value.
    pub message: String,
}

/// Event reasons of invalid gang configurations.
pub mod event_reasons {
    /// More replicated Jobs are gangs than a Workload can have groups.
    pub const TOO_MANY_GROUPS: &str = "TooManyGroups";
    /// The gang settings are invalid.
    pub const INVALID_GANG_MODE: &str = "InvalidGangMode";
    /// The topology of a gang is invalid, or differs between its pods.
    pub const INVALID_TOPOLOGY: &str = "InvalidTopology";
    /// With exclusive topology pods are created only after others are bound, so they cannot form a gang.
    pub const EXCLUSIVE_TOPOLOGY: &str = "ExclusiveTopology";
}

/// Whether a pod template references a group already, in any of the supported ways: then its author manages the group.
pub fn references_group(metadata: &TemplateMetadata, spec: &PodSpec) -> bool {
    let annotated =
        [POD_GROUP, WORKLOAD, volcano::GROUP_NAME_ANNOTATION].iter().any(|key| metadata.annotations.contains_key(*key));
    let labelled = metadata.labels.contains_key(scheduler_plugins::POD_GROUP_LABEL);
    annotated || labelled || spec.scheduling_group.is_some() || spec.workload_ref.is_some()
}
