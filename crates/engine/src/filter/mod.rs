//! Filters: may a pod of this class go to this node? One file per filter, one list of them all.
//!
//! They mean what kube-scheduler's filters of the same purpose mean, run in the same order, and the first
//! that says no is the reason that users see. A fixed filter depends on the node itself, so its answer is
//! kept until the node changes; a moving one depends on what is on the node.
//!
//! Filters must not know who asks or why: priorities and nominations are in the load they are shown.

mod node_affinity;
mod node_name;
mod ports;
mod resources;
mod taints;
mod unschedulable;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::cluster::load::Load;
use crate::cluster::node::Node;
use crate::model::class::PodClass;
use crate::model::ids::{NodeId, ResourceId};

/// Why a node will not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reason {
    /// The pod insists on another node.
    NodeName,
    /// The node is cordoned.
    Unschedulable,
    /// The node has a taint that the pod does not tolerate.
    Taints,
    /// The node does not match the pod's selector or required affinity.
    NodeAffinity,
    /// A host port is taken.
    Ports,
    /// The node holds as many pods as it may.
    TooManyPods,
    /// There is too little of a resource.
    Insufficient(ResourceId),
}

/// A filter that only depends on the node itself.
pub(crate) struct Fixed {
    pub(crate) passes: fn(&PodClass, &Node) -> bool,
    pub(crate) reason: Reason,
}

/// A filter that depends on what is on the node.
pub(crate) struct Moving {
    /// Whether one more pod of the class can go there.
    pub(crate) passes: fn(&PodClass, &Node, &Load) -> bool,
    /// How many more pods of the class can go there.
    pub(crate) copies_max: fn(&PodClass, &Node, &Load) -> i64,
    /// All reasons why not even one can.
    pub(crate) reasons: fn(&PodClass, &Node, &Load, &mut Vec<Reason>),
}

pub(crate) enum Filter {
    Fixed(Fixed),
    Moving(Moving),
}

/// All filters, in the order in which they are asked.
pub(crate) static FILTERS: [Filter; 6] =
    [node_name::FILTER, unschedulable::FILTER, taints::FILTER, node_affinity::FILTER, ports::FILTER, resources::FILTER];

/// Whether the node itself would do.
pub(crate) fn node_would_do(class: &PodClass, node: &Node) -> bool {
    node.present
        && FILTERS.iter().all(|filter| match filter {
            Filter::Fixed(fixed) => (fixed.passes)(class, node),
            Filter::Moving(_) => true,
        })
}

/// Whether a node that would do has room for one more pod.
pub(crate) fn has_room(class: &PodClass, node: &Node, load: &Load) -> bool {
    FILTERS.iter().all(|filter| match filter {
        Filter::Fixed(_) => true,
        Filter::Moving(moving) => (moving.passes)(class, node, load),
    })
}

/// How many more pods of the class a node that would do has room for.
pub(crate) fn copies_max(class: &PodClass, node: &Node, load: &Load) -> i64 {
    FILTERS
        .iter()
        .filter_map(|filter| match filter {
            Filter::Fixed(_) => None,
            Filter::Moving(moving) => Some((moving.copies_max)(class, node, load)),
        })
        .min()
        .unwrap_or(i64::MAX)
        .max(0)
}

/// Why not: all reasons of the first filter that says no; none if every filter says yes.
pub(crate) fn why_not(class: &PodClass, node: &Node, load: &Load) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for filter in &FILTERS {
        match filter {
            Filter::Fixed(fixed) if !(fixed.passes)(class, node) => reasons.push(fixed.reason),
            Filter::Fixed(_) => {}
            Filter::Moving(moving) => (moving.reasons)(class, node, load, &mut reasons),
        }
        if !reasons.is_empty() {
            break;
        }
    }
    reasons
}

/// What counts on a node for somebody of this priority: what is there, and what it is kept free for
/// by nominations of the same or a higher priority.
pub(crate) fn load_for(cluster: &Cluster, id: NodeId, priority: i32) -> Cow<'_, Load> {
    let node = cluster.node(id);
    match &node.reserved {
        None => Cow::Borrowed(&node.load),
        Some(reserved) if priority <= reserved.lowest_priority => Cow::Borrowed(&reserved.load),
        Some(_) => {
            let mut load = node.load.clone();
            for pod in &node.nominated {
                if cluster.effective_priority(*pod) >= priority {
                    load.add(cluster.class(cluster.pod(*pod).class));
                }
            }
            Cow::Owned(load)
        }
    }
}
