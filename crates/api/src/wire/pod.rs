//! A pod as written in the object, with the fields that matter for scheduling.
//!
//! Unlisted fields are ignored; `null` is the same as unset.
//! Must not depend on how requests are computed (`pod_requests`) or what a selector means.

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};
use crate::resources::WrittenResources;
use crate::selector::Labels;
use crate::toleration::WrittenToleration;
use crate::wire::container::{Container, Requirements};
use crate::wire::object::{Kind, Object};
use crate::wire::pod_affinity::Affinity;
use crate::wire::pod_status::PodStatus;
use crate::wire::topology_spread::TopologySpreadConstraint;
use crate::wire::volume::Volume;

/// A pod.
pub type Pod = Object<PodKind>;

/// The kind `Pod`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodKind;

impl Kind for PodKind {
    type Spec = PodSpec;
    type Status = PodStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

/// The spec of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The scheduler.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub scheduler_name: String,
    /// The node; empty while it is not bound.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub node_name: String,
    /// The priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The priority class.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub priority_class_name: String,
    /// The preemption policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_policy: Option<String>,
    /// Whether its containers are restarted when they end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
    /// How long it may run after it has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// The native group it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_group: Option<SchedulingGroup>,
    /// The group inside a native Workload that it belongs to, in the format of Kubernetes 1.35.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadRef>,
    /// The containers.
    #[serde(deserialize_with = "null_is_default")]
    pub containers: Vec<Container>,
    /// The init containers and sidecars.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub init_containers: Vec<Container>,
    /// The ephemeral containers.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub ephemeral_containers: Vec<Container>,
    /// The pod-level resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Requirements>,
    /// The overhead of the runtime.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub overhead: WrittenResources,
    /// Labels that a node must have.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub node_selector: Labels,
    /// The node affinity and inter-pod affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// The tolerations.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub tolerations: Vec<WrittenToleration>,
    /// The topology spread constraints.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// The scheduling gates, which must be removed before it is scheduled.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub scheduling_gates: Vec<SchedulingGate>,
    /// The volumes, as far as they affect scheduling.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub volumes: Vec<Volume>,
    /// The resource claims.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub resource_claims: Vec<PodResourceClaim>,
    /// Whether it uses the host network, and so host ports.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub host_network: bool,
    /// Whether it uses the host user namespace; true by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_users: Option<bool>,
    /// The termination grace period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// The RuntimeClass, which defines the overhead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
}

/// The native group of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGroup {
    /// The name of a `scheduling.k8s.io` PodGroup in the pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_group_name: Option<String>,
}

/// A group inside a native Workload, in the format of 1.35.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadRef {
    /// The Workload.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The group inside it.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_group: String,
    /// The replica of the group; empty if there is only one.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub pod_group_replica_key: String,
}

/// A scheduling gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGate {
    /// The name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
}

/// A reference to a ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// The name, unique in the pod.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// An existing claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    /// The template of the pod's own claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}
