//! A pod as it stands in the object: what decides where it can run and what it takes.
//!
//! Fields that are not listed are ignored; `null` is the same as left out.
//! It must not know how requests are reckoned (`pod_requests`) or what a selector means.

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

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Who places it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub scheduler_name: String,
    /// Where it is; empty while it has no place.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub node_name: String,
    /// How important it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The class that the priority comes from.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub priority_class_name: String,
    /// Whether others may be evicted for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_policy: Option<String>,
    /// The native group it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_group: Option<SchedulingGroup>,
    /// The group inside a native Workload that it belongs to, as Kubernetes 1.35 writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadRef>,
    /// The containers that run together.
    #[serde(deserialize_with = "null_is_default")]
    pub containers: Vec<Container>,
    /// The containers that run before them, one after the other, and sidecars.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub init_containers: Vec<Container>,
    /// The containers that were added to look into it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub ephemeral_containers: Vec<Container>,
    /// Resources for the pod as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Requirements>,
    /// What the runtime needs on top.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub overhead: WrittenResources,
    /// Labels that a node must have.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub node_selector: Labels,
    /// Which nodes and which company it wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints that it puts up with.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub tolerations: Vec<WrittenToleration>,
    /// How evenly it and its like stand.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// What must be lifted before it may be placed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub scheduling_gates: Vec<SchedulingGate>,
    /// Volumes, as far as they decide.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub volumes: Vec<Volume>,
    /// Devices that it claims.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub resource_claims: Vec<PodResourceClaim>,
    /// Whether it uses the node's network, and so the node's ports.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub host_network: bool,
    /// Whether its users are the node's: so it is if this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_users: Option<bool>,
    /// How long it may take to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// What runs it; the overhead comes from there.
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

/// A group inside a native Workload, as 1.35 has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadRef {
    /// The Workload.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The group inside it.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_group: String,
    /// Which replica of the group; empty if there is one.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub pod_group_replica_key: String,
}

/// Something that keeps a pod from being placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGate {
    /// The name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
}

/// A claim of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// The name, unique in the pod.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// A claim that is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    /// What the pod's own claim is made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}
