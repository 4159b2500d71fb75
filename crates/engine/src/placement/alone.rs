//! The ranking of nodes for a class to which it does not matter who is near: one number for each node.
//!
//! Scores that are set in proportion to the best node change for all nodes when the best changes, which is rare.

use std::collections::BTreeMap;

use super::candidates::Candidate;
use super::tournament::Tournament;
use crate::model::ids::NodeId;
use crate::score::{Best, NearScore, Scorer};

/// Nodes by score.
#[derive(Clone, Debug, Default)]
pub(super) struct Alone {
    /// The raw scores above zero among nodes with room, and how many nodes have each: the best of them
    /// scales all the others.
    taints: Tally,
    affinity: Tally,
    tree: Tournament,
    pub(super) scaled_by: Best,
}

impl Alone {
    /// Takes in what a node is now. The order is for `refresh` or `rescale` to mend.
    pub(super) fn replace(&mut self, old: Candidate, new: Candidate) {
        if old.has_room {
            self.taints.remove(old.raw.taints);
            self.affinity.remove(old.raw.affinity);
        }
        if new.has_room {
            self.taints.add(new.raw.taints);
            self.affinity.add(new.raw.affinity);
        }
    }

    /// Puts these nodes where they belong by now.
    pub(super) fn refresh(&mut self, scorer: &Scorer, nodes: &[Candidate], slots: impl Iterator<Item = usize>) {
        if (self.scaled_by.taints, self.scaled_by.affinity) != (self.taints.max(), self.affinity.max()) {
            self.rescale(scorer, nodes);
            return;
        }
        for slot in slots {
            self.tree.set(slot, self.key(scorer, nodes[slot]));
        }
    }

    /// Orders all nodes afresh.
    pub(super) fn rescale(&mut self, scorer: &Scorer, nodes: &[Candidate]) {
        self.scaled_by = Best { taints: self.taints.max(), affinity: self.affinity.max(), ..Best::default() };
        let keys: Vec<u32> = nodes.iter().map(|candidate| self.key(scorer, *candidate)).collect();
        self.tree = Tournament::new(&keys);
    }

    pub(super) fn best(&self) -> Option<NodeId> {
        self.tree.best().map(|slot| NodeId(slot as u32))
    }

    /// The best node of `slots` but these few.
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
        let total = candidate.moving + scorer.proportional(candidate.raw, NearScore::default(), &self.scaled_by);
        u32::try_from(total + 1).expect("weights are bounded, so is the total")
    }
}

/// How many nodes have which raw score; nothing is not listed.
#[derive(Clone, Debug, Default)]
struct Tally(BTreeMap<i64, u32>);

impl Tally {
    fn add(&mut self, raw: i64) {
        if raw != 0 {
            *self.0.entry(raw).or_default() += 1;
        }
    }

    fn remove(&mut self, raw: i64) {
        if raw == 0 {
            return;
        }
        let count = self.0.get_mut(&raw).expect("what is removed was added");
        *count -= 1;
        if *count == 0 {
            self.0.remove(&raw);
        }
    }

    /// The most, at least nothing.
    fn max(&self) -> i64 {
        self.0.keys().next_back().copied().unwrap_or(0).max(0)
    }
}
