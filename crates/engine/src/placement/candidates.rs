//! The nodes that will do for one class, best first, kept up to date by the cluster's journal.
//!
//! Building costs one look at every node; afterwards a change of a node costs one look at that node. So a
//! group of n like pods on m nodes costs about m + n log m, and the next group of the same class costs only
//! n log m.

use std::collections::BTreeMap;

use super::tournament::Tournament;
use crate::cluster::Cluster;
use crate::filter;
use crate::model::ids::{ClassId, NodeId};
use crate::score::{Best, FixedScore, Scorer};

/// What is known of one node for this class.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    raw: FixedScore,
    /// The scores of what is on the node.
    moving: i64,
    /// The node itself would do.
    would_do: bool,
    /// It also has room for one more.
    has_room: bool,
}

/// The nodes for one class and priority.
#[derive(Clone, Debug)]
pub(crate) struct Candidates {
    class: ClassId,
    priority: i32,
    /// The journal's position up to which everything is taken in.
    seen: u64,
    nodes: Vec<Candidate>,
    /// The raw scores above zero among nodes with room, and how many nodes have each: the best of them
    /// scales all the others.
    taints: Tally,
    affinity: Tally,
    tree: Tournament,
    scaled_by: Best,
}

impl Candidates {
    pub(crate) fn new(cluster: &Cluster, scorer: &Scorer, class: ClassId, priority: i32) -> Self {
        let mut candidates = Self {
            class,
            priority,
            seen: cluster.journal.end(),
            nodes: vec![Candidate::default(); cluster.node_slots()],
            taints: Tally::default(),
            affinity: Tally::default(),
            tree: Tournament::default(),
            scaled_by: Best::default(),
        };
        for slot in 0..candidates.nodes.len() {
            candidates.look(cluster, scorer, slot, true);
        }
        candidates.rescale(scorer);
        candidates
    }

    /// Takes in what changed since the last time.
    pub(crate) fn refresh(&mut self, cluster: &Cluster, scorer: &Scorer) {
        if self.seen == cluster.journal.end() {
            return;
        }
        let behind = cluster.journal.since(self.seen);
        let grown = cluster.node_slots() != self.nodes.len();
        let Some(touches) = behind.filter(|touches| !grown && touches.len() < 2 * self.nodes.len() + 64) else {
            *self = Self::new(cluster, scorer, self.class, self.priority);
            return;
        };
        for touch in touches {
            self.look(cluster, scorer, touch.node.slot(), touch.itself);
        }
        self.seen = cluster.journal.end();
        if self.scaled_by != self.best_raw() {
            self.rescale(scorer);
            return;
        }
        for touch in touches {
            let slot = touch.node.slot();
            self.tree.set(slot, self.key(scorer, slot));
        }
    }

    /// The best node; the lowest slot among equals.
    pub(crate) fn best(&self) -> Option<NodeId> {
        self.tree.best().map(|slot| NodeId(slot as u32))
    }

    /// The best node but these few.
    pub(crate) fn best_except(&mut self, except: &[NodeId]) -> Option<NodeId> {
        if except.is_empty() {
            return self.best();
        }
        let listed: Vec<usize> =
            except.iter().map(|node| node.slot()).filter(|slot| *slot < self.nodes.len()).collect();
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

    /// Whether the node would do and has room for one more.
    pub(crate) fn has_room(&self, node: NodeId) -> bool {
        self.nodes.get(node.slot()).is_some_and(|candidate| candidate.has_room)
    }

    /// The total by which the node is compared, if it is in the running.
    pub(crate) fn total(&self, node: NodeId) -> Option<i64> {
        self.has_room(node).then(|| i64::from(self.tree.key(node.slot())) - 1)
    }

    /// What relative scores are set in proportion to.
    pub(crate) fn scaled_by(&self) -> Best {
        self.scaled_by
    }

    /// The nodes that would do, in slot order.
    pub(crate) fn nodes_that_would_do(&self) -> impl Iterator<Item = NodeId> + '_ {
        let slots = self.nodes.iter().enumerate().filter(|(_, candidate)| candidate.would_do);
        slots.map(|(slot, _)| NodeId(slot as u32))
    }

    pub(crate) fn serves(&self, class: ClassId, priority: i32) -> bool {
        self.class == class && self.priority == priority
    }

    pub(crate) fn class(&self) -> ClassId {
        self.class
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Looks at one node afresh.
    fn look(&mut self, cluster: &Cluster, scorer: &Scorer, slot: usize, itself: bool) {
        let old = self.nodes[slot];
        let mut new = old;
        let id = NodeId(slot as u32);
        let class = cluster.class(self.class);
        match cluster.node_if_any(id) {
            None => new = Candidate::default(),
            Some(node) => {
                if itself {
                    new.would_do = filter::node_would_do(class, node);
                    new.raw = if new.would_do { Scorer::fixed(class, node) } else { FixedScore::default() };
                }
                new.has_room = new.would_do && filter::has_room(class, node, &filter::view(cluster, id, self.priority));
                new.moving = if new.has_room { scorer.moving(class, node) } else { 0 };
            }
        }
        if old.has_room {
            self.taints.remove(old.raw.taints);
            self.affinity.remove(old.raw.affinity);
        }
        if new.has_room {
            self.taints.add(new.raw.taints);
            self.affinity.add(new.raw.affinity);
        }
        self.nodes[slot] = new;
    }

    fn best_raw(&self) -> Best {
        Best { taints: self.taints.max(), affinity: self.affinity.max() }
    }

    fn rescale(&mut self, scorer: &Scorer) {
        self.scaled_by = self.best_raw();
        let keys: Vec<u32> = (0..self.nodes.len()).map(|slot| self.key(scorer, slot)).collect();
        self.tree = Tournament::new(&keys);
    }

    /// The total score plus one, or zero for a node without room.
    fn key(&self, scorer: &Scorer, slot: usize) -> u32 {
        let candidate = self.nodes[slot];
        if !candidate.has_room {
            return 0;
        }
        let total = candidate.moving + scorer.proportional(candidate.raw, self.scaled_by);
        u32::try_from(total + 1).expect("weights are bounded, so is the total")
    }
}

/// How many nodes have which raw score above zero.
#[derive(Clone, Debug, Default)]
struct Tally(BTreeMap<i64, u32>);

impl Tally {
    fn add(&mut self, raw: i64) {
        if raw > 0 {
            *self.0.entry(raw).or_default() += 1;
        }
    }

    fn remove(&mut self, raw: i64) {
        if raw > 0 {
            let count = self.0.get_mut(&raw).expect("what is removed was added");
            *count -= 1;
            if *count == 0 {
                self.0.remove(&raw);
            }
        }
    }

    fn max(&self) -> i64 {
        self.0.keys().next_back().copied().unwrap_or(0)
    }
}
