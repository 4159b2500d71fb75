//! Placement: finds a node for each of a set of pods, or proves that there is no placement.
//!
//! This file holds the control flow. `candidates` keeps the nodes of a class best first, `greedy` fills them, `bounds`
//! proves that there cannot be enough room, and `search` looks further for groups of different pods within a limit of
//! steps. The result is one of three: placed, impossible, or not found within the limit.
//!
//! For pods with equal requirements (`requirements`) the first greedy pass is exact: what fits on one node does not
//! depend on the others, so it places as many as possible. With inter-pod terms, `affinity_placement` tells whether
//! that still holds.

mod affinity_placement;
mod bounds;
pub(crate) mod cache;
mod candidates;
mod greedy;
mod independent_ranking;
mod node_equivalence;
mod requirements;
mod search;
mod tournament;

use crate::cluster::transaction::Transaction;
use crate::model::ids::{ClassId, NodeId, PodId};
pub(crate) use affinity_placement::may_gain_feasible_nodes;
use cache::Cache;

/// Pods of one class and subset in one request.
#[derive(Clone, Debug)]
pub(crate) struct Lot {
    pub(crate) class: ClassId,
    pub(crate) subset: usize,
    /// The pods, in the order in which they are placed.
    pub(crate) pods: Vec<PodId>,
    /// The number of further pods that are expected; the placement looks for room for them after the pods.
    pub(crate) expected: usize,
    /// Nodes that rejected these pods.
    pub(crate) avoid: Vec<NodeId>,
}

impl Lot {
    pub(crate) fn len(&self) -> usize {
        self.pods.len() + self.expected
    }

    /// Places the pod at this index, or reserves room for one that is expected.
    fn place(&self, index: usize, node: NodeId, transaction: &mut Transaction<'_>) {
        match self.pods.get(index) {
            Some(pod) => transaction.place(*pod, node),
            None => transaction.occupy(self.class, node),
        }
    }
}

/// A request to place pods together.
#[derive(Clone, Debug)]
pub(crate) struct PlacementRequest {
    pub(crate) lots: Vec<Lot>,
    /// The minimum of each subset: all minimums are met or nothing is placed.
    pub(crate) needs: Vec<u32>,
    /// The priority of the pod or group.
    pub(crate) priority: i32,
}

impl PlacementRequest {
    /// Whether all pods are of one class and no nodes are avoided, so that the first greedy pass is exact.
    pub(crate) fn has_one_class(&self) -> bool {
        self.lots.windows(2).all(|pair| pair[0].class == pair[1].class) && !self.has_avoided_nodes()
    }

    /// Whether some nodes are avoided: then a negative result proves nothing.
    pub(crate) fn has_avoided_nodes(&self) -> bool {
        self.lots.iter().any(|lot| !lot.avoid.is_empty())
    }

    /// Whether there are too few pods to meet the minimums, regardless of room.
    fn has_too_few_pods(&self) -> bool {
        let there = |subset| self.lots.iter().filter(|lot| lot.subset == subset).map(Lot::len).sum::<usize>();
        self.needs.iter().enumerate().any(|(subset, need)| there(subset) < *need as usize)
    }

    pub(crate) fn needs_total(&self) -> u64 {
        self.needs.iter().map(|need| u64::from(*need)).sum()
    }
}

/// The result. For `Placed`, the transaction holds the placement; otherwise it is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The minimums are met, and all other pods that fit are placed, too.
    Placed,
    /// There is no placement.
    Impossible,
    /// No placement was found; there may be one.
    NotFound {
        /// The number of search steps.
        steps: u64,
    },
}

/// Places at least the minimums and all other pods that fit. Without minimums the caller checks whether anything was
/// placed; if nothing was, nothing can be.
pub(crate) fn place(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    steps_max: u64,
) -> Verdict {
    if request.has_too_few_pods() {
        return Verdict::Impossible;
    }
    let order = bounds::hardest_first(transaction, cache, request);
    if greedy::place(transaction, cache, request, &order)
        || affinity_placement::place_in_one_domain(transaction, cache, request, &order)
    {
        return Verdict::Placed;
    }
    let equal = !request.has_avoided_nodes() && requirements::have_equal_requirements(transaction.cluster(), request);
    if (equal && affinity_placement::greedy_is_exact(transaction.cluster(), request))
        || bounds::lacks_capacity(transaction, cache, request)
    {
        return Verdict::Impossible;
    }
    let easiest_first: Vec<usize> = order.iter().rev().copied().collect();
    if greedy::place(transaction, cache, request, &easiest_first)
        || affinity_placement::place_in_one_domain(transaction, cache, request, &easiest_first)
    {
        return Verdict::Placed;
    }
    let outcome = search::search(transaction, cache, request, &order, steps_max);
    if outcome == Verdict::Placed {
        greedy::fill(transaction, cache, request, &order);
    }
    outcome
}

/// Places as many pods as fit, ignoring the minimums. Returns the order of the lots: hardest first.
pub(crate) fn place_what_fits(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
) -> Vec<usize> {
    let order = bounds::hardest_first(transaction, cache, request);
    greedy::fill(transaction, cache, request, &order);
    order
}

/// How many pods of a class would fit, counted up to `enough`.
pub(crate) fn room_for(
    transaction: &Transaction<'_>,
    cache: &mut Cache,
    class: ClassId,
    priority: i32,
    enough: i64,
) -> i64 {
    bounds::room_for(transaction.cluster(), cache, class, priority, &[], enough)
}
