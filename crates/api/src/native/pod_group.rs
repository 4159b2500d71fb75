//! The native PodGroup as it stands in the object.
//!
//! What may be written is checked by `validate_pod_group`. It must not know any rule.

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use super::policy::{DisruptionMode, ResourceClaim, SchedulingConstraints, SchedulingPolicy};
use crate::null::{is_default, null_is_default};
use crate::wire::condition::Condition;
use crate::wire::object::{Kind, Object};

/// A group of pods.
pub type PodGroup = Object<PodGroupKind>;

/// The kind `PodGroup` of `scheduling.k8s.io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodGroupKind;

impl Kind for PodGroupKind {
    type Spec = PodGroupSpec;
    type Status = PodGroupStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "PodGroup";
    const PLURAL: &'static str = "podgroups";
}

/// What is wanted of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// The composite group it belongs to (gate `CompositePodGroup`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_composite_pod_group_name: Option<String>,
    /// The template it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadReference>,
    /// How members are placed.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduling_policy: SchedulingPolicy,
    /// Where members stand to each other (gate `TopologyAwareWorkloadScheduling`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_constraints: Option<SchedulingConstraints>,
    /// Devices that members share (gate `DRAWorkloadResourceClaims`).
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub resource_claims: Vec<ResourceClaim>,
    /// What is evicted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption_mode: Option<DisruptionMode>,
    /// The priority class.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub priority_class_name: String,
    /// The number of that class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether others may be evicted for it (gate `PodGroupPreemptionPolicy`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_policy: Option<String>,
}

/// A template in a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadReference {
    /// The Workload.
    #[serde(deserialize_with = "null_is_default")]
    pub workload_name: String,
    /// The template in it.
    #[serde(deserialize_with = "null_is_default")]
    pub template_name: String,
}

/// What has become of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupStatus {
    /// What is true of it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// The claims that were made for it (gate `DRAWorkloadResourceClaims`).
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub resource_claim_statuses: Vec<ResourceClaimStatus>,
}

/// A claim that was made for a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// The name in the spec.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
}
