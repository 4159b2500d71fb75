//! Filters: decide whether a pod of a class may go to a node. One file per filter, and one list of all of them.
//!
//! They correspond to kube-scheduler's filters, run in the same order, and the first one that fails is the reason that
//! users see. The result of a static filter depends on the node object alone and is cached until the node changes; that
//! of a load filter depends on the pods on the node, that of an inter-pod filter also on pods on other nodes.
//!
//! Must not depend on what is scheduled and why: priorities, nominations and reservations are part of the [`View`].

mod enforced_affinity;
mod features;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod ports;
mod reservations;
pub(crate) mod resources;
mod taints;
mod topology_spread;
mod unschedulable;
mod volumes;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::cluster::load::Load;
use crate::cluster::node::Node;
use crate::model::class::PodClass;
use crate::model::ids::{NodeId, ResourceId};

/// Why a node is infeasible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The pod's `nodeName` is another node.
    NodeName,
    /// The node is cordoned.
    Unschedulable,
    /// The node has a taint that the pod does not tolerate.
    Taints,
    /// The node does not match the affinity added by the scheduler configuration.
    EnforcedAffinity,
    /// The node does not match the pod's selector or required affinity.
    NodeAffinity,
    /// A host port is taken.
    Ports,
    /// The node holds its maximum number of pods.
    TooManyPods,
    /// There is too little of a resource left.
    Insufficient(ResourceId),
    /// The node does not match the node affinity of a volume.
    VolumeAffinity,
    /// A volume of the pod is in another zone.
    VolumeZone,
    /// The pod would violate the skew of a topology spread constraint.
    Spread,
    /// The node lacks the topology key of a spread constraint.
    SpreadLabel,
    /// No pod in the domain matches the pod's required affinity.
    PodAffinity,
    /// A pod in the domain matches the pod's required anti-affinity.
    PodAntiAffinity,
    /// The required anti-affinity of an existing pod matches the pod.
    ExistingPodAntiAffinity,
    /// The node does not declare a feature that the pod needs.
    Features,
    /// The node is reserved for a group that has been pending too long.
    Reserved,
}

/// A filter that depends on the node object alone.
pub(crate) struct StaticFilter {
    pub(crate) passes: fn(&PodClass, &Node) -> bool,
    pub(crate) reason: Reason,
}

