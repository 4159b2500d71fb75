//! The feasible nodes of one class, best first, updated from the cluster's journal.
//!
//! Building evaluates every node once; afterwards each changed node is evaluated again. So a group of n identical pods
//! on m nodes costs about m + n log m, and the next group of the same class only n log m. Classes without inter-pod
//! terms are ranked by `independent_ranking`, others by `node_equivalence`.

use super::candidate::Candidate;
use super::independent_ranking::IndependentRanking;
use super::node_equivalence::EquivalenceRanking;
use crate::cluster::Cluster;
use crate::cluster::journal::Touch;
use crate::model::ids::{ClassId, NodeId};
use crate::score::{InterPodScore, Normalization, Scorer};

/// The nodes for one class and priority.
#[derive(Clone, Debug)]
pub(crate) struct Candidates {
    class: ClassId,
    priority: i32,
    /// The journal position up to which changes are applied.
    seen: u64,
    /// The state of the class's images that the scores are based on.
    images: ImageState,
    /// The revision of the storage that its claims may be bound to.
    storage: u64,
    nodes: Vec<Candidate>,
    ranking: Ranking,
}

/// What the totals of all nodes depend on. While it stays, a total changes with its node only.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Basis {
    normalized_by: Normalization,
    images: ImageState,
    storage: u64,
}

/// When an image of the class was last added to or removed from a node, and the number of nodes.
type ImageState = (u64, usize);

/// The nodes with room, best first.
#[derive(Clone, Debug)]
enum Ranking {
    /// No inter-pod terms apply.
    Independent(IndependentRanking),
    /// Inter-pod terms apply.
    ByEquivalence(Box<EquivalenceRanking>),
}

impl Candidates {
    pub(crate) fn new(cluster: &Cluster, scorer: &Scorer, class: ClassId, priority: i32) -> Self {
        let existing = cluster.topology.existing_terms(cluster.class(class));
        let keys = cluster.topology.keys_in_use(cluster.class(class), &existing);
        let ranking = if keys.is_empty() {
            Ranking::Independent(IndependentRanking::default())
        } else {
            Ranking::ByEquivalence(Box::new(EquivalenceRanking::new(cluster, class, (keys, existing), priority)))
        };
        let nodes = vec![Candidate::default(); cluster.node_slots()];
        let (seen, images) = (cluster.journal.end(), image_state(cluster, class));
        let storage = cluster.storage_revision(class);
        let mut candidates = Self { class, priority, seen, images, storage, nodes, ranking };
        for slot in 0..candidates.nodes.len() {
            candidates.update(cluster, scorer, slot, true);
        }
        match &mut candidates.ranking {
            Ranking::Independent(ranking) => ranking.rescale(scorer, &candidates.nodes),
            Ranking::ByEquivalence(ranking) => ranking.rescale(cluster, scorer, class),
        }
        candidates
    }

    /// Applies the changes since the last refresh.
    pub(crate) fn refresh(&mut self, cluster: &Cluster, scorer: &Scorer) {
        let is_current = self.update_terms(cluster) && self.storage == cluster.storage_revision(self.class);
        if is_current && self.seen == cluster.journal.end() {
            return;
        }
        let missed = cluster.journal.since(self.seen).filter(|touches| is_current && self.can_repair(cluster, touches));
        let Some(touches) = missed else {
            *self = Self::new(cluster, scorer, self.class, self.priority);
            return;
        };
        for touch in touches {
            self.update(cluster, scorer, touch.node.slot(), touch.itself);
        }
        self.seen = cluster.journal.end();
        match &mut self.ranking {
            Ranking::Independent(ranking) => {
                ranking.refresh(scorer, &self.nodes, touches.iter().map(|touch| touch.node.slot()));
            }
            Ranking::ByEquivalence(ranking) => ranking.rescale(cluster, scorer, self.class),
        }
    }

    /// Whether applying the changes is possible and no more expensive than rebuilding.
    fn can_repair(&self, cluster: &Cluster, touches: &[Touch]) -> bool {
        let grown = cluster.node_slots() != self.nodes.len();
        // Topology domains may have changed with a node.
        let moved = matches!(self.ranking, Ranking::ByEquivalence(_)) && touches.iter().any(|touch| touch.itself);
        let same_images = self.images == image_state(cluster, self.class);
        !grown && !moved && same_images && touches.len() < 2 * self.nodes.len() + 64
    }

