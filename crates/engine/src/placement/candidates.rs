//! The nodes that will do for one class, best first, kept up to date by the cluster's journal.
//!
//! Building costs one look at every node; afterwards a change of a node costs one look at that node. So a
//! group of n like pods on m nodes costs about m + n log m, and the next group of the same class costs only
//! n log m. Where it matters who is near, a change of a node may also concern others: `surroundings` knows which.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::surroundings::{Concerned, Surroundings};
use super::tournament::Tournament;
use crate::cluster::Cluster;
use crate::cluster::journal::Touch;
use crate::filter;
use crate::model::ids::{ClassId, NodeId};
use crate::score::company::Span;
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
    /// Nobody who is near, or is not, keeps the class away.
    is_welcome: bool,
    /// How welcome those are who are near.
    company: i64,
}

impl Candidate {
    fn is_in_the_running(self) -> bool {
        self.has_room && self.is_welcome
    }
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
    company: Tally,
    tree: Tournament,
    scaled_by: Best,
    /// Who is near, if that matters.
    surroundings: Option<Box<Surroundings>>,
}

impl Candidates {
    pub(crate) fn new(cluster: &Cluster, scorer: &Scorer, class: ClassId, priority: i32) -> Self {
        let rules = cluster.class(class).rules.as_ref().filter(|rules| !rules.minds_nothing());
        let mut candidates = Self {
            class,
            priority,
            seen: cluster.journal.end(),
            nodes: vec![Candidate::default(); cluster.node_slots()],
            taints: Tally::default(),
            affinity: Tally::default(),
            company: Tally::default(),
            tree: Tournament::default(),
            scaled_by: Best::default(),
            surroundings: rules.map(|rules| Box::new(Surroundings::new(cluster, rules))),
        };
        for slot in 0..candidates.nodes.len() {
            candidates.look(cluster, scorer, slot, true);
        }
        candidates.rescale(scorer);
        candidates
    }

    /// Takes in what changed since the last time.
    pub(crate) fn refresh(&mut self, cluster: &Cluster, scorer: &Scorer) {
        if self.seen == cluster.journal.end() && self.minds_the_same(cluster) {
            return;
        }
        let behind = cluster.journal.since(self.seen).filter(|touches| self.can_repair(cluster, touches));
        let Some(touches) = behind else {
            *self = Self::new(cluster, scorer, self.class, self.priority);
            return;
        };
        for touch in touches {
            self.look(cluster, scorer, touch.node.slot(), touch.itself);
        }
        let others = self.look_around(cluster, touches);
        self.seen = cluster.journal.end();
        if self.scaled_by != self.best_raw() || others.len() > self.nodes.len() / 8 {
            self.rescale(scorer);
            return;
        }
        for slot in touches.iter().map(|touch| touch.node.slot()).chain(others) {
            self.tree.set(slot, self.key(scorer, slot));
        }
    }

    /// Whether it is as cheap to take in some changes as to begin afresh, and possible.
    fn can_repair(&self, cluster: &Cluster, touches: &[Touch]) -> bool {
        let grown = cluster.node_slots() != self.nodes.len();
        // Domains may have changed with a node.
        let moved = self.surroundings.is_some() && touches.iter().any(|touch| touch.itself);
        !grown && !moved && touches.len() < 2 * self.nodes.len() + 64 && self.minds_the_same(cluster)
    }

    fn minds_the_same(&self, cluster: &Cluster) -> bool {
        let rules = cluster.class(self.class).rules.as_ref().filter(|rules| !rules.minds_nothing());
        match (&self.surroundings, rules) {
            (None, None) => true,
            (Some(surroundings), Some(rules)) => Arc::ptr_eq(&surroundings.rules, rules),
            _ => false,
        }
    }

