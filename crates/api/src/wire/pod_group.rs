//! Our own PodGroup, `podgroups.muster.dev`, as it stands in the object.
//!
//! What may be written is checked by `pod_group`. It must not know how the status is reckoned.

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

/// What has become of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupStatus {
    /// The generation of the object that was looked at.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// What is true of it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// The whole group in one line, for tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<PodGroupSummary>,
    /// Each subset; a group with a policy has one entry with an empty name.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub subsets: Vec<SubsetStatus>,
}

/// A group in one line. A table can show a field but not add up a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSummary {
    /// `Gang`, `Basic` or `Subsets`.
    #[serde(deserialize_with = "null_is_default")]
    pub policy: String,
    /// The least number of members over all subsets; 0 for a basic group.
    #[serde(deserialize_with = "null_is_default")]
    pub minimum: i64,
    /// The members that have a node.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduled: i64,
    /// The members that run.
    #[serde(deserialize_with = "null_is_default")]
    pub running: i64,
}

/// What has become of a subset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubsetStatus {
    /// The name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// All members.
    #[serde(deserialize_with = "null_is_default")]
    pub total: i64,
    /// Those that have a node and are well.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduled_available: i64,
    /// Those that have a node and are not well.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduled_unavailable: i64,
    /// Those that run.
    #[serde(deserialize_with = "null_is_default")]
    pub running: i64,
    /// Those that ended well.
    #[serde(deserialize_with = "null_is_default")]
    pub succeeded: i64,
    /// Those that failed.
    #[serde(deserialize_with = "null_is_default")]
    pub failed: i64,
}
