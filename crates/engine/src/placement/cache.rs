//! Cache of candidates by class, kept between scheduling cycles within a memory limit.

use std::sync::Arc;

use super::candidates::Candidates;
use super::domains::{Rooms, Tree};
use super::searches::Searches;
use super::within::{BestWithin, Within};
use crate::cluster::Cluster;
use crate::cluster::journal::Touch;
use crate::model::ids::{ClassId, NodeId};
use crate::score::Scorer;

/// The most node entries kept over all classes: 40 to 100 MB.
const ENTRIES_MAX: usize = 1_000_000;
/// The number of classes kept regardless of the size of the cluster.
const CLASSES_MIN: usize = 8;
/// The maximum number of classes: the list is scanned from its end.
const CLASSES_MAX: usize = 256;
/// The maximum number of trees of domains: users can name any labels.
const TREES_MAX: usize = 16;
/// The maximum number of domains of which the order of nodes is kept.
const ORDERS_MAX: usize = 16;

/// Candidates by class, least recently used first.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// By profile.
    scorers: Vec<Scorer>,
    kept: Vec<Candidates>,
    /// With the journal position up to which each is current, least recently used first.
    trees: Vec<(Arc<Tree>, u64)>,
    /// Least recently used first.
    rooms: Vec<Rooms>,
    /// Least recently used first.
    orders: Vec<BestWithin>,
    pub(crate) searches: Searches,
}

impl Cache {
    pub(crate) fn new(scorers: Vec<Scorer>) -> Self {
        Self {
            scorers,
            kept: Vec::new(),
            trees: Vec::new(),
            rooms: Vec::new(),
            orders: Vec::new(),
            searches: Searches::new(),
        }
    }

    /// The candidates of a class, up to date.
    pub(crate) fn candidates(&mut self, cluster: &Cluster, class: ClassId, priority: i32) -> &mut Candidates {
        match self.kept.iter().rposition(|kept| kept.serves(class, priority)) {
            Some(place) if place + 1 == self.kept.len() => {}
            Some(place) => {
                let used = self.kept.remove(place);
                self.kept.push(used);
            }
            None => {
                self.make_room(cluster);
                let candidates = Candidates::new(cluster, self.scorer(cluster, class), class, priority);
                self.kept.push(candidates);
            }
        }
        let scorer = &self.scorers[usize::from(cluster.class(class).spec.profile)];
        let last = self.kept.last_mut().expect("just inserted");
        last.refresh(cluster, scorer);
        last
    }

    /// The nodes that pass the static filters of a class, all or within a domain; those of a domain are in no order.
    pub(crate) fn feasible_nodes<'c>(
        &'c mut self,
        cluster: &Cluster,
        (class, priority): (ClassId, i32),
        within: Option<&'c Within>,
    ) -> impl Iterator<Item = NodeId> + 'c {
        let candidates: &Candidates = self.candidates(cluster, class, priority);
        let all = within.is_none().then(|| candidates.statically_feasible_nodes());
        let inside = within.into_iter().flat_map(Within::nodes).copied();
        all.into_iter().flatten().chain(inside.filter(|node| candidates.is_statically_feasible(*node)))
    }

    /// The scorer of the class's profile.
    pub(crate) fn scorer(&self, cluster: &Cluster, class: ClassId) -> &Scorer {
        &self.scorers[usize::from(cluster.class(class).spec.profile)]
    }

    /// The tree of the domains of these labels, up to date.
    pub(crate) fn tree(&mut self, cluster: &Cluster, labels: &[String]) -> Arc<Tree> {
        let end = cluster.journal.end();
        let known = self.trees.iter().position(|(tree, _)| tree.has_labels(labels)).map(|at| self.trees.remove(at));
        if let Some((tree, seen)) = known {
            let moved = |touch: &Touch| touch.itself && !tree.is_current_for(cluster, touch.node);
            if cluster.journal.since(seen).is_some_and(|touches| !touches.iter().any(moved)) {
                self.trees.push((tree.clone(), end));
                return tree;
            }
            self.forget_tree(&tree);
        }
        if self.trees.len() >= TREES_MAX {
            let (oldest, _) = self.trees.remove(0);
            self.forget_tree(&oldest);
        }
        let tree = Arc::new(Tree::new(cluster, labels));
        self.trees.push((tree.clone(), end));
        tree
    }

    fn forget_tree(&mut self, tree: &Arc<Tree>) {
        self.rooms.retain(|rooms| !rooms.is_of(tree));
        self.orders.retain(|order| !order.is_of(tree));
    }

    /// How many pods of a class fit into each domain of a tree, up to date.
    pub(crate) fn rooms(&mut self, cluster: &Cluster, tree: &Arc<Tree>, shape: (ClassId, i32)) -> &Rooms {
        let scorer = &self.scorers[usize::from(cluster.class(shape.0).spec.profile)];
        let rooms = if let Some(place) = self.rooms.iter().rposition(|rooms| rooms.serves(tree, shape)) {
            self.rooms.remove(place)
        } else {
            let entries: usize = self.rooms.iter().map(Rooms::len).sum();
            let full = entries + cluster.node_slots() > ENTRIES_MAX || self.rooms.len() >= CLASSES_MAX;
            if full && self.rooms.len() >= CLASSES_MIN {
                self.rooms.remove(0);
            }
            Rooms::new(cluster, scorer, tree, shape)
        };
        self.rooms.push(rooms);
        let last = self.rooms.last_mut().expect("just inserted");
        last.refresh(cluster, scorer);
        last
    }

    /// The best node for one more pod of a class within a domain, except these.
    pub(crate) fn best_within(
        &mut self,
        cluster: &Cluster,
        shape: (ClassId, i32),
        within: &Within,
        except: &[NodeId],
    ) -> Option<NodeId> {
        self.candidates(cluster, shape.0, shape.1);
        let candidates = self.kept.last().expect("just inserted");
        let order = if let Some(place) = self.orders.iter().rposition(|order| order.serves(within, shape)) {
            self.orders.remove(place)
        } else {
            if self.orders.len() >= ORDERS_MAX {
                self.orders.remove(0);
            }
            BestWithin::new(cluster, candidates, within, shape)
        };
        self.orders.push(order);
        let last = self.orders.last_mut().expect("just inserted");
        last.refresh(cluster, candidates);
        last.best_except(candidates, except)
    }

    /// Drops a class.
    pub(crate) fn forget(&mut self, class: ClassId) {
        self.kept.retain(|kept| kept.class() != class);
        self.rooms.retain(|rooms| rooms.class() != class);
        self.orders.retain(|order| order.class() != class);
    }

    fn make_room(&mut self, cluster: &Cluster) {
        let entries: usize = self.kept.iter().map(Candidates::len).sum();
        let full = entries + cluster.node_slots() > ENTRIES_MAX || self.kept.len() >= CLASSES_MAX;
        if full && self.kept.len() >= CLASSES_MIN {
            self.kept.remove(0);
        }
    }
}
