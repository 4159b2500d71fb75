//! Placement: finds a node for each of a set of pods, or proves that there is no placement.
//!
//! This file holds the control flow. `candidates` keeps the nodes of a class best first, `greedy` fills them, and `bounds`
//! proves that there cannot be enough room. For groups of different pods, `counted` makes a problem of counts of the
//! request, for which `counts` searches, and `searches` keeps what is not completed; where that is not enough, because
//! nodes depend on each other, `search` looks pod by pod. All of it is limited in steps. The result is one of three:
//! placed, impossible, or not found within the limit. For a group with a topology constraint, `domains` chooses the
//! domains to keep to; for a tree of groups, `tree` chooses which of them start.
//!
//! For pods with equal requirements (`requirements`) the first greedy pass is exact: what fits on one node does not
//! depend on the others, so it places as many as possible. With inter-pod terms, `affinity_placement` tells whether
//! that still holds.

mod affinity_placement;
mod bounds;
pub(crate) mod cache;
mod candidate;
mod candidates;
mod counted;
mod counts;
pub(crate) mod domains;
pub(crate) mod draws;
mod greedy;
mod independent_ranking;
mod node_equivalence;
mod request;
mod requirements;
mod search;
mod searches;
mod tournament;
pub(crate) mod tree;
mod within;

use crate::cluster::transaction::Transaction;
use crate::model::ids::ClassId;
pub(crate) use affinity_placement::{gains_feasible_nodes_by, may_gain_feasible_nodes};
use cache::Cache;
pub(crate) use counted::{Scarcity, scarcity};
pub(crate) use request::{LeafState, Lot, PlacementRequest, TopologyRequest, TreeRequest, Verdict};
pub(crate) use within::Within;

/// Places at least the minimums and all other pods that fit. Without minimums the caller checks whether anything was
/// placed; if nothing was, nothing can be.
pub(crate) fn place(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    steps_max: u64,
) -> Verdict {
    if request.tree.is_none() && request.has_too_few_pods() {
        return Verdict::Impossible;
    }
    let verdict = if request.tree.is_some() {
        tree::place(transaction, cache, request, steps_max)
    } else if request.topology.is_some() {
        domains::place(transaction, cache, request, steps_max)
    } else {
        place_freely(transaction, cache, request, steps_max)
    };
    match verdict {
        // Nodes that are left out of this attempt may do in the next one.
        Verdict::Impossible if request.has_avoided_nodes() => Verdict::NotFound { steps: 0 },
        verdict => verdict,
    }
}

/// The same without regard to a topology constraint.
fn place_freely(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    steps_max: u64,
) -> Verdict {
    let order = bounds::hardest_first(transaction, cache, request);
    if greedy::place(transaction, cache, request, &order)
        || affinity_placement::place_in_one_domain(transaction, cache, request, &order)
    {
        return Verdict::Placed;
    }
    let equal = !request.has_avoided_nodes()
        && request.has_one_domain()
        && requirements::have_equal_requirements(transaction.cluster(), request);
    let exact = equal && !bounds::shares_limits_of_storage(transaction.cluster(), request);
    if (exact && affinity_placement::greedy_is_exact(transaction.cluster(), request))
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
    if let Some(verdict) = counted::search(transaction, cache, request, steps_max) {
        return verdict;
    }
    let outcome = search::search(transaction, cache, request, &order, steps_max);
    if outcome == Verdict::Placed {
        greedy::place_rest(transaction, cache, request, vec![false; request.lots.len()]);
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
    if request.has_structure() {
        let any = PlacementRequest { needs: vec![0; request.needs.len()], ..request.clone() };
        domains::place(transaction, cache, &any, 0);
    } else {
        greedy::fill(transaction, cache, request, &order);
    }
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
    bounds::room_for(transaction.cluster(), cache, class, priority, (&[], None), enough)
}
