//! The names of filters and scores, which correspond to plugins of kube-scheduler.

use serde::{Deserialize, Serialize};

/// The maximum of a single score.
pub(crate) const SCORE_MAX: i64 = 100;

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
    /// Disks and claims that pods cannot share.
    VolumeRestrictions,
    /// How many volumes a node can attach.
    NodeVolumeLimits,
    /// Volumes that a node can access, or that can be bound or provisioned for it.
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
    pub const ALL: [Self; 13] = [
        Self::NodeName,
        Self::NodeUnschedulable,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::NodePorts,
        Self::NodeResourcesFit,
        Self::VolumeRestrictions,
        Self::NodeVolumeLimits,
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
    /// The same without the filters about volumes: no pod of the class has any.
    pub(crate) fn without_volumes(self) -> Self {
        use FilterName::{NodeVolumeLimits, VolumeBinding, VolumeRestrictions, VolumeZone};
        let volumes = Self::new([VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone]);
        Self(self.0 | volumes.0)
    }

    pub(crate) fn new(names: impl IntoIterator<Item = FilterName>) -> Self {
        Self(names.into_iter().fold(0, |all, name| all | 1 << name as u16))
    }

    pub(crate) fn has(self, name: FilterName) -> bool {
        self.0 & (1 << name as u16) != 0
    }
}

/// The name of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScoreName {
    /// Fewer `PreferNoSchedule` taints that are not tolerated.
    Taints,
    /// More weight of matching preferred node affinity terms.
    NodeAffinity,
    /// The utilization of the node with the pod.
    Fit,
    /// How evenly its resources would be utilized.
    Balanced,
    /// Preferred inter-pod affinity.
    PodAffinity,
    /// Topology spread.
    Spread,
    /// The images of the pod that are present on the node.
    Images,
    /// How much of the storage its claims would leave free.
    VolumeBinding,
}
