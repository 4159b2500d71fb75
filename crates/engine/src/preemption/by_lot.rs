//! Sets of victims for groups of different pods: first the cheapest for one kind of them alone, then what the others need
//! beyond that.
//!
//! Often one kind decides, such as workers with all GPUs of a node beside a driver that fits anywhere.

use super::cost::Cost;
use super::dry_run::DryRun;
use super::improve::Improvement;
use super::mixed::Mixed;
use super::plan::PlanInput;
use super::planner::{capacity_for, capacity_is_additive};
use crate::cluster::Cluster;
use crate::placement::cache::Cache;
use crate::placement::{Lot, PlacementRequest};

/// The number of kinds that are tried.
const LOTS_MAX: usize = 2;

/// The cheapest sets for the lots that need the most victims, beginning with the best set for all of them.
pub(super) fn sets(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    input: PlanInput<'_>,
    best: &(Cost, Vec<usize>),
) -> Vec<Vec<usize>> {
    if best.1.is_empty() || best.0.pdb_violations > 0 {
        return Vec::new();
    }
    let pods = request.pods_by_subset();
    let all_needed = |lot: &usize| request.needs[request.lots[*lot].subset] >= pods[request.lots[*lot].subset];
    let mut sets = Vec::new();
    for lot in (0..request.lots.len()).filter(all_needed) {
        let lot = request.lots[lot].clone();
        let needs = vec![lot.len() as u32];
        let alone = PlacementRequest { lots: vec![of_first_subset(lot)], needs, ..request.clone() };
        if !capacity_is_additive(cluster, &alone) {
            continue;
        }
        let mut capacity = capacity_for(cluster, cache, &alone);
        if capacity.missing() > 0 {
            let mut of_lot = best.clone();
            Improvement { capacity: &mut capacity, input }.run(&mut of_lot);
            sets.push(of_lot);
        }
    }
    // The dearest come closest to what all of them need.
    sets.sort_by(|one, other| other.0.cmp(&one.0));
    sets.into_iter().take(LOTS_MAX).map(|(_, taken)| taken).collect()
}

fn of_first_subset(lot: Lot) -> Lot {
    Lot { subset: 0, ..lot }
}

/// Adds units until all pods fit, the least important first, none that costs more than those of the best plan. All of
/// `taken` are removed then. Returns whether they fit.
pub(super) fn complete(mixed: &mut Mixed<'_, '_>, input: PlanInput<'_>, best: &Cost, taken: &mut Vec<usize>) -> bool {
    let PlanInput { units, violating, .. } = input;
    for unit in taken.iter() {
        mixed.remove(&units[*unit]);
    }
    let is_allowed =
        |unit: &usize| Some(units[*unit].priority) <= best.highest && !violating[*unit] && !taken.contains(unit);
    let mut further: Vec<usize> = (0..units.len()).filter(is_allowed).collect();
    let mut together = 1;
    while !mixed.fits() {
        if further.is_empty() {
            return false;
        }
        for unit in further.split_off(further.len().saturating_sub(together)) {
            mixed.remove(&units[unit]);
            taken.push(unit);
        }
        together *= 2;
    }
    true
}
