//! A node, its pods and its nominations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::load::Load;
use crate::model::Millis;
use crate::model::ids::PodId;
use crate::model::labels::{Labels, NodeTerm};
use crate::model::resources::ResourceVec;
use crate::model::taint::{Effect, Taint, Toleration, tolerated};

/// A node. A node that pods refer to but that was not seen yet, or is gone, is kept with `present` unset: nothing is
/// placed there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    /// The name.
    pub(crate) name: Arc<str>,
    /// Whether the node exists.
    pub(crate) present: bool,
    /// Its labels.
    pub(crate) labels: Labels,
    /// Its taints.
    pub(crate) taints: Vec<Taint>,
    /// Its startup taints: those that are removed when it is ready for its first pods.
    pub(crate) startup_taints: Vec<Taint>,
    /// When it was created.
    pub(crate) created_ms: Millis,
    /// In a transaction: treated as ready for its first pods.
    pub(crate) assumed_ready: bool,
    /// Whether it is cordoned.
    pub(crate) unschedulable: bool,
    /// Its allocatable resources.
    pub(crate) allocatable: ResourceVec,
    /// Features that it declares.
    pub(crate) features: BTreeSet<String>,
    /// Its images, with their sizes in bytes.
    pub(crate) images: BTreeMap<Arc<str>, i64>,
    /// How many pods it can hold.
    pub(crate) pods_max: i64,
    /// The load of its pods.
    pub(crate) load: Load,
    /// Its pods, in the order in which they were added.
    pub(crate) pods: Vec<PodId>,
    /// The pods that are nominated to it, sorted.
    pub(crate) nominated: Vec<PodId>,
    /// The priority of the starving group that it is reserved for.
    pub(crate) reservation_priority: Option<i32>,
    /// The load of its pods and its nominated pods; only while there are nominated pods.
    pub(crate) nominated_load: Option<Box<NominatedLoad>>,
}

impl Node {
    /// Whether the node matches a node selector and one of these terms.
    pub(crate) fn matches_affinity(&self, selector: &Labels, terms: Option<&[NodeTerm]>) -> bool {
        selector.iter().all(|(key, value)| self.labels.get(key) == Some(value))
            && terms.is_none_or(|terms| terms.iter().any(|term| term.matches(&self.name, &self.labels)))
    }

    /// Whether all taints are tolerated.
    pub(crate) fn tolerated_by(&self, tolerations: &[Toleration]) -> bool {
        let mut hard_taints = self.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
        hard_taints
            .all(|taint| tolerated(tolerations, taint) || (self.assumed_ready && self.startup_taints.contains(taint)))
    }
}

/// The load of a node with its nominated pods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NominatedLoad {
    /// The load of the pods on the node and of all nominated pods.
    pub(crate) load: Load,
    /// The lowest priority of the nominated pods: for a pod that is not above it, all of them count.
    pub(crate) lowest_priority: i32,
}
