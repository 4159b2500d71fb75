//! Ranking of nodes for a class without inter-pod terms: one number per node.
//!
//! Normalized scores change for all nodes when the extreme raw score changes, which is rare.

use std::collections::BTreeMap;

use super::candidate::Candidate;
use super::tournament::Tournament;
use crate::model::ids::NodeId;
use crate::score::{InterPodScore, Normalization, Scorer};

/// Nodes by score.
#[derive(Clone, Debug, Default)]
pub(super) struct IndependentRanking {
    /// The non-zero raw scores of nodes with room, and how many nodes have each; the highest one normalizes the others.
    taints: ScoreCounts,
    node_affinity: ScoreCounts,
    tree: Tournament,
    pub(super) normalized_by: Normalization,
}

impl IndependentRanking {
    /// Replaces the evaluation of a node. `refresh` or `rescale` then restores the order.
    pub(super) fn replace(&mut self, old: Candidate, new: Candidate) {
        if old.has_room {
            self.taints.remove(old.raw.taints);
            self.node_affinity.remove(old.raw.node_affinity);
        }
        if new.has_room {
            self.taints.add(new.raw.taints);
            self.node_affinity.add(new.raw.node_affinity);
        }
    }

    /// Updates the order of these nodes.
    pub(super) fn refresh(&mut self, scorer: &Scorer, nodes: &[Candidate], slots: impl Iterator<Item = usize>) {
        if (self.normalized_by.taints, self.normalized_by.node_affinity)
            != (self.taints.max(), self.node_affinity.max())
        {
            self.rescale(scorer, nodes);
            return;
        }
        for slot in slots {
            self.tree.set(slot, self.key(scorer, nodes[slot]));
        }
    }

    /// Rebuilds the order of all nodes.
    pub(super) fn rescale(&mut self, scorer: &Scorer, nodes: &[Candidate]) {
        self.normalized_by = Normalization {
            taints: self.taints.max(),
            node_affinity: self.node_affinity.max(),
            ..Normalization::default()
        };
        let keys: Vec<u32> = nodes.iter().map(|candidate| self.key(scorer, *candidate)).collect();
        self.tree = Tournament::new(&keys);
    }

    pub(super) fn best(&self) -> Option<NodeId> {
        self.tree.best().map(|slot| NodeId(slot as u32))
    }

    /// The best of the first `slots` nodes, except these.
    pub(super) fn best_except(&mut self, except: &[NodeId], slots: usize) -> Option<NodeId> {
        if except.is_empty() {
            return self.best();
        }
        let listed: Vec<usize> = except.iter().map(|node| node.slot()).filter(|slot| *slot < slots).collect();
        let keys: Vec<u32> = listed.iter().map(|slot| self.tree.key(*slot)).collect();
        for slot in &listed {
            self.tree.set(*slot, 0);
        }
        let best = self.best();
        for (slot, key) in listed.iter().zip(keys) {
            if key > 0 {
                self.tree.set(*slot, key);
            }
        }
        best
    }

    pub(super) fn total(&self, node: NodeId) -> i64 {
        i64::from(self.tree.key(node.slot())) - 1
    }

    /// The total score plus one, or zero for a node without room.
    fn key(&self, scorer: &Scorer, candidate: Candidate) -> u32 {
        if !candidate.has_room {
            return 0;
        }
        let total = candidate.load_score
            + scorer.normalized_score(candidate.raw, InterPodScore::default(), &self.normalized_by);
        u32::try_from(total + 1).expect("weights are bounded, so is the total")
    }
}

/// The number of nodes by raw score; zero scores are not listed.
#[derive(Clone, Debug, Default)]
struct ScoreCounts(BTreeMap<i64, u32>);

impl ScoreCounts {
    fn add(&mut self, raw: i64) {
        if raw != 0 {
            *self.0.entry(raw).or_default() += 1;
        }
    }

    fn remove(&mut self, raw: i64) {
        if raw == 0 {
            return;
        }
        let count = self.0.get_mut(&raw).expect("a removed score was added");
        *count -= 1;
        if *count == 0 {
            self.0.remove(&raw);
        }
    }

    /// The highest score, at least zero.
    fn max(&self) -> i64 {
        self.0.keys().next_back().copied().unwrap_or(0).max(0)
    }
}
