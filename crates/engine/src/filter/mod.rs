//! Filters: may a pod of this class go to this node? One file per filter, one list of them all.
//!
//! They mean what kube-scheduler's filters of the same purpose mean, run in the same order, and the first
//! that says no is the reason that users see. A fixed filter depends on the node itself, so its answer is
//! kept until the node changes; a moving one depends on what is on the node.
//!
//! Filters must not know who asks or why: priorities, nominations and claims are in the view they are shown.

mod claims;
mod company;
mod enforced_affinity;
mod features;
mod node_affinity;
mod node_name;
mod ports;
pub(crate) mod resources;
mod spread;
mod taints;
mod unschedulable;
mod volumes;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::cluster::load::Load;
use crate::cluster::node::Node;
use crate::model::class::PodClass;
use crate::model::ids::{NodeId, ResourceId};

/// Why a node will not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The pod insists on another node.
    NodeName,
    /// The node is cordoned.
    Unschedulable,
    /// The node has a taint that the pod does not tolerate.
    Taints,
    /// The node does not match the affinity that the scheduler asks for.
    EnforcedAffinity,
    /// The node does not match the pod's selector or required affinity.
    NodeAffinity,
    /// A host port is taken.
    Ports,
    /// The node holds as many pods as it may.
    TooManyPods,
    /// There is too little of a resource.
    Insufficient(ResourceId),
    /// The node is none from which a volume of the pod can be reached.
    VolumeAffinity,
    /// A volume of the pod is in another zone.
    VolumeZone,
    /// Too many of those are near among whom the pod is to be spread.
    Spread,
    /// The node lacks a label over which the pod is to be spread.
    SpreadLabel,
    /// Nobody is near whom the pod insists on.
    PodAffinity,
    /// Somebody is near whom the pod shuns.
    PodAntiAffinity,
    /// Somebody is near who shuns the pod.
    ExistingPodAntiAffinity,
    /// The node does not declare a feature that the pod needs.
    Features,
    /// The node is claimed for a group that has waited too long.
    Claimed,
}

/// A filter that only depends on the node itself.
pub(crate) struct Fixed {
    pub(crate) passes: fn(&PodClass, &Node) -> bool,
    pub(crate) reason: Reason,
}

