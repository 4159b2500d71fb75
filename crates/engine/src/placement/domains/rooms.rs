//! How many pods of a class fit into each domain, and how much of each domain is allocated: sums over nodes that follow
//! the journal.
//!
//! The sums do not look at inter-pod terms, so where a class has any they are an upper bound.

use std::sync::Arc;

use smallvec::SmallVec;

use super::tree::{DomainId, Tree};
use crate::cluster::Cluster;
use crate::cluster::journal::Touch;
use crate::filter;
use crate::model::ids::{ClassId, NodeId};
use crate::score::Scorer;

/// No node has room for more pods than this.
const COPIES_MAX: i64 = 1 << 20;

/// What is allocated of a resource, and its capacity.
pub(super) type Usage = SmallVec<[(i64, i64); 2]>;

/// What one node contributes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Contribution {
    copies: i64,
    usage: Usage,
}

/// The rooms of all domains of a tree for one class and priority.
#[derive(Clone, Debug)]
pub(crate) struct Rooms {
    class: ClassId,
    priority: i32,
    tree: Arc<Tree>,
    /// The journal position up to which changes are applied.
    seen: u64,
    /// The revision of the storage that its claims may be bound to.
    storage: u64,
    /// By position in the tree.
    nodes: Vec<Contribution>,
    /// By domain.
    sums: Vec<Contribution>,
}

impl Rooms {
    pub(crate) fn new(cluster: &Cluster, scorer: &Scorer, tree: &Arc<Tree>, (class, priority): (ClassId, i32)) -> Self {
        let nodes = vec![Contribution::default(); tree.nodes(DomainId::ROOT).len()];
        let sums = vec![Contribution::default(); tree.len()];
        let (seen, storage) = (cluster.journal.end(), cluster.storage_revision(class));
        let mut rooms = Self { class, priority, tree: tree.clone(), seen, storage, nodes, sums };
        for node in tree.nodes(DomainId::ROOT) {
            rooms.update(cluster, scorer, *node);
        }
        rooms
    }

    pub(crate) fn serves(&self, tree: &Arc<Tree>, (class, priority): (ClassId, i32)) -> bool {
        self.class == class && self.priority == priority && Arc::ptr_eq(&self.tree, tree)
    }

    pub(crate) fn class(&self) -> ClassId {
        self.class
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn is_of(&self, tree: &Arc<Tree>) -> bool {
        Arc::ptr_eq(&self.tree, tree)
    }

    /// Applies the changes since the last refresh.
    pub(crate) fn refresh(&mut self, cluster: &Cluster, scorer: &Scorer) {
        let storage = cluster.storage_revision(self.class);
        let missed = cluster.journal.since(self.seen).filter(|_| storage == self.storage);
        let Some(touches) = missed.filter(|touches| touches.len() < 2 * self.nodes.len() + 64) else {
            let tree = self.tree.clone();
            *self = Self::new(cluster, scorer, &tree, (self.class, self.priority));
            return;
        };
        for Touch { node, .. } in touches {
            self.update(cluster, scorer, *node);
        }
        self.seen = cluster.journal.end();
    }

    fn update(&mut self, cluster: &Cluster, scorer: &Scorer, id: NodeId) {
        let Some(position) = self.tree.position(id) else { return };
        let new = self.contribution(cluster, scorer, id);
        let old = std::mem::replace(&mut self.nodes[position], new);
        let new = &self.nodes[position];
        if old == *new {
            return;
        }
        let Some(narrowest) = self.tree.narrowest(id) else { return };
        for domain in self.tree.ancestors(narrowest) {
            let sum = &mut self.sums[domain.index()];
            sum.copies += new.copies - old.copies;
            sum.usage.resize(new.usage.len().max(sum.usage.len()), (0, 0));
            for (index, (allocated, capacity)) in sum.usage.iter_mut().enumerate() {
                let (then, now) = (old.usage.get(index), new.usage.get(index));
                let difference =
                    |part: fn(&(i64, i64)) -> i64| now.map_or(0, part).saturating_sub(then.map_or(0, part));
                *allocated = allocated.saturating_add(difference(|usage| usage.0));
                *capacity = capacity.saturating_add(difference(|usage| usage.1));
            }
        }
    }

    fn contribution(&self, cluster: &Cluster, scorer: &Scorer, id: NodeId) -> Contribution {
        let Some(node) = cluster.node_if_any(id).filter(|node| node.present) else { return Contribution::default() };
        let class = cluster.class(self.class);
        let copies = if filter::passes_static_filters(class, node) {
            let view = filter::view(cluster, id, self.priority);
            filter::copies_max_ignoring_inter_pod(class, node, &view).clamp(0, COPIES_MAX)
        } else {
            0
        };
        Contribution { copies, usage: scorer.allocated(node) }
    }

    /// How many pods fit into a domain.
    pub(super) fn room(&self, domain: DomainId) -> i64 {
        self.sums[domain.index()].copies
    }

    /// What is allocated in a domain, by scored resource.
    pub(super) fn usage(&self, domain: DomainId) -> &[(i64, i64)] {
        &self.sums[domain.index()].usage
    }
}
