//! The native Workload as written in the object.
//!
//! It is validated by `validate_workload`. Must not depend on any rule.

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use super::policy::{DisruptionMode, ResourceClaim, SchedulingConstraints, SchedulingPolicy};
use crate::null::{is_default, null_is_default};
use crate::wire::object::{Kind, NoStatus, Object};

/// Templates of groups that belong together.
pub type Workload = Object<WorkloadKind>;

/// The kind `Workload` of `scheduling.k8s.io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkloadKind;

impl Kind for WorkloadKind {
    type Spec = WorkloadSpec;
    type Status = NoStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "Workload";
    const PLURAL: &'static str = "workloads";
}

/// The spec of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    /// The object that owns the pods, such as a Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_ref: Option<ControllerReference>,
    /// The templates of groups.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_group_templates: Vec<PodGroupTemplate>,
}

/// An object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerReference {
    /// The API group; empty for the core.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub api_group: String,
    /// The kind.
    #[serde(deserialize_with = "null_is_default")]
    pub kind: String,
    /// The name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
}

/// A template of PodGroups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupTemplate {
    /// The name, unique in the workload.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// How members are placed.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduling_policy: SchedulingPolicy,
    /// Topology constraints of the members (gate `TopologyAwareWorkloadScheduling`). The server writes
    /// `null` if it is unset, and so do we.
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
