//! Greedy placement in order of score: first the minimums, then all other pods that fit, by priority and age.

use std::cmp::Reverse;

use super::cache::Cache;
use super::request::{Lot, PlacementRequest};
use crate::cluster::transaction::Transaction;

/// Places the minimums, lot by lot in this order, and then all other pods that fit. Undoes everything if the minimums
/// cannot be met.
pub(super) fn place(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    order: &[usize],
) -> bool {
    let savepoint = transaction.savepoint();
    let mut missing: Vec<usize> = request.needs.iter().map(|need| *need as usize).collect();
    let mut left = pods_left(request);
    let mut full = vec![false; request.lots.len()];
    for position in order {
        let lot = &request.lots[*position];
        let required = missing[lot.subset].min(lot.len());
        let placed = place_lot(transaction, cache, request, lot, 0, required);
        missing[lot.subset] -= placed;
        left[lot.subset] -= lot.len();
        full[*position] = placed < required;
        // Stop as soon as the minimum is out of reach.
        if missing[lot.subset] > left[lot.subset] {
            transaction.rollback_to(savepoint);
            return false;
        }
    }
    place_rest(transaction, cache, request, full);
    true
}

/// Places all further pods that fit, by priority and then by age. A lot that is `full` has no room for more.
pub(super) fn place_rest(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    mut full: Vec<bool>,
) {
    if request.needs_only {
        return;
    }
    let mut rest = Vec::new();
    for (position, lot) in request.lots.iter().enumerate().filter(|(position, _)| !full[*position]) {
        for (index, pod) in lot.pods.iter().enumerate().skip(placed_count(transaction, lot)) {
            let member = transaction.cluster().pod(*pod);
            rest.push((Reverse(member.priority), member.created_ms, *pod, position, index));
        }
    }
    if request.lots.len() > 1 {
        rest.sort_unstable();
    }
    for (_, _, _, position, index) in rest {
        if !full[position] {
            full[position] = place_lot(transaction, cache, request, &request.lots[position], index, index + 1) == 0;
        }
    }
}

/// How many pods of a lot are placed: they are placed in order.
fn placed_count(transaction: &Transaction<'_>, lot: &Lot) -> usize {
    lot.pods.iter().take_while(|pod| transaction.cluster().pod(**pod).state.node().is_some()).count()
}

/// Places all pods that fit, lot by lot in this order.
pub(super) fn fill(transaction: &mut Transaction<'_>, cache: &mut Cache, request: &PlacementRequest, order: &[usize]) {
    for position in order {
        fill_lot(transaction, cache, request, &request.lots[*position]);
    }
}

fn fill_lot(transaction: &mut Transaction<'_>, cache: &mut Cache, request: &PlacementRequest, lot: &Lot) {
    let done = placed_count(transaction, lot);
    place_lot(transaction, cache, request, lot, done, lot.len());
}

/// Places the pods `from..to` of a lot while there is room, and returns how many were placed.
fn place_lot(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    lot: &Lot,
    from: usize,
    to: usize,
) -> usize {
    for index in from..to {
        let (cluster, shape) = (transaction.cluster(), (lot.class, request.priority));
        let best = match request.within_of(lot) {
            Some(within) => cache.best_within(cluster, shape, within, &lot.avoid),
            None => cache.candidates(cluster, shape.0, shape.1).best_except(&lot.avoid),
        };
        let Some(node) = best else { return index - from };
        lot.place(index, node, transaction);
    }
    to.saturating_sub(from)
}

fn pods_left(request: &PlacementRequest) -> Vec<usize> {
    let mut left = vec![0; request.needs.len()];
    for lot in &request.lots {
        left[lot.subset] += lot.len();
    }
    left
}
