//! Kubernetes' own Workload and PodGroup, `scheduling.k8s.io/v1alpha2` as of 1.36.
//!
//! Differences from v1beta1: the template of a group is referenced in `podGroupTemplateRef`, the disruption mode is a
//! string, priority and disruption mode have a gate, specs are immutable, and the upstream condition is
//! `PodGroupScheduled`. The version was removed in 1.37. Objects are validated by `rules`.

mod conversion;
mod rules;

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::gates::set_default;
use super::pod_group::PodGroupStatus;
use super::policy::{ResourceClaim, SchedulingConstraints, SchedulingPolicy};
use super::workload::ControllerReference;
use crate::null::{is_default, null_is_default};
use crate::wire::object::{Kind, NoStatus, Object};

pub use rules::{
    validate_pod_group, validate_pod_group_status_update, validate_pod_group_update, validate_workload,
    validate_workload_update,
};

/// The version.
pub const VERSION: &str = "v1alpha2";
/// The disruption mode of a group whose pods are evicted individually; the default.
pub const DISRUPT_POD: &str = "Pod";
/// The disruption mode of a group that is evicted as a whole.
pub const DISRUPT_POD_GROUP: &str = "PodGroup";

/// A group of pods.
pub type PodGroup = Object<PodGroupKind>;
/// Templates of groups that belong together.
pub type Workload = Object<WorkloadKind>;

/// The kind `PodGroup` of `scheduling.k8s.io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodGroupKind;

impl Kind for PodGroupKind {
    type Spec = PodGroupSpec;
    type Status = PodGroupStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = VERSION;
    const KIND: &'static str = "PodGroup";
    const PLURAL: &'static str = "podgroups";
}

/// The kind `Workload` of `scheduling.k8s.io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkloadKind;

impl Kind for WorkloadKind {
    type Spec = WorkloadSpec;
    type Status = NoStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = VERSION;
    const KIND: &'static str = "Workload";
    const PLURAL: &'static str = "workloads";
}

/// The spec of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// The template it was created from. The server writes `null` if it is unset, and so do we.
    pub pod_group_template_ref: Option<TemplateReference>,
    /// How members are placed.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduling_policy: SchedulingPolicy,
    /// Topology constraints of the members (gate `TopologyAwareWorkloadScheduling`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_constraints: Option<SchedulingConstraints>,
    /// Devices that members share (gate `DRAWorkloadResourceClaims`).
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub resource_claims: Vec<ResourceClaim>,
    /// Whether members are evicted individually or together: `Pod` or `PodGroup` (gate `WorkloadAwarePreemption`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption_mode: Option<String>,
    /// The priority class (gate `WorkloadAwarePreemption`).
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub priority_class_name: String,
    /// The value of that class (gate `WorkloadAwarePreemption`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// A reference to a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateReference {
    /// A template in a Workload: the only option.
    pub workload: Option<WorkloadTemplate>,
}

/// A template in a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadTemplate {
    /// The Workload.
    #[serde(deserialize_with = "null_is_default")]
    pub workload_name: String,
    /// The template in it.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_group_template_name: String,
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
    /// Whether members are evicted individually or together: `Pod` or `PodGroup` (gate `WorkloadAwarePreemption`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption_mode: Option<String>,
    /// The priority class (gate `WorkloadAwarePreemption`).
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub priority_class_name: String,
    /// The value of that class (gate `WorkloadAwarePreemption`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// Sets defaults of a PodGroup. Called on create and on update, before fields are dropped.
pub fn set_pod_group_defaults(object: &mut Value) {
    set_default(object, "disruptionMode", json!(DISRUPT_POD));
}
