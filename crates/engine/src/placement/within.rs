//! A part of the cluster that a placement keeps to: one topology domain, and its best node.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::candidates::{Basis, Candidates};
use super::domains::{DomainId, Tree};
use crate::cluster::Cluster;
use crate::model::ids::{ClassId, NodeId};

/// A domain of a tree.
#[derive(Clone, Debug)]
pub(crate) struct Within {
    pub(crate) tree: Arc<Tree>,
    pub(crate) domain: DomainId,
}

impl Within {
    pub(crate) fn nodes(&self) -> &[NodeId] {
        self.tree.nodes(self.domain)
    }

    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.tree.contains(self.domain, node)
    }

    /// The domain of another tree of labels that has the same labels down to it, or to the nearest one above it.
    pub(super) fn in_tree(&self, other: &Arc<Tree>) -> DomainId {
        let depth = self.tree.depth(self.domain).min(self.tree.common_depth(other));
        let inside = self.nodes().iter().find_map(|node| other.domain_at(*node, depth));
        inside.filter(|_| depth > 0).unwrap_or(DomainId::ROOT)
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.domain == other.domain && Arc::ptr_eq(&self.tree, &other.tree)
    }
}

/// The nodes of a domain for one class, best first. Like the ranking of all nodes, it follows the journal.
#[derive(Clone, Debug)]
pub(crate) struct BestWithin {
    class: ClassId,
    priority: i32,
    within: Within,
    seen: u64,
    /// What the totals were computed by.
    basis: Option<Basis>,
    /// Totals of nodes; one that is not the node's total any more is dropped when it comes up.
    heap: BinaryHeap<(i64, Reverse<NodeId>)>,
}

impl BestWithin {
    pub(crate) fn new(cluster: &Cluster, candidates: &Candidates, within: &Within, shape: (ClassId, i32)) -> Self {
        let (class, priority) = shape;
        let total = |node: &NodeId| Some((candidates.total(*node)?, Reverse(*node)));
        let heap = within.nodes().iter().filter_map(total).collect();
        cluster.steps.add(within.nodes().len());
        let (seen, basis) = (cluster.journal.end(), candidates.basis());
        Self { class, priority, within: within.clone(), seen, basis, heap }
    }

    pub(crate) fn serves(&self, within: &Within, (class, priority): (ClassId, i32)) -> bool {
        self.class == class && self.priority == priority && self.within.is(within)
    }

    pub(crate) fn class(&self) -> ClassId {
        self.class
    }

    pub(crate) fn is_of(&self, tree: &Arc<Tree>) -> bool {
        Arc::ptr_eq(&self.within.tree, tree)
    }

    /// Applies the changes since the last call.
    pub(crate) fn refresh(&mut self, cluster: &Cluster, candidates: &Candidates) {
        let same_basis = self.basis.is_some() && self.basis == candidates.basis();
        let missed = cluster.journal.since(self.seen).filter(|_| same_basis);
        let limit = 4 * self.within.nodes().len() + 64;
        let Some(touches) = missed.filter(|touches| touches.len() + self.heap.len() < limit) else {
            let within = self.within.clone();
            *self = Self::new(cluster, candidates, &within, (self.class, self.priority));
            return;
        };
        for touch in touches.iter().filter(|touch| self.within.contains(touch.node)) {
            self.heap.extend(candidates.total(touch.node).map(|total| (total, Reverse(touch.node))));
        }
        self.seen = cluster.journal.end();
    }

    /// The best node except these; the lowest slot among equals.
    pub(crate) fn best_except(&mut self, candidates: &Candidates, except: &[NodeId]) -> Option<NodeId> {
        let mut passed = Vec::new();
        let mut best = None;
        while let Some((total, Reverse(node))) = self.heap.peek().copied() {
            let is_current = candidates.total(node) == Some(total);
            if is_current && !except.contains(&node) {
                best = Some(node);
                break;
            }
            self.heap.pop();
            if is_current {
                passed.push((total, Reverse(node)));
            }
        }
        self.heap.extend(passed);
        best
    }
}
