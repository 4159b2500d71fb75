//! The kinds of filters, by what their result depends on, and the reasons that they give.

use std::sync::Arc;

use super::view::View;
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::model::ids::ResourceId;

/// Why a node is infeasible.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// A disk that the pod names is in use on the node.
    Disk,
    /// Another pod uses a claim that only one pod may use.
    ReadWriteOncePod,
    /// The node has as many volumes attached as it can.
    VolumeLimit,
    /// The node lacks a CSI driver that its pods need.
    DriverMissing(Arc<str>),
    /// A claim is bound to a volume that does not exist.
    VolumeMissing,
    /// The node does not match the node affinity of a volume.
    VolumeAffinity,
    /// No volume matches a claim of the pod, and none can be provisioned.
    NoVolume,
    /// There is too little storage for a volume of the pod.
    NoStorage,
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
