//! Making a set of units smaller and cheaper: put back what is not needed, and look through all sets where that is
//! within the budget.

use super::cost::{Cost, Prices};
use super::stage::Stage;
use super::unit::Unit;

/// Puts back every unit that is not needed, the most important first. `taken` are places in `units`, which is sorted
/// most important first; all of them are away.
pub(crate) fn put_back(stage: &mut impl Stage, units: &[Unit], taken: &mut Vec<usize>) {
    taken.sort_unstable();
    taken.retain(|unit| {
        stage.restore(&units[*unit]);
        if stage.fits() {
            return false;
        }
        stage.remove(&units[*unit]);
        true
    });
}

/// A search through all sets: exact if it comes to its end, and limited in steps.
pub(crate) struct Search<'a, S> {
    stage: &'a mut S,
    units: &'a [Unit],
    /// The units that are decided about, in this order.
    order: &'a [usize],
    prices: &'a Prices,
    steps_left: u64,
    best: &'a mut (Cost, Vec<usize>),
    chosen: Vec<usize>,
}

impl<'a, S: Stage> Search<'a, S> {
    /// A search for something cheaper than the best so far. All units are there.
    pub(crate) fn new(
        stage: &'a mut S,
        (units, order): (&'a [Unit], &'a [usize]),
        prices: &'a Prices,
        steps_max: u64,
        best: &'a mut (Cost, Vec<usize>),
    ) -> Self {
        Self { stage, units, order, prices, steps_left: steps_max, best, chosen: Vec::new() }
    }

    /// Looks through all sets. Says whether it came to its end: then the best is the cheapest there is.
    pub(crate) fn run(&mut self) -> bool {
        for unit in self.order {
            self.stage.remove(&self.units[*unit]);
        }
        let done = self.decide(0);
        for unit in self.order {
            self.stage.restore(&self.units[*unit]);
        }
        done
    }

    /// Decides about the units from this place in the order on; all of them are away, and stay away.
    fn decide(&mut self, place: usize) -> bool {
        let cost = self.prices.of(&self.chosen);
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
        self.stage.restore(&self.units[number]);
        let without = !self.stage.fits() || self.decide(place + 1);
        self.stage.remove(&self.units[number]);
        if !without {
            return false;
        }
        self.chosen.push(number);
        let with = self.decide(place + 1);
        self.chosen.pop();
        with
    }
}
