//! The PodGroup of Volcano: a minimum in all, minimums by task, and an annotation by which pods join.
//!
//! Its definition has no `status` subresource: who writes the status writes the object.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::null::{is_default, null_is_default};
use crate::resources::WrittenResources;
use crate::wire::object::{Kind, Object};

/// The annotation by which a pod names its group.
pub const GROUP_NAME_ANNOTATION: &str = "scheduling.k8s.io/group-name";
/// The annotation by which a pod says of which task it is.
pub const TASK_ANNOTATION: &str = "volcano.sh/task-spec";
/// The annotation of a group that says how long it may be pending before it goes ahead of others.
pub const WAITING_TIME_ANNOTATION: &str = "volcano.sh/sla-waiting-time";
/// The queue of groups that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// A group of pods.
pub type PodGroup = Object<PodGroupKind>;

/// The kind `PodGroup` of `scheduling.volcano.sh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodGroupKind;

impl Kind for PodGroupKind {
    type Spec = PodGroupSpec;
    type Status = PodGroupStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "scheduling.volcano.sh";
    const VERSION: &'static str = "v1beta1";
    const KIND: &'static str = "PodGroup";
    const PLURAL: &'static str = "podgroups";
}

/// What is wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// So many pods start together; none if it is 0.
    #[serde(skip_serializing_if = "is_default")]
    pub min_member: Value,
    /// So many pods of each task are among them.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub min_task_member: BTreeMap<String, Value>,
    /// What all of them need.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub min_resources: WrittenResources,
    /// The queue whose share it takes.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub queue: String,
    /// The class of its priority.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub priority_class_name: String,
    /// How close its pods are to each other in the network.
    #[serde(skip_serializing_if = "is_default")]
    pub network_topology: Value,
    /// Groups in the group.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub sub_group_policy: Vec<Value>,
}

/// What has become of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupStatus {
    /// One word: `Pending`, `Inqueue`, `Running`, `Unknown` or `Completed`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub phase: String,
    /// What is true of it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<PodGroupCondition>,
    /// Pods that run.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub running: i64,
    /// Pods that ended well.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub succeeded: i64,
    /// Pods that failed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub failed: i64,
}

/// A condition of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupCondition {
    /// What it is about.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "null_is_default")]
    pub status: String,
    /// Which round of Volcano's own scheduler wrote it.
    #[serde(rename = "transitionID", deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub transition_id: String,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Why, in one word.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub message: String,
}
