//! Looking for a cheaper plan for like pods: what frees the most for the least, then swaps.
//!
//! It stays within the priority that has to be touched, and first without whoever would be taken against a budget.

use std::cmp::Reverse;

use super::Offer;
use super::bundle::Greedy;
use super::cost::{Cost, Prices};
use super::floor::Floor;
use super::rooms::Rooms;
use super::shrink;
use super::stage::Stage;

/// How many units of a plan are tried to be swapped for cheaper ones, at most.
const SWAPS_MAX: usize = 64;
/// How many pods all swaps together may look at.
const SWAP_PODS_MAX: usize = 40_000;

/// What it takes to look for a cheaper plan. All units are there, and are there again afterwards.
pub(crate) struct Improvement<'i, 'a> {
    pub(crate) rooms: &'i mut Rooms<'a>,
    pub(crate) offer: Offer<'i>,
}

/// Keeps the cheaper of two plans; the earlier one among equals.
pub(crate) fn keep_cheaper(best: &mut (Cost, Vec<usize>), prices: &Prices, taken: Vec<usize>) {
    let cost = prices.of(&taken);
    if cost < best.0 {
        *best = (cost, taken);
    }
}

impl<'a> Improvement<'_, 'a> {
    /// The cheapest plan, if it is found and proven at once.
    pub(crate) fn outright(&mut self) -> Option<(Cost, Vec<usize>)> {
        let highest = self.highest_to_touch();
        let taken = self.without(&[], highest, true, None)?;
        let best = (self.offer.prices.of(&taken), taken);
        self.is_least(&best, &mut None).then_some(best)
    }

    /// The lowest priority such that there is room if nobody up to it were there; the highest there is if all below
    /// that are not enough, and none if there is room now.
    fn highest_to_touch(&mut self) -> Option<i32> {
        if self.rooms.fits() {
            return None;
        }
        let mut highest = self.offer.units.first().map(|unit| unit.priority);
        let lower = self.offer.units.partition_point(|unit| Some(unit.priority) == highest);
        let mut away = self.offer.units.len();
        for alike in self.offer.units[lower..].chunk_by(|one, two| one.priority == two.priority).rev() {
            away -= alike.len();
            for unit in alike {
                self.rooms.remove(unit);
            }
            if self.rooms.fits() {
                highest = alike.first().map(|unit| unit.priority);
                break;
            }
        }
        for unit in &self.offer.units[away..] {
            self.rooms.restore(unit);
        }
        highest
    }

    /// Makes the best cheaper if it can. Says whether it is proven to be the cheapest.
    pub(crate) fn run(&mut self, best: &mut (Cost, Vec<usize>)) -> bool {
        let mut floor = None;
        if self.is_least(best, &mut floor) {
            return true;
        }
        for mild in [true, false] {
            if let Some(taken) = self.without(&[], best.0.highest, mild, None) {
                keep_cheaper(best, self.offer.prices, taken);
            }
            if best.0.against_budgets == 0 {
                break;
            }
        }
        if self.is_least(best, &mut floor) {
            return true;
        }
        self.swap(best);
        self.is_least(best, &mut floor)
    }

    /// Whether the best is proven to be the cheapest. What is found out on the way is kept.
    fn is_least(&mut self, best: &(Cost, Vec<usize>), floor: &mut Option<Floor<'a>>) -> bool {
        let (cost, taken) = best;
        if taken.is_empty() {
            return true;
        }
        let known = floor.take().filter(|floor| floor.is_for(cost));
        let floor = floor.insert(known.unwrap_or_else(|| Floor::new(self.rooms, self.offer.units, cost.highest)));
        floor.is_least(self.rooms, self.offer.units, self.offer.prices, cost)
    }

    /// Tries to do without each of the dearest units, with others in its place.
    fn swap(&mut self, best: &mut (Cost, Vec<usize>)) {
        let mut dearest = best.1.clone();
        dearest.sort_by_key(|unit| (Reverse(self.offer.units[*unit].weight()), *unit));
        let pods: usize = self.offer.units.iter().map(|unit| unit.pods.len()).sum();
        for unit in dearest.into_iter().take(SWAPS_MAX.min(SWAP_PODS_MAX / pods.max(1))) {
            if !best.1.contains(&unit) {
                continue;
            }
            let kept: Vec<usize> = best.1.iter().copied().filter(|kept| *kept != unit).collect();
            if let Some(taken) = self.without(&kept, best.0.highest, true, Some(unit)) {
                keep_cheaper(best, self.offer.prices, taken);
            }
        }
    }

    /// A plan that takes `first` and whatever else is best, but not `spared`, nobody above `highest` and, if it is to be
    /// mild, nobody against a budget.
    fn without(
        &mut self,
        first: &[usize],
        highest: Option<i32>,
        mild: bool,
        spared: Option<usize>,
    ) -> Option<Vec<usize>> {
        let mut is_taken = vec![false; self.offer.units.len()];
        for unit in first {
            is_taken[*unit] = true;
            self.rooms.remove(&self.offer.units[*unit]);
        }
        let Offer { units, breaking, prices } = self.offer;
        let allowed = (0..units.len()).filter(|unit| {
            !is_taken[*unit]
                && Some(*unit) != spared
                && Some(units[*unit].priority) <= highest
                && !(mild && breaking[*unit])
        });
        let more = Greedy::new(self.rooms, (units, prices), allowed).run();
        let mut taken: Vec<usize> = first.iter().copied().chain(more.iter().flatten().copied()).collect();
        if more.is_some() {
            shrink::put_back(self.rooms, units, &mut taken);
        }
        for unit in &taken {
            self.rooms.restore(&units[*unit]);
        }
        more.map(|_| taken)
    }
}