    /// Looks at the neighbours of nodes that changed. Says which nodes are something else now.
    fn look_around(&mut self, cluster: &Cluster, touches: &[Touch]) -> Vec<usize> {
        let Some(surroundings) = &mut self.surroundings else { return Vec::new() };
        let concerned = surroundings.look_again(cluster, &touches.iter().map(|touch| touch.node));
        let mut slots = Vec::new();
        for (slot, concerned) in concerned {
            let Some(node) = cluster.node_if_any(NodeId(slot as u32)) else { continue };
            let old = self.nodes[slot];
            let mut new = old;
            match concerned {
                Concerned::Welcome => {
                    let view = filter::view(cluster, NodeId(slot as u32), self.priority);
                    new.is_welcome = new.has_room && filter::is_welcome(cluster.class(self.class), node, &view);
                }
                Concerned::Company(difference) => new.company += difference,
            }
            self.replace(slot, new);
            slots.push(slot);
        }
        slots
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
        self.nodes.get(node.slot()).is_some_and(|candidate| candidate.is_in_the_running())
    }

    /// How welcome those are who are near a node.
    pub(crate) fn company(&self, node: NodeId) -> i64 {
        self.nodes.get(node.slot()).map_or(0, |candidate| candidate.company)
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
        let mut new = self.nodes[slot];
        let id = NodeId(slot as u32);
        let class = cluster.class(self.class);
        match cluster.node_if_any(id) {
            None => new = Candidate::default(),
            Some(node) => {
                if itself {
                    new.would_do = filter::node_would_do(class, node);
                    new.raw = if new.would_do { Scorer::fixed(class, node) } else { FixedScore::default() };
                    new.company = self.surroundings.as_ref().map_or(0, |near| near.company(cluster, id));
                }
                let view = filter::view(cluster, id, self.priority);
                new.has_room = new.would_do && filter::has_room_alone(class, node, &view);
                new.is_welcome = new.has_room && filter::is_welcome(class, node, &view);
                new.moving = if new.has_room { scorer.moving(class, node) } else { 0 };
            }
        }
        self.replace(slot, new);
    }

    fn replace(&mut self, slot: usize, new: Candidate) {
        let old = std::mem::replace(&mut self.nodes[slot], new);
        let minds_company = self.surroundings.is_some();
        if old.is_in_the_running() {
            self.taints.remove(old.raw.taints);
            self.affinity.remove(old.raw.affinity);
            if minds_company {
                self.company.remove(old.company);
            }
        }
        if new.is_in_the_running() {
            self.taints.add(new.raw.taints);
            self.affinity.add(new.raw.affinity);
            if minds_company {
                self.company.add(new.company);
            }
        }
    }

    fn best_raw(&self) -> Best {
        Best { taints: self.taints.max(), affinity: self.affinity.max(), company: self.company.span() }
    }

    fn rescale(&mut self, scorer: &Scorer) {
        self.scaled_by = self.best_raw();
        let keys: Vec<u32> = (0..self.nodes.len()).map(|slot| self.key(scorer, slot)).collect();
        self.tree = Tournament::new(&keys);
    }

    /// The total score plus one, or zero for a node without room.
    fn key(&self, scorer: &Scorer, slot: usize) -> u32 {
        let candidate = self.nodes[slot];
        if !candidate.is_in_the_running() {
            return 0;
        }
        let total = candidate.moving + scorer.proportional(candidate.raw, candidate.company, self.scaled_by);
        u32::try_from(total + 1).expect("weights are bounded, so is the total")
    }
}

/// How many nodes have which raw score; nothing is not listed.
#[derive(Clone, Debug, Default)]
struct Tally {
    by_raw: BTreeMap<i64, u32>,
    nothing: u32,
}

impl Tally {
    fn add(&mut self, raw: i64) {
        if raw == 0 {
            self.nothing += 1;
        } else {
            *self.by_raw.entry(raw).or_default() += 1;
        }
    }

    fn remove(&mut self, raw: i64) {
        if raw == 0 {
            self.nothing -= 1;
            return;
        }
        let count = self.by_raw.get_mut(&raw).expect("what is removed was added");
        *count -= 1;
        if *count == 0 {
            self.by_raw.remove(&raw);
        }
    }

    /// The most, at least nothing.
    fn max(&self) -> i64 {
        self.by_raw.keys().next_back().copied().unwrap_or(0).max(0)
    }

    /// From the least to the most.
    fn span(&self) -> Span {
        let nothing = (self.nothing > 0).then_some(0);
        let least = self.by_raw.keys().next().copied().into_iter().chain(nothing).min().unwrap_or(0);
        let most = self.by_raw.keys().next_back().copied().into_iter().chain(nothing).max().unwrap_or(0);
        Span { least, most }
    }
}
