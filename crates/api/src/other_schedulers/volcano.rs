//! The PodGroup of Volcano: a total minimum, minimums by task, and an annotation by which pods join.
//!
//! Its CRD has no `status` subresource: the status is written with the object.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::null::{is_default, null_is_default};
use crate::resources::WrittenResources;
use crate::wire::object::{Kind, Object};

/// The annotation by which a pod references its group.
pub const GROUP_NAME_ANNOTATION: &str = "scheduling.k8s.io/group-name";
/// The annotation with the task of a pod.
pub const TASK_ANNOTATION: &str = "volcano.sh/task-spec";
/// The annotation of a group with the time after which it takes precedence over others while pending.
pub const WAITING_TIME_ANNOTATION: &str = "volcano.sh/sla-waiting-time";
/// The default queue.
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

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// The minimum number of pods that start together; 0 for no gang.
    #[serde(skip_serializing_if = "is_default")]
    pub min_member: Value,
    /// The minimum number of pods of each task.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub min_task_member: BTreeMap<String, Value>,
    /// The minimum resources of the group.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub min_resources: WrittenResources,
    /// The queue.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub queue: String,
    /// The priority class.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub priority_class_name: String,
    /// The network topology constraint.
    #[serde(skip_serializing_if = "is_default")]
    pub network_topology: Value,
    /// Subgroups.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub sub_group_policy: Vec<Value>,
}

/// The status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupStatus {
    /// The phase: `Pending`, `Inqueue`, `Running`, `Unknown` or `Completed`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub phase: String,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<PodGroupCondition>,
    /// The number of running pods.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub running: i64,
    /// The number of succeeded pods.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub succeeded: i64,
    /// The number of failed pods.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub failed: i64,
}

/// A condition of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupCondition {
    /// The type.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "null_is_default")]
    pub status: String,
    /// The scheduling session of Volcano that wrote it.
    #[serde(rename = "transitionID", deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub transition_id: String,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// The reason, in CamelCase.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub reason: String,
    /// The message.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub message: String,
}