/// A filter that depends on the pods on the node.
pub(crate) struct LoadFilter {
    /// Whether one more pod of the class fits.
    pub(crate) passes: fn(&PodClass, &Node, &View<'_>) -> bool,
    /// How many more pods of the class fit.
    pub(crate) copies_max: fn(&PodClass, &Node, &View<'_>) -> i64,
    /// All reasons why not even one fits.
    pub(crate) reasons: fn(&PodClass, &Node, &View<'_>, &mut Vec<Reason>),
}

/// A filter that also depends on pods on other nodes.
pub(crate) struct InterPodFilter {
    /// Why not even one more pod of the class fits.
    pub(crate) failure_reason: fn(&PodClass, &Node, &View<'_>) -> Option<Reason>,
    /// How many more pods of the class fit, as long as no other pod is placed.
    pub(crate) copies_max: fn(&PodClass, &Node, &View<'_>) -> i64,
}

pub(crate) enum Filter {
    Static(StaticFilter),
    Load(LoadFilter),
    InterPod(InterPodFilter),
}

/// The filters that a profile can disable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FilterName {
    /// The pod's `nodeName`.
    NodeName,
    /// Cordoned nodes.
    NodeUnschedulable,
    /// Taints and tolerations.
    TaintToleration,
    /// Node selectors and node affinity, the pod's own and that of the scheduler configuration.
    NodeAffinity,
    /// Host ports.
    NodePorts,
    /// Free resources.
    NodeResourcesFit,
    /// The node affinity of volumes.
    VolumeBinding,
    /// The zones of volumes.
    VolumeZone,
    /// Topology spread constraints.
    PodTopologySpread,
    /// Inter-pod affinity and anti-affinity.
    InterPodAffinity,
    /// Features that nodes declare.
    NodeDeclaredFeatures,
}

impl FilterName {
    /// All filters that a profile can disable.
    pub const ALL: [Self; 11] = [
        Self::NodeName,
        Self::NodeUnschedulable,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::NodePorts,
        Self::NodeResourcesFit,
        Self::VolumeBinding,
        Self::VolumeZone,
        Self::PodTopologySpread,
        Self::InterPodAffinity,
        Self::NodeDeclaredFeatures,
    ];
}

/// The filters that are disabled for a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DisabledFilters(u16);

impl DisabledFilters {
    pub(crate) fn new(names: impl IntoIterator<Item = FilterName>) -> Self {
        Self(names.into_iter().fold(0, |all, name| all | 1 << name as u16))
    }

    pub(crate) fn has(self, name: FilterName) -> bool {
        self.0 & (1 << name as u16) != 0
    }
}

/// All filters in the order of their evaluation. A filter without a name cannot be disabled.
static FILTERS: [(Option<FilterName>, Filter); 13] = [
    (Some(FilterName::NodeName), node_name::FILTER),
    (Some(FilterName::NodeUnschedulable), unschedulable::FILTER),
    (Some(FilterName::TaintToleration), taints::FILTER),
    (Some(FilterName::NodeAffinity), enforced_affinity::FILTER),
    (Some(FilterName::NodeAffinity), node_affinity::FILTER),
    (Some(FilterName::NodePorts), ports::FILTER),
    (Some(FilterName::NodeResourcesFit), resources::FILTER),
    (Some(FilterName::VolumeBinding), volumes::REACH),
    (Some(FilterName::VolumeZone), volumes::ZONE),
    (Some(FilterName::PodTopologySpread), topology_spread::FILTER),
    (Some(FilterName::InterPodAffinity), inter_pod_affinity::FILTER),
    (Some(FilterName::NodeDeclaredFeatures), features::FILTER),
    (None, reservations::FILTER),
];

/// The filters that are enabled for a class, in order.
fn filters(class: &PodClass) -> impl Iterator<Item = &'static Filter> {
    let disabled_filters = class.disabled_filters;
    FILTERS
        .iter()
        .filter(move |(name, _)| !name.is_some_and(|name| disabled_filters.has(name)))
        .map(|(_, filter)| filter)
}

/// Whether the node object passes all static filters.
pub(crate) fn passes_static_filters(class: &PodClass, node: &Node) -> bool {
    node.present
        && filters(class).all(|filter| match filter {
            Filter::Static(filter) => (filter.passes)(class, node),
            Filter::Load(_) | Filter::InterPod(_) => true,
        })
}

/// Whether a node that passes the static filters has room for one more pod and passes the inter-pod filters.
pub(crate) fn has_room(class: &PodClass, node: &Node, view: &View<'_>) -> bool {
    has_room_ignoring_inter_pod(class, node, view) && passes_inter_pod_filters(class, node, view)
}

/// Whether one more pod fits by the load filters alone.
pub(crate) fn has_room_ignoring_inter_pod(class: &PodClass, node: &Node, view: &View<'_>) -> bool {
    filters(class).all(|filter| match filter {
        Filter::Static(_) | Filter::InterPod(_) => true,
        Filter::Load(filter) => (filter.passes)(class, node, view),
    })
}

/// Whether all inter-pod filters pass.
pub(crate) fn passes_inter_pod_filters(class: &PodClass, node: &Node, view: &View<'_>) -> bool {
    !class.has_inter_pod_terms()
        || filters(class).all(|filter| match filter {
            Filter::Static(_) | Filter::Load(_) => true,
            Filter::InterPod(filter) => (filter.failure_reason)(class, node, view).is_none(),
        })
}

/// How many more pods of the class fit on a node that passes the static filters, by the load filters alone.
pub(crate) fn copies_max_ignoring_inter_pod(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    let by_filter = filters(class).filter_map(|filter| match filter {
        Filter::Static(_) | Filter::InterPod(_) => None,
        Filter::Load(filter) => Some((filter.copies_max)(class, node, view)),
    });
    by_filter.min().unwrap_or(i64::MAX).max(0)
}

/// How many more pods of the class fit on a node that passes the static filters.
pub(crate) fn copies_max(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    let all = filters(class).filter_map(|filter| match filter {
        Filter::Static(_) => None,
        Filter::Load(filter) => Some((filter.copies_max)(class, node, view)),
        Filter::InterPod(filter) => Some((filter.copies_max)(class, node, view)),
    });
    all.min().unwrap_or(i64::MAX).max(0)
}

/// All reasons of the first filter that fails; empty if every filter passes.
pub(crate) fn failure_reasons(class: &PodClass, node: &Node, view: &View<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for filter in filters(class) {
        match filter {
            Filter::Static(filter) if !(filter.passes)(class, node) => reasons.push(filter.reason),
            Filter::Static(_) => {}
            Filter::Load(filter) => (filter.reasons)(class, node, view, &mut reasons),
            Filter::InterPod(filter) => reasons.extend((filter.failure_reason)(class, node, view)),
        }
        if !reasons.is_empty() {
            break;
        }
    }
    reasons
}

/// A node as seen by a pod or group of a certain priority.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// The load of the node, including nominated pods of the same or a higher priority.
    pub(crate) load: Cow<'a, Load>,
    /// The node is reserved for a group of the same or a higher priority.
    pub(crate) blocked_by_reservation: bool,
    /// The rest of the cluster, for inter-pod filters; `None` skips them.
    pub(crate) inter_pod: Option<InterPodView<'a>>,
}

/// A node within its topology domains, as seen by a pod or group of a certain priority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterPodView<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) node: NodeId,
    pub(crate) priority: i32,
    /// Evaluate as if the cluster had no pods.
    pub(crate) without_pods: bool,
}

impl<'a> View<'a> {
    /// A node of a cluster without any pods except this load.
    pub(crate) fn without_pods(cluster: &'a Cluster, node: NodeId, load: Cow<'a, Load>) -> Self {
        View {
            load,
            blocked_by_reservation: false,
            inter_pod: Some(InterPodView { cluster, node, priority: i32::MAX, without_pods: true }),
        }
    }
}

/// A node as seen by a pod or group of this priority.
pub(crate) fn view(cluster: &Cluster, id: NodeId, priority: i32) -> View<'_> {
    let node = cluster.node(id);
    let load = match &node.nominated_load {
        None => Cow::Borrowed(&node.load),
        Some(nominated) if priority <= nominated.lowest_priority => Cow::Borrowed(&nominated.load),
        Some(_) => Cow::Owned(nominated_at_least(cluster, id, priority)),
    };
    let blocked_by_reservation = node.reservation_priority.is_some_and(|claim| priority <= claim);
    View {
        load,
        blocked_by_reservation,
        inter_pod: Some(InterPodView { cluster, node: id, priority, without_pods: false }),
    }
}

fn nominated_at_least(cluster: &Cluster, id: NodeId, priority: i32) -> Load {
    let node = cluster.node(id);
    let mut load = node.load.clone();
    for pod in &node.nominated {
        if cluster.effective_priority(*pod) >= priority {
            load.add(cluster.class(cluster.pod(*pod).class));
        }
    }
    load
}
