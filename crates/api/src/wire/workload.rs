//! Our own Workload, `workloads.muster.dev`, as written in the object.
//!
//! It is validated by `workload`. Must not depend on how the status is computed.

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use crate::keys;
use crate::null::{is_default, null_is_default};
use crate::wire::condition::Condition;
use crate::wire::object::{Kind, Object};
use crate::workload::WrittenWorkload;

/// The maximum number of groups that a status lists.
pub const MAX_GROUPS_IN_STATUS: usize = 64;

/// Several groups of pods that belong together.
pub type Workload = Object<WorkloadKind>;

/// The kind `Workload` of `muster.dev`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkloadKind;

impl Kind for WorkloadKind {
    type Spec = WrittenWorkload;
    type Status = WorkloadStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = keys::GROUP;
    const VERSION: &'static str = keys::VERSION;
    const KIND: &'static str = "Workload";
    const PLURAL: &'static str = "workloads";
}

/// The status of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    /// The generation of the object that was observed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// The numbers of groups by state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<Instances>,
    /// Groups, worst first, at most [`MAX_GROUPS_IN_STATUS`].
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub pod_groups: Vec<WorkloadGroupStatus>,
}

/// The numbers of a workload's groups by state; each replica of a group counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Instances {
    /// All groups.
    #[serde(deserialize_with = "null_is_default")]
    pub total: i64,
    /// Scheduled groups.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduled: i64,
    /// Pending groups.
    #[serde(deserialize_with = "null_is_default")]
    pub waiting: i64,
    /// Groups that ran and fell below their minimum.
    #[serde(deserialize_with = "null_is_default")]
    pub degraded: i64,
}

/// The status of a group, or of a replica of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadGroupStatus {
    /// The name of the group.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The replica, empty if there are none.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub replica_key: String,
    /// The number of members.
    #[serde(deserialize_with = "null_is_default")]
    pub total: i64,
    /// The number of bound members.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduled: i64,
    /// The number of running members.
    #[serde(deserialize_with = "null_is_default")]
    pub running: i64,
    /// The number of succeeded members.
    #[serde(deserialize_with = "null_is_default")]
    pub succeeded: i64,
    /// The number of failed members.
    #[serde(deserialize_with = "null_is_default")]
    pub failed: i64,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}
