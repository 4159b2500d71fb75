//! A node as the engine keeps it: what it is, and what is on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::load::Load;
use crate::model::Millis;
use crate::model::ids::PodId;
use crate::model::labels::{Labels, NodeTerm};
use crate::model::resources::ResourceVec;
use crate::model::taint::{Effect, Taint, Toleration, tolerated};

/// A node. One that pods name but that was not seen yet, or is gone, is kept with `present` unset:
/// nothing is placed there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The name.
    pub name: Arc<str>,
    /// Whether the node itself is there.
    pub present: bool,
    /// Its labels.
    pub labels: Labels,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Those of its taints that are taken off when it is ready for its first pods.
    pub startup_taints: Vec<Taint>,
    /// When it was made.
    pub created_ms: Millis,
    /// In a trial: as if it were ready for its first pods.
    pub ready_soon: bool,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// What it offers.
    pub allocatable: ResourceVec,
    /// Features that it declares.
    pub features: BTreeSet<String>,
    /// The images that are there, with their sizes in bytes.
    pub images: BTreeMap<Arc<str>, i64>,
    /// How many pods it may hold.
    pub pods_max: i64,
    /// What the pods on it take.
    pub load: Load,
    /// The pods on it, in the order in which they came.
    pub pods: Vec<PodId>,
    /// The pods that it is kept free for, ordered.
    pub nominated: Vec<PodId>,
    /// It is claimed for a group of this priority that has waited too long.
    pub claimed_at: Option<i32>,
    /// What is on it and what it is kept free for; only while it is kept free for somebody.
    pub reserved: Option<Box<Reserved>>,
}

impl Node {
    /// Whether the node has these labels and meets one of these terms.
    pub(crate) fn suits(&self, selector: &Labels, terms: Option<&[NodeTerm]>) -> bool {
        selector.iter().all(|(key, value)| self.labels.get(key) == Some(value))
            && terms.is_none_or(|terms| terms.iter().any(|term| term.matches(&self.name, &self.labels)))
    }

    /// Whether no taint keeps away who has these tolerations.
    pub(crate) fn lets_in(&self, tolerations: &[Toleration]) -> bool {
        let mut keeping_away = self.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
        keeping_away
            .all(|taint| tolerated(tolerations, taint) || (self.ready_soon && self.startup_taints.contains(taint)))
    }
}

/// A node's load with all its nominations.
#[derive(Clone, Debug, PartialEq)]
pub struct Reserved {
    /// What is on the node, and everything that it is kept free for.
    pub load: Load,
    /// The lowest priority among the nominations: for whoever is not above it, all of them count.
    pub lowest_priority: i32,
}
