//! The PodGroup of scheduler-plugins (coscheduling): one minimum, and a label by which pods join.
//!
//! Its CRD prunes all other status fields, so conditions cannot be stored.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::null::{is_default, null_is_default};
use crate::resources::WrittenResources;
use crate::wire::object::{Kind, Object};

/// The label by which a pod references its group.
pub const POD_GROUP_LABEL: &str = "scheduling.x-k8s.io/pod-group";

/// A group of pods.
pub type PodGroup = Object<PodGroupKind>;

/// The kind `PodGroup` of `scheduling.x-k8s.io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodGroupKind;

impl Kind for PodGroupKind {
    type Spec = PodGroupSpec;
    type Status = PodGroupStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "scheduling.x-k8s.io";
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "PodGroup";
    const PLURAL: &'static str = "podgroups";
}

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// The minimum number of pods that start together.
    #[serde(skip_serializing_if = "is_default")]
    pub min_member: Value,
    /// The minimum resources of the group.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub min_resources: WrittenResources,
    /// How long a start may take.
    #[serde(skip_serializing_if = "is_default")]
    pub schedule_timeout_seconds: Value,
}

/// The status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupStatus {
    /// The phase: `Pending`, `Scheduling`, `Running`, `Finished`, `Failed` or `Unknown`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub phase: String,
    /// The number of running pods.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub running: i64,
    /// The number of succeeded pods.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub succeeded: i64,
    /// The number of failed pods.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub failed: i64,
    /// When it reached its minimum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_start_time: Option<Time>,
}