/// A filter that depends on what is on the node.
pub(crate) struct Moving {
    /// Whether one more pod of the class can go there.
    pub(crate) passes: fn(&PodClass, &Node, &View<'_>) -> bool,
    /// How many more pods of the class can go there.
    pub(crate) copies_max: fn(&PodClass, &Node, &View<'_>) -> i64,
    /// All reasons why not even one can.
    pub(crate) reasons: fn(&PodClass, &Node, &View<'_>, &mut Vec<Reason>),
}

/// A filter that depends on who is on other nodes, too.
pub(crate) struct Company {
    /// Why not even one more pod of the class can go there.
    pub(crate) why_not: fn(&PodClass, &Node, &View<'_>) -> Option<Reason>,
    /// How many more pods of the class can go there, as long as nobody else comes.
    pub(crate) copies_max: fn(&PodClass, &Node, &View<'_>) -> i64,
}

pub(crate) enum Filter {
    Fixed(Fixed),
    Moving(Moving),
    Near(Company),
}

/// Which filter: what a profile may go without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FilterName {
    /// The node that a pod names.
    NodeName,
    /// Cordons.
    NodeUnschedulable,
    /// Taints and tolerations.
    TaintToleration,
    /// Selectors and affinity, the pod's and the scheduler's own.
    NodeAffinity,
    /// Host ports.
    NodePorts,
    /// Room.
    NodeResourcesFit,
    /// The nodes from which volumes can be reached.
    VolumeBinding,
    /// The zones of volumes.
    VolumeZone,
    /// Even spread.
    PodTopologySpread,
    /// The company of other pods.
    InterPodAffinity,
    /// Features that nodes declare.
    NodeDeclaredFeatures,
}

impl FilterName {
    /// Everything that a profile may go without.
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

/// Filters that a class goes without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped(u16);

impl Skipped {
    pub(crate) fn new(names: impl IntoIterator<Item = FilterName>) -> Self {
        Self(names.into_iter().fold(0, |all, name| all | 1 << name as u16))
    }

    pub(crate) fn has(self, name: FilterName) -> bool {
        self.0 & (1 << name as u16) != 0
    }
}

/// All filters, in the order in which they are asked. One without a name is always asked.
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
    (Some(FilterName::PodTopologySpread), spread::FILTER),
    (Some(FilterName::InterPodAffinity), company::FILTER),
    (Some(FilterName::NodeDeclaredFeatures), features::FILTER),
    (None, claims::FILTER),
];

/// The filters that a class is held against, in order.
fn filters(class: &PodClass) -> impl Iterator<Item = &'static Filter> {
    let skipped = class.skipped;
    FILTERS.iter().filter(move |(name, _)| !name.is_some_and(|name| skipped.has(name))).map(|(_, filter)| filter)
}

/// Whether the node itself would do.
pub(crate) fn node_would_do(class: &PodClass, node: &Node) -> bool {
    node.present
        && filters(class).all(|filter| match filter {
            Filter::Fixed(fixed) => (fixed.passes)(class, node),
            Filter::Moving(_) | Filter::Near(_) => true,
        })
}

/// Whether a node that would do has room for one more pod.
pub(crate) fn has_room(class: &PodClass, node: &Node, view: &View<'_>) -> bool {
    has_room_alone(class, node, view) && is_welcome(class, node, view)
}

/// The same, without regard to who is near.
pub(crate) fn has_room_alone(class: &PodClass, node: &Node, view: &View<'_>) -> bool {
    filters(class).all(|filter| match filter {
        Filter::Fixed(_) | Filter::Near(_) => true,
        Filter::Moving(moving) => (moving.passes)(class, node, view),
    })
}

/// Whether nobody who is near, or is not, keeps the pod from a node.
pub(crate) fn is_welcome(class: &PodClass, node: &Node, view: &View<'_>) -> bool {
    !class.minds_others()
        || filters(class).all(|filter| match filter {
            Filter::Fixed(_) | Filter::Moving(_) => true,
            Filter::Near(near) => (near.why_not)(class, node, view).is_none(),
        })
}

/// How many more pods of the class a node that would do has room for, without regard to who is near.
pub(crate) fn copies_max_alone(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    let alone = filters(class).filter_map(|filter| match filter {
        Filter::Fixed(_) | Filter::Near(_) => None,
        Filter::Moving(moving) => Some((moving.copies_max)(class, node, view)),
    });
    alone.min().unwrap_or(i64::MAX).max(0)
}

/// How many more pods of the class a node that would do has room for.
pub(crate) fn copies_max(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    let all = filters(class).filter_map(|filter| match filter {
        Filter::Fixed(_) => None,
        Filter::Moving(moving) => Some((moving.copies_max)(class, node, view)),
        Filter::Near(near) => Some((near.copies_max)(class, node, view)),
    });
    all.min().unwrap_or(i64::MAX).max(0)
}

/// Why not: all reasons of the first filter that says no; none if every filter says yes.
pub(crate) fn why_not(class: &PodClass, node: &Node, view: &View<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for filter in filters(class) {
        match filter {
            Filter::Fixed(fixed) if !(fixed.passes)(class, node) => reasons.push(fixed.reason),
            Filter::Fixed(_) => {}
            Filter::Moving(moving) => (moving.reasons)(class, node, view, &mut reasons),
            Filter::Near(near) => reasons.extend((near.why_not)(class, node, view)),
        }
        if !reasons.is_empty() {
            break;
        }
    }
    reasons
}

/// A node as somebody of a certain priority sees it.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// What is there, and what the node is kept free for by nominations of the same or a higher priority.
    pub(crate) load: Cow<'a, Load>,
    /// The node is claimed by a group of the same or a higher priority.
    pub(crate) claimed: bool,
    /// Who is near; `None` is not looked at.
    pub(crate) near: Option<Near<'a>>,
}

/// A node among the others, as somebody of a certain priority sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) node: NodeId,
    pub(crate) priority: i32,
    /// As if there were no pods anywhere.
    pub(crate) deserted: bool,
}

impl<'a> View<'a> {
    /// A node of a cluster without any pods, but for this load.
    pub(crate) fn deserted(cluster: &'a Cluster, node: NodeId, load: Cow<'a, Load>) -> Self {
        View { load, claimed: false, near: Some(Near { cluster, node, priority: i32::MAX, deserted: true }) }
    }
}

/// A node as somebody of this priority sees it.
pub(crate) fn view(cluster: &Cluster, id: NodeId, priority: i32) -> View<'_> {
    let node = cluster.node(id);
    let load = match &node.reserved {
        None => Cow::Borrowed(&node.load),
        Some(reserved) if priority <= reserved.lowest_priority => Cow::Borrowed(&reserved.load),
        Some(_) => Cow::Owned(nominated_at_least(cluster, id, priority)),
    };
    let claimed = node.claimed_at.is_some_and(|claim| priority <= claim);
    View { load, claimed, near: Some(Near { cluster, node: id, priority, deserted: false }) }
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
