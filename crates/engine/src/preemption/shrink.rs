//! Makes a set of victims smaller and cheaper: restores unnecessary units, and enumerates all sets within a limit of
//! steps.

use super::cost::{Cost, CostModel};
use super::dry_run::DryRun;
use super::victim_unit::VictimUnit;

/// Restores every unit that is not needed, most important first. `taken` are indices into `units`, which is sorted most
/// important first; all of them are removed.
pub(crate) fn put_back(dry_run: &mut impl DryRun, units: &[VictimUnit], taken: &mut Vec<usize>) {
    taken.sort_unstable();
    put_back_in_order(dry_run, units, taken);
}

/// The same, in the order of `taken`.
pub(crate) fn put_back_in_order(dry_run: &mut impl DryRun, units: &[VictimUnit], taken: &mut Vec<usize>) {
    taken.retain(|unit| {
        dry_run.restore(&units[*unit]);
        if dry_run.fits() {
            return false;
        }
        dry_run.remove(&units[*unit]);
        true
    });
}

/// An enumeration of all sets: exact if it completes, and limited in steps.
pub(crate) struct Search<'a, S> {
    dry_run: &'a mut S,
    units: &'a [VictimUnit],
    /// The units to decide on, in this order.
    order: &'a [usize],
    costs: &'a CostModel,
    steps_left: u64,
    best: &'a mut (Cost, Vec<usize>),
    chosen: Vec<usize>,
}

impl<'a, S: DryRun> Search<'a, S> {
    /// A search for a set cheaper than the best so far. All units are present.
    pub(crate) fn new(
        dry_run: &'a mut S,
        (units, order): (&'a [VictimUnit], &'a [usize]),
        costs: &'a CostModel,
        steps_max: u64,
        best: &'a mut (Cost, Vec<usize>),
    ) -> Self {
        Self { dry_run, units, order, costs, steps_left: steps_max, best, chosen: Vec::new() }
    }

    /// Enumerates all sets. Returns whether it completed: then the best set is optimal.
    pub(crate) fn run(&mut self) -> bool {
        for unit in self.order {
            self.dry_run.remove(&self.units[*unit]);
        }
        let done = self.decide(0);
        for unit in self.order {
            self.dry_run.restore(&self.units[*unit]);
        }
        done
    }

    /// Decides on the units from this position of the order on; all of them are removed before and after the call.
    fn decide(&mut self, place: usize) -> bool {
        let cost = self.costs.of(&self.chosen);
        if cost >= self.best.0 {
            return true;
        }
        let Some(number) = self.order.get(place).copied() else {
            *self.best = (cost, self.chosen.clone());
            return true;
        };
        if self.steps_left == 0 {
            return false;
        }
        self.steps_left -= 1;
        self.dry_run.restore(&self.units[number]);
        let without = !self.dry_run.fits() || self.decide(place + 1);
        self.dry_run.remove(&self.units[number]);
        if !without {
            return false;
        }
        self.chosen.push(number);
        let with = self.decide(place + 1);
        self.chosen.pop();
        with
    }
}
