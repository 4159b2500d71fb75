//! The nodes that a topology spread constraint counts pods on: those with all topology keys and, depending on
//! `nodeAffinityPolicy` and `nodeTaintsPolicy`, those that match the pod's node affinity and tolerations.
//!
//! Constraints with equal criteria share one set.

use std::collections::BTreeMap;

use crate::cluster::node::Node;
use crate::model::class::ClassSpec;
use crate::model::ids::{EligibleNodesId, NodeId, Slab};
use crate::model::inter_pod::SpreadTerm;
use crate::model::labels::{Labels, NodeTerm};
use crate::model::taint::Toleration;

/// The criteria for a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeCriteria {
    /// The topology keys that it must have, sorted.
    keys: Vec<String>,
    affinity: Option<(Labels, Option<Vec<NodeTerm>>)>,
    tolerations: Option<Vec<Toleration>>,
}

impl NodeCriteria {
    /// The criteria of this constraint of a class, whose constraints have these topology keys.
    pub(super) fn new(spec: &ClassSpec, term: &SpreadTerm, keys: &[String]) -> Self {
        let affinity = term.honors_node_affinity.then(|| (spec.node_selector.clone(), spec.required_terms.clone()));
        // An empty affinity matches every node, so it is equal to none.
        let affinity = affinity.filter(|(selector, terms)| !selector.is_empty() || terms.is_some());
        Self { keys: keys.to_vec(), affinity, tolerations: term.honors_node_taints.then(|| spec.tolerations.clone()) }
    }

    fn includes(&self, node: &Node) -> bool {
        let matches_affinity =
            |(selector, terms): &(Labels, Option<Vec<NodeTerm>>)| node.matches_affinity(selector, terms.as_deref());
        node.present
            && self.keys.iter().all(|key| node.labels.contains_key(key))
            && self.affinity.as_ref().is_none_or(matches_affinity)
            && self.tolerations.as_ref().is_none_or(|tolerations| node.tolerated_by(tolerations))
    }
}

#[derive(Clone, Debug, PartialEq)]
struct EligibleNodes {
    criteria: NodeCriteria,
    users: u32,
    /// By node slot.
    includes: Vec<bool>,
}

/// All sets of eligible nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EligibleNodeSets {
    slab: Slab<EligibleNodes>,
    by_criteria: BTreeMap<NodeCriteria, EligibleNodesId>,
}

impl EligibleNodeSets {
    /// Whether a node is eligible.
    pub(super) fn includes(&self, id: EligibleNodesId, node: NodeId) -> bool {
        let eligible_nodes = self.slab.get(id.0).expect("a set in use exists");
        eligible_nodes.includes.get(node.slot()).copied().unwrap_or(false)
    }

    /// The set with these criteria; domain counts that use it `hold` it.
    pub(super) fn of(&mut self, criteria: NodeCriteria, nodes: &Slab<Node>) -> EligibleNodesId {
        if let Some(id) = self.by_criteria.get(&criteria) {
            return *id;
        }
        let mut includes = vec![false; nodes.bound()];
        for (slot, node) in nodes.iter() {
            includes[slot as usize] = criteria.includes(node);
        }
        let id = EligibleNodesId(self.slab.insert(EligibleNodes { criteria: criteria.clone(), users: 0, includes }));
        self.by_criteria.insert(criteria, id);
        id
    }

    pub(super) fn hold(&mut self, id: EligibleNodesId) {
        self.slab.get_mut(id.0).expect("a set in use exists").users += 1;
    }

    pub(super) fn release(&mut self, id: EligibleNodesId) {
        let eligible_nodes = self.slab.get_mut(id.0).expect("a set in use exists");
        eligible_nodes.users -= 1;
        if eligible_nodes.users == 0 {
            let eligible_nodes = self.slab.remove(id.0).expect("a set in use exists");
            self.by_criteria.remove(&eligible_nodes.criteria);
        }
    }

    /// A node has changed.
    pub(super) fn update_node(&mut self, id: NodeId, node: Option<&Node>) {
        for eligible_nodes in self.by_criteria.values() {
            let eligible_nodes = self.slab.get_mut(eligible_nodes.0).expect("a listed set exists");
            if eligible_nodes.includes.len() <= id.slot() {
                eligible_nodes.includes.resize(id.slot() + 1, false);
            }
            eligible_nodes.includes[id.slot()] = node.is_some_and(|node| eligible_nodes.criteria.includes(node));
        }
    }

    /// Whether every set equals a recomputation.
    pub(super) fn match_recount(&self, nodes: &Slab<Node>) -> bool {
        self.slab.iter().all(|(id, eligible_nodes)| {
            nodes.iter().all(|(slot, node)| {
                self.includes(EligibleNodesId(id), NodeId(slot)) == eligible_nodes.criteria.includes(node)
            })
        })
    }
}
