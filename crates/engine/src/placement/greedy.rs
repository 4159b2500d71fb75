//! Greedy placement in order of score: first the minimums, then all other pods that fit.

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
    for position in order {
        // A lot without room for its minimum has no room for more.
        if !full[*position] {
            fill_lot(transaction, cache, request, &request.lots[*position]);
        }
    }
    true
}

/// Places all pods that fit, lot by lot in this order.
pub(super) fn fill(transaction: &mut Transaction<'_>, cache: &mut Cache, request: &PlacementRequest, order: &[usize]) {
    for position in order {
        fill_lot(transaction, cache, request, &request.lots[*position]);
    }
}

fn fill_lot(transaction: &mut Transaction<'_>, cache: &mut Cache, request: &PlacementRequest, lot: &Lot) {
    let done = lot.pods.iter().take_while(|pod| transaction.cluster().pod(**pod).state.node().is_some()).count();
    place_lot(transaction, cache, request, lot, done, lot.pods.len());
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
        let candidates = cache.candidates(transaction.cluster(), lot.class, request.priority);
        let Some(node) = candidates.best_except(&lot.avoid) else { return index - from };
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
