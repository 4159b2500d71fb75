//! The node has too little left of a resource, or holds its maximum number of pods.
//!
//! A resource that the pod does not request is not checked, so a node that is over-committed in one resource still
//! accepts pods that need none of it.

use smallvec::SmallVec;

use super::kinds::{Filter, LoadFilter, Reason};
use super::view::View;
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::model::ids::ResourceId;
use crate::model::resources::PODS_PER_NODE_MAX;

pub(super) const FILTER: Filter = Filter::Load(LoadFilter { passes, copies_max, reasons });

fn free(node: &Node, view: &View<'_>, resource: ResourceId) -> i64 {
    node.allocatable.get(resource).saturating_sub(view.load.used.get(resource))
}

fn pods_free(node: &Node, view: &View<'_>) -> i64 {
    node.pods_max.min(PODS_PER_NODE_MAX as i64) - view.load.pods as i64
}

fn passes(class: &PodClass, node: &Node, view: &View<'_>) -> bool {
    pods_free(node, view) >= 1 && class.requests.iter().all(|(resource, amount)| amount <= free(node, view, resource))
}

fn copies_max(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    class
        .requests
        .iter()
        .map(|(resource, amount)| free(node, view, resource).max(0) / amount)
        .fold(pods_free(node, view), i64::min)
}

/// How much of each resource, and of the number of pods (`None`), is missing for this many copies; only what is
/// missing.
pub(crate) fn missing_for(
    class: &PodClass,
    node: &Node,
    view: &View<'_>,
    copies: i64,
) -> SmallVec<[(Option<ResourceId>, i64); 4]> {
    let pods = (None, copies.saturating_sub(pods_free(node, view)));
    let amounts = class.requests.iter().map(|(resource, amount)| {
        (Some(resource), amount.saturating_mul(copies).saturating_sub(free(node, view, resource)))
    });
    std::iter::once(pods).chain(amounts).filter(|(_, missing)| *missing > 0).collect()
}

fn reasons(class: &PodClass, node: &Node, view: &View<'_>, reasons: &mut Vec<Reason>) {
    if pods_free(node, view) < 1 {
        reasons.push(Reason::TooManyPods);
    }
    for (resource, amount) in class.requests.iter() {
        if amount > free(node, view, resource) {
            reasons.push(Reason::Insufficient(resource));
        }
    }
}
