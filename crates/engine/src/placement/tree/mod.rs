//! Placement of trees of groups: which of them start, and in which domains.
//!
//! Two passes: first the minimums of all groups that the root needs, then, where there is room, further groups as a
//! whole
//! and further pods. No group takes room beyond its minimum before its siblings have theirs. `choice` decides which
//! child
//! groups and which domains are tried, `proof` whether a negative answer is certain.

mod choice;
mod domains;
mod proof;

use super::cache::Cache;
use super::greedy;
use super::request::{LeafState, Lot, PlacementRequest, TreeRequest, Verdict};
use super::within::Within;
use crate::cluster::transaction::Transaction;
use choice::Choice;
pub(crate) use domains::allows;

/// What the passes share.
struct Forest<'f, 'c> {
    transaction: &'f mut Transaction<'c>,
    cache: &'f mut Cache,
    request: &'f PlacementRequest,
    tree: &'f TreeRequest,
    steps_max: u64,
}

/// A part of a tree that is placed: which leaves have what they need, and the domains that they keep to.
#[derive(Clone)]
struct Part {
    /// By subset.
    met: Vec<bool>,
    /// By subset.
    within: Vec<Option<Within>>,
}

/// Places what the root needs, whole groups and pods beyond that as they fit. `Placed` without any pod is no answer:
/// then
/// nothing fits.
pub(super) fn place(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    steps_max: u64,
) -> Verdict {
    let Some(tree) = request.tree.as_deref() else { return Verdict::Impossible };
    let savepoint = transaction.savepoint();
    let mut forest = Forest { transaction, cache, request, tree, steps_max };
    let verdict = forest.place();
    if verdict == Verdict::Placed && transaction.placed_since(savepoint).next().is_none() {
        transaction.rollback_to(savepoint);
        return Verdict::Impossible;
    }
    verdict
}

impl Forest<'_, '_> {
    fn place(&mut self) -> Verdict {
        let savepoint = self.transaction.savepoint();
        let met: Vec<bool> = self.tree.leaves.iter().map(|state| *state == LeafState::Met).collect();
        let mut start = Part { within: vec![self.request.within.clone(); met.len()], met };
        for (subset, leaf) in
            self.tree.tree.clone().leaves().iter().enumerate().filter(|(subset, _)| start.met[*subset])
        {
            start.within[subset] = domains::of_started(self, *leaf, &start);
        }
        let mut part = match Choice::new(self).needed(start) {
            Ok(part) => part,
            Err(verdict) => {
                self.transaction.rollback_to(savepoint);
                return verdict;
            }
        };
        self.place_further_pods(&part, Some(&self.tree.lost));
        self.place_further_groups(&mut part);
        self.place_further_pods(&part, None);
        Verdict::Placed
    }

    /// Places further groups, each as a whole.
    fn place_further_groups(&mut self, part: &mut Part) {
        let tree = self.tree.tree.clone();
        for node in 1..tree.nodes().len() {
            let met = tree.met(|subset| part.met[subset]);
            if met[node] || !met[tree.nodes()[node].parent] || !self.may_start(node) {
                continue;
            }
            let savepoint = self.transaction.savepoint();
            match Choice::new(self).one(node, part.clone()) {
                Some(more) => *part = more,
                None => self.transaction.rollback_to(savepoint),
            }
        }
    }

    /// Whether a group has enough pods, and groups with enough pods, to start.
    fn may_start(&self, node: usize) -> bool {
        self.tree.tree.met(|subset| self.tree.leaves[subset] != LeafState::Incomplete)[node]
    }

    /// Places further pods of what has started, by priority and age: all, or at most so many of each subset.
    fn place_further_pods(&mut self, part: &Part, most: Option<&[u32]>) {
        let complete = self.tree.tree.complete(|subset| part.met[subset]);
        let mut lots: Vec<Lot> = self.lots_of(&complete, part);
        if let Some(most) = most {
            let mut left = most.to_vec();
            for lot in &mut lots {
                lot.pods.truncate(left[lot.subset] as usize);
                left[lot.subset] -= lot.pods.len() as u32;
            }
            lots.retain(|lot| !lot.pods.is_empty());
        }
        let rest = PlacementRequest {
            lots,
            needs: vec![0; self.request.needs.len()],
            topology: None,
            tree: None,
            within: self.request.within.clone(),
            ..self.request.clone()
        };
        let is_placed: Vec<bool> = vec![false; rest.lots.len()];
        greedy::place_rest(self.transaction, self.cache, &rest, is_placed);
    }

    /// The lots of these subsets, in their domains.
    fn lots_of(&self, subsets: &[bool], part: &Part) -> Vec<Lot> {
        let lots = self.request.lots.iter().filter(|lot| subsets[lot.subset]);
        lots.map(|lot| Lot { within: part.within[lot.subset].clone(), ..lot.clone() }).collect()
    }

    /// A request for exactly the minimums of these subsets.
    fn minimums_of(&self, subsets: &[bool], part: &Part) -> PlacementRequest {
        let needs = self.request.needs.iter().zip(subsets).map(|(need, of)| if *of { *need } else { 0 }).collect();
        let all = PlacementRequest {
            lots: self.lots_of(subsets, part),
            needs,
            topology: None,
            tree: None,
            within: self.request.within.clone(),
            needs_only: true,
            ..self.request.clone()
        };
        all.trimmed_to_needs()
    }
}
