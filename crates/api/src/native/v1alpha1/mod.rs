//! Kubernetes' own Workload, `scheduling.k8s.io/v1alpha1` as of 1.35: groups are part of the object.
//!
//! A pod names workload, group and replica in `spec.workloadRef`; each replica is a separate group. There is no
//! PodGroup and no status. The version was removed in 1.36. Must not depend on the later versions' rules.

mod conversion;
mod rules;

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use super::policy::SchedulingPolicy;
use super::workload::ControllerReference;
use crate::null::null_is_default;
use crate::wire::object::{Kind, NoStatus, Object};

pub use rules::{validate_workload, validate_workload_reference, validate_workload_update};

/// The version.
pub const VERSION: &str = "v1alpha1";

/// Groups that belong together.
pub type Workload = Object<WorkloadKind>;

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

/// The spec of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    /// The object that owns the pods, such as a Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_ref: Option<ControllerReference>,
    /// The groups.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_groups: Vec<PodGroup>,
}

/// A group of pods, or of each replica's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroup {
    /// The name, unique in the workload.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// How members are placed.
    #[serde(deserialize_with = "null_is_default")]
    pub policy: SchedulingPolicy,
}
