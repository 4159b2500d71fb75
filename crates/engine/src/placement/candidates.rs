//! The nodes that will do for one class, best first, kept up to date by the cluster's journal.
//!
//! Building costs one look at every node; afterwards a change of a node costs one look at that node. So a
//! group of n like pods on m nodes costs about m + n log m, and the next group of the same class costs only
//! n log m. How nodes are ranked depends on whether it matters to the class who is near: `alone` or `cells`.

use super::alone::Alone;
use super::cells::Cells;
use crate::cluster::Cluster;
use crate::cluster::journal::Touch;
use crate::filter;
use crate::model::ids::{ClassId, NodeId};
use crate::score::{Best, FixedScore, NearScore, Scorer};

/// What is known of one node for this class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidate {
    pub(super) raw: FixedScore,
    /// The scores of what is on the node.
    pub(super) moving: i64,
    /// The node itself would do.
    would_do: bool,
    /// It also has room for one more, without regard to who is near.
    pub(super) has_room: bool,
}

/// The nodes for one class and priority.
#[derive(Clone, Debug)]
pub(crate) struct Candidates {
    class: ClassId,
    priority: i32,
    /// The journal's position up to which everything is taken in.
    seen: u64,
    /// The state of its images that the scores are of.
    images: ImageState,
    nodes: Vec<Candidate>,
    ranking: Ranking,
}

/// When the images of a class last came to a node or went, and how many nodes there are.
type ImageState = (u64, usize);

/// The nodes that have room, best first.
#[derive(Clone, Debug)]
enum Ranking {
    /// It does not matter who is near.
    Alone(Alone),
    /// It does.
    Among(Box<Cells>),
}

impl Candidates {
    pub(crate) fn new(cluster: &Cluster, scorer: &Scorer, class: ClassId, priority: i32) -> Self {
        let rules = cluster.class(class).rules.as_ref().filter(|rules| !rules.minds_nothing());
        let ranking = match rules {
            None => Ranking::Alone(Alone::default()),
            Some(rules) => Ranking::Among(Box::new(Cells::new(cluster, rules, priority))),
        };
        let nodes = vec![Candidate::default(); cluster.node_slots()];
        let (seen, images) = (cluster.journal.end(), image_state(cluster, class));
        let mut candidates = Self { class, priority, seen, images, nodes, ranking };
        for slot in 0..candidates.nodes.len() {
            candidates.look(cluster, scorer, slot, true);
        }
        match &mut candidates.ranking {
            Ranking::Alone(alone) => alone.rescale(scorer, &candidates.nodes),
            Ranking::Among(cells) => cells.rescale(cluster, scorer, class),
        }
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
        self.seen = cluster.journal.end();
        match &mut self.ranking {
            Ranking::Alone(alone) => {
                alone.refresh(scorer, &self.nodes, touches.iter().map(|touch| touch.node.slot()));
            }
            Ranking::Among(cells) => cells.rescale(cluster, scorer, self.class),
        }
    }

    /// Whether it is as cheap to take in some changes as to begin afresh, and possible.
    fn can_repair(&self, cluster: &Cluster, touches: &[Touch]) -> bool {
        let grown = cluster.node_slots() != self.nodes.len();
        // Domains may have changed with a node.
        let moved = matches!(self.ranking, Ranking::Among(_)) && touches.iter().any(|touch| touch.itself);
        let same_images = self.images == image_state(cluster, self.class);
        !grown && !moved && same_images && touches.len() < 2 * self.nodes.len() + 64 && self.minds_the_same(cluster)
    }

    fn minds_the_same(&self, cluster: &Cluster) -> bool {
        let rules = cluster.class(self.class).rules.as_ref().filter(|rules| !rules.minds_nothing());
        match (&self.ranking, rules) {
            (Ranking::Alone(_), None) => true,
            (Ranking::Among(cells), Some(rules)) => cells.are_of(rules),
            _ => false,
        }
    }

    /// The best node; the lowest slot among equals.
    pub(crate) fn best(&self) -> Option<NodeId> {
        match &self.ranking {
            Ranking::Alone(alone) => alone.best(),
            Ranking::Among(cells) => cells.best_except(&[]),
        }
    }

    /// The best node but these few.
    pub(crate) fn best_except(&mut self, except: &[NodeId]) -> Option<NodeId> {
        match &mut self.ranking {
            Ranking::Alone(alone) => alone.best_except(except, self.nodes.len()),
            Ranking::Among(cells) => cells.best_except(except),
        }
    }

    /// Whether the node would do and has room for one more.
    pub(crate) fn has_room(&self, node: NodeId) -> bool {
        let has_room = self.nodes.get(node.slot()).is_some_and(|candidate| candidate.has_room);
        match &self.ranking {
            Ranking::Alone(_) => has_room,
            Ranking::Among(cells) => has_room && cells.welcomes(node),
        }
    }

    /// The raw scores of who is near a node.
    pub(crate) fn near(&self, node: NodeId) -> NearScore {
        match &self.ranking {
            Ranking::Alone(_) => NearScore::default(),
            Ranking::Among(cells) => cells.near(node),
        }
    }

    /// The total by which the node is compared, if it is in the running.
    pub(crate) fn total(&self, node: NodeId) -> Option<i64> {
        let candidate = self.nodes.get(node.slot()).filter(|_| self.has_room(node))?;
        Some(match &self.ranking {
            Ranking::Alone(alone) => alone.total(node),
            Ranking::Among(cells) => cells.total(node) + candidate.moving,
        })
    }

    /// What relative scores are set in proportion to.
    pub(crate) fn scaled_by(&self) -> &Best {
        match &self.ranking {
            Ranking::Alone(alone) => &alone.scaled_by,
            Ranking::Among(cells) => &cells.scaled_by,
        }
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
                }
                let view = filter::view(cluster, id, self.priority);
                new.has_room = new.would_do && filter::has_room_alone(class, node, &view);
                new.moving = if new.has_room { scorer.moving(class, node, cluster) } else { 0 };
            }
        }
        let old = std::mem::replace(&mut self.nodes[slot], new);
        match &mut self.ranking {
            Ranking::Alone(alone) => alone.replace(old, new),
            Ranking::Among(cells) => cells.put(cluster, id, new),
        }
    }
}

fn image_state(cluster: &Cluster, class: ClassId) -> ImageState {
    let changed = cluster.images.changed(&cluster.class(class).spec.images);
    // If no node has any of them, it does not matter how many nodes there are.
    if changed == 0 { (0, 0) } else { (changed, cluster.nodes_present()) }
}
