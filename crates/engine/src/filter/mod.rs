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
mod kinds;
mod node_affinity;
mod node_name;
mod ports;
mod reservations;
pub(crate) mod resources;
mod taints;
mod topology_spread;
mod unschedulable;
mod view;
mod volume_binding;
mod volume_limits;
mod volume_restrictions;
mod volume_zone;

use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::model::plugin::FilterName;
use kinds::Filter;
pub(crate) use kinds::Reason;
pub(crate) use view::{InterPodView, View, view};
pub(crate) use volume_zone::is_in_zones;

/// All filters in the order of their evaluation. A filter without a name cannot be disabled.
static FILTERS: [(Option<FilterName>, Filter); 17] = [
    (Some(FilterName::NodeName), node_name::FILTER),
    (Some(FilterName::NodeUnschedulable), unschedulable::FILTER),
    (Some(FilterName::TaintToleration), taints::FILTER),
    (Some(FilterName::NodeAffinity), enforced_affinity::FILTER),
    (Some(FilterName::NodeAffinity), node_affinity::FILTER),
    (Some(FilterName::NodePorts), ports::FILTER),
    (Some(FilterName::NodeResourcesFit), resources::FILTER),
    (Some(FilterName::VolumeRestrictions), volume_restrictions::FILTER),
    (Some(FilterName::NodeVolumeLimits), volume_limits::FILTER),
    (Some(FilterName::VolumeBinding), volume_binding::MISSING),
    (Some(FilterName::VolumeBinding), volume_binding::ACCESS),
    (Some(FilterName::VolumeBinding), volume_binding::UNBOUND),
    (Some(FilterName::VolumeZone), volume_zone::FILTER),
    (Some(FilterName::PodTopologySpread), topology_spread::FILTER),
    (Some(FilterName::InterPodAffinity), inter_pod_affinity::FILTER),
    (Some(FilterName::NodeDeclaredFeatures), features::FILTER),
    (None, reservations::FILTER),
];

/// The filters that are enabled for a class, in order.
fn filters(class: &PodClass) -> impl Iterator<Item = &'static Filter> {
    named_filters(class).map(|(_, filter)| filter)
}

fn named_filters(class: &PodClass) -> impl Iterator<Item = &'static (Option<FilterName>, Filter)> {
    let disabled_filters = class.disabled_filters;
    FILTERS.iter().filter(move |(name, _)| !name.is_some_and(|name| disabled_filters.has(name)))
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
    filters(class).all(|filter| match filter {
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
    let mut failed = None;
    for (name, filter) in named_filters(class) {
        // Of the parts of one plugin only those about volumes report together.
        let goes_on = *name == Some(FilterName::VolumeBinding) && failed == Some(name);
        if !reasons.is_empty() && !goes_on {
            break;
        }
        match filter {
            Filter::Static(filter) if !(filter.passes)(class, node) => reasons.push(filter.reason.clone()),
            Filter::Static(_) => {}
            Filter::Load(filter) => (filter.reasons)(class, node, view, &mut reasons),
            Filter::InterPod(filter) => reasons.extend((filter.failure_reason)(class, node, view)),
        }
        failed = Some(name);
    }
    reasons
}
