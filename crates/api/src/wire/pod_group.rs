//! Our own PodGroup, `podgroups.muster.dev`, as written in the object.
//!
//! It is validated by `pod_group`. Must not depend on how the status is computed.

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use crate::group::WrittenGroup;
use crate::keys;
use crate::null::{is_default, null_is_default};
use crate::wire::condition::Condition;
use crate::wire::object::{Kind, Object};

/// A group of pods.
pub type PodGroup = Object<PodGroupKind>;

/// The kind `PodGroup` of `muster.dev`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodGroupKind;

impl Kind for PodGroupKind {
    type Spec = WrittenGroup;
    type Status = PodGroupStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = keys::GROUP;
    const VERSION: &'static str = keys::VERSION;
    const KIND: &'static str = "PodGroup";
    const PLURAL: &'static str = "podgroups";
}

/// The status of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupStatus {
    /// The generation of the object that was observed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// A summary of the group, for printer columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<PodGroupSummary>,
    /// Each subset; a group with a policy has one entry with an empty name.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub subsets: Vec<SubsetStatus>,
}

/// A summary of a group. A printer column can show a field but not sum up a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSummary {
    /// `Gang`, `Basic` or `Subsets`.
    #[serde(deserialize_with = "null_is_default")]
    pub policy: String,
    /// The minimum number of members over all subsets; 0 for a basic group.
    #[serde(deserialize_with = "null_is_default")]
    pub minimum: i64,
    /// The number of bound members.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduled: i64,
    /// The number of running members.
    #[serde(deserialize_with = "null_is_default")]
    pub running: i64,
}

/// The status of a subset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubsetStatus {
    /// The name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The number of members.
    #[serde(deserialize_with = "null_is_default")]
    pub total: i64,
    /// The number of pending members that would fit if the group did.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduled_available: i64,
    /// The number of pending members without room.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduled_unavailable: i64,
    /// The number of running members.
    #[serde(deserialize_with = "null_is_default")]
    pub running: i64,
    /// The number of succeeded members.
    #[serde(deserialize_with = "null_is_default")]
    pub succeeded: i64,
    /// The number of failed members.
    #[serde(deserialize_with = "null_is_default")]
    pub failed: i64,
}
