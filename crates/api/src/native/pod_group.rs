//! The native PodGroup as written in the object.
//!
//! It is validated by `validate_pod_group`. Must not depend on any rule.

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

/// The spec of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// The composite group it belongs to (gate `CompositePodGroup`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_composite_pod_group_name: Option<String>,
    /// The template it was created from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadReference>,
    /// How members are placed.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduling_policy: SchedulingPolicy,
    /// Topology constraints of the members (gate `TopologyAwareWorkloadScheduling`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_constraints: Option<SchedulingConstraints>,
    /// Devices that members share (gate `DRAWorkloadResourceClaims`).
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub resource_claims: Vec<ResourceClaim>,
    /// Whether members are evicted individually or together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption_mode: Option<DisruptionMode>,
    /// The priority class.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub priority_class_name: String,
    /// The value of that class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The preemption policy (gate `PodGroupPreemptionPolicy`).
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

/// The status of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupStatus {
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// The claims created for it (gate `DRAWorkloadResourceClaims`).
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub resource_claim_statuses: Vec<ResourceClaimStatus>,
}

/// A claim created for a group.
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