    /// Updates what the ranking knows of the terms of existing pods. Returns whether it considers all that matter now.
    fn update_terms(&mut self, cluster: &Cluster) -> bool {
        let existing = cluster.topology.existing_terms(cluster.class(self.class));
        cluster.steps.add(existing.len());
        let keys = cluster.topology.keys_in_use(cluster.class(self.class), &existing);
        match &mut self.ranking {
            Ranking::Independent(_) => keys.is_empty(),
            Ranking::ByEquivalence(ranking) => {
                ranking.existing = existing;
                ranking.has_keys(cluster, &keys)
            }
        }
    }

    /// The best node; the lowest slot among equals.
    pub(crate) fn best(&self) -> Option<NodeId> {
        match &self.ranking {
            Ranking::Independent(ranking) => ranking.best(),
            Ranking::ByEquivalence(ranking) => ranking.best_except(&[]),
        }
    }

    /// The best node except these.
    pub(crate) fn best_except(&mut self, except: &[NodeId]) -> Option<NodeId> {
        match &mut self.ranking {
            Ranking::Independent(ranking) => ranking.best_except(except, self.nodes.len()),
            Ranking::ByEquivalence(ranking) => ranking.best_except(except),
        }
    }

    /// Whether the node is feasible for one more pod.
    pub(crate) fn has_room(&self, node: NodeId) -> bool {
        let has_room = self.nodes.get(node.slot()).is_some_and(|candidate| candidate.has_room);
        match &self.ranking {
            Ranking::Independent(_) => has_room,
            Ranking::ByEquivalence(ranking) => has_room && ranking.is_feasible(node),
        }
    }

    /// The raw inter-pod scores of a node.
    pub(crate) fn inter_pod_score(&self, node: NodeId) -> InterPodScore {
        match &self.ranking {
            Ranking::Independent(_) => InterPodScore::default(),
            Ranking::ByEquivalence(ranking) => ranking.inter_pod_score(node),
        }
    }

    /// The total score of a node, if it is feasible.
    pub(crate) fn total(&self, node: NodeId) -> Option<i64> {
        let candidate = self.nodes.get(node.slot()).filter(|_| self.has_room(node))?;
        Some(match &self.ranking {
            Ranking::Independent(ranking) => ranking.total(node),
            Ranking::ByEquivalence(ranking) => ranking.total(node) + candidate.load_score,
        })
    }

    /// The ranges that scores are normalized by.
    pub(crate) fn normalized_by(&self) -> &Normalization {
        match &self.ranking {
            Ranking::Independent(ranking) => &ranking.normalized_by,
            Ranking::ByEquivalence(ranking) => &ranking.normalized_by,
        }
    }

    /// The nodes that pass the static filters, in slot order.
    pub(crate) fn statically_feasible_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let slots = self.nodes.iter().enumerate().filter(|(_, candidate)| candidate.passes_static_filters);
        slots.map(|(slot, _)| NodeId(slot as u32))
    }

    /// Whether a node passes the static filters.
    pub(crate) fn is_statically_feasible(&self, node: NodeId) -> bool {
        self.nodes.get(node.slot()).is_some_and(|candidate| candidate.passes_static_filters)
    }

    /// What totals depend on besides the node itself; `None` if that is any other node.
    pub(crate) fn basis(&self) -> Option<Basis> {
        match &self.ranking {
            Ranking::Independent(ranking) => {
                Some(Basis { normalized_by: ranking.normalized_by.clone(), images: self.images, storage: self.storage })
            }
            Ranking::ByEquivalence(_) => None,
        }
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

    /// Evaluates one node again; the static filters only if `itself` is set.
    fn update(&mut self, cluster: &Cluster, scorer: &Scorer, slot: usize, itself: bool) {
        let (old, id) = (self.nodes[slot], NodeId(slot as u32));
        let new = old.updated(cluster, scorer, (self.class, self.priority), id, itself);
        self.nodes[slot] = new;
        match &mut self.ranking {
            Ranking::Independent(ranking) => ranking.replace(old, new),
            Ranking::ByEquivalence(ranking) => ranking.put(cluster, id, new),
        }
    }
}

fn image_state(cluster: &Cluster, class: ClassId) -> ImageState {
    let changed = cluster.images.changed(&cluster.class(class).spec.images);
    // If no node has any of the images, the number of nodes does not matter.
    if changed == 0 { (0, 0) } else { (changed, cluster.nodes_present()) }
}
