//! Filling nodes in order of score: first what is needed, then whatever else fits.

use super::cache::Cache;
use super::{Lot, Want};
use crate::cluster::trial::Trial;

/// Places the needs, lot by lot in this order, and then fills up. Undoes everything if the needs cannot be met.
pub(super) fn place(trial: &mut Trial<'_>, cache: &mut Cache, want: &Want, order: &[usize]) -> bool {
    let mark = trial.mark();
    let mut missing: Vec<usize> = want.needs.iter().map(|need| *need as usize).collect();
    let mut left = units_left(want);
    let mut full = vec![false; want.lots.len()];
    for position in order {
        let lot = &want.lots[*position];
        let asked = missing[lot.subset].min(lot.len());
        let placed = place_lot(trial, cache, want, lot, 0, asked);
        missing[lot.subset] -= placed;
        left[lot.subset] -= lot.len();
        full[*position] = placed < asked;
        // Stop as soon as the minimum is out of reach.
        if missing[lot.subset] > left[lot.subset] {
            trial.undo_to(mark);
            return false;
        }
    }
    for position in order {
        // A lot that already had no room for what was needed has none for more.
        if !full[*position] {
            fill_lot(trial, cache, want, &want.lots[*position]);
        }
    }
    true
}

/// Places whatever fits, lot by lot in this order.
pub(super) fn fill(trial: &mut Trial<'_>, cache: &mut Cache, want: &Want, order: &[usize]) {
    for position in order {
        fill_lot(trial, cache, want, &want.lots[*position]);
    }
}

fn fill_lot(trial: &mut Trial<'_>, cache: &mut Cache, want: &Want, lot: &Lot) {
    let done = lot.pods.iter().take_while(|pod| trial.cluster().pod(**pod).state.node().is_some()).count();
    place_lot(trial, cache, want, lot, done, lot.pods.len());
}

/// Places units `from..to` of a lot while there is room, and says how many found a place.
fn place_lot(trial: &mut Trial<'_>, cache: &mut Cache, want: &Want, lot: &Lot, from: usize, to: usize) -> usize {
    for unit in from..to {
        let candidates = cache.candidates(trial.cluster(), lot.class, want.priority);
        let Some(node) = candidates.best_except(&lot.avoid) else { return unit - from };
        lot.place(unit, node, trial);
    }
    to.saturating_sub(from)
}

fn units_left(want: &Want) -> Vec<usize> {
    let mut left = vec![0; want.needs.len()];
    for lot in &want.lots {
        left[lot.subset] += lot.len();
    }
    left
}
