//! Local search: every bin holds the pattern that is best for the current prices, given what the others hold.
//!
//! One bin after the other, in random order, takes the pattern that covers most of what the others do not, by price; of
//! equal ones, any. More than is needed may be covered: that lets others change. When no bin improves, the prices of
//! what is missing rise. When little is missing, a few bins are chosen again together (`repair`).

use super::Lists;
use super::model::Model;
use super::repair;
use super::respond::{self, PRICE_MAX, Wish};
use crate::placement::draws::Draws;

/// The limit of steps for one response.
const RESPONSE_STEPS: u64 = 400;
/// Prices begin at this multiple of the size.
const PRICE_OF_SIZE: i64 = 16;
/// When at most so many pods are missing, few bins are chosen again together.
const REPAIRED_MAX: i64 = 4;

/// The state of the search.
#[derive(Clone, Debug)]
pub(super) struct Climb {
    /// Counts by bin and kind.
    choice: Vec<u16>,
    /// By kind.
    sums: Vec<i64>,
    prices: Vec<i64>,
    draws: Draws,
    /// The first bin that has no pattern yet.
    next: usize,
    /// How often in a row no bin improved.
    stale: usize,
    rises: u64,
    /// The fewest pods that were missing, and the choice then.
    best: (i64, Vec<u16>),
}

impl Climb {
    /// Begins with a choice, if there is one that is not empty.
    pub(super) fn new(model: &Model, choice: Option<Vec<u16>>) -> Self {
        let choice = choice.unwrap_or_else(|| vec![0; model.bins() * model.kinds]);
        let mut sums = vec![0; model.kinds];
        for counts in choice.chunks_exact(model.kinds) {
            add(&mut sums, counts, 1);
        }
        Self {
            best: (i64::MAX, choice.clone()),
            choice,
            sums,
            prices: first_prices(model),
            draws: Draws::new(),
            next: 0,
            stale: 0,
            rises: 0,
        }
    }

    /// Begins again with nothing; the best choice is kept.
    pub(super) fn restart(&mut self, model: &Model) {
        self.choice.fill(0);
        self.sums.fill(0);
        self.prices = first_prices(model);
        (self.next, self.stale, self.rises) = (0, 0, 0);
    }

    pub(super) fn prices(&self) -> &[i64] {
        &self.prices
    }

    /// The best choice so far.
    pub(super) fn best(&self) -> &[u16] {
        &self.best.1
    }

    /// Searches for so many steps. Returns whether nothing is missing; then `best` is a solution.
    pub(super) fn run(&mut self, model: &Model, lists: &Lists, steps: &mut u64) -> bool {
        let bins = model.bins();
        while self.next < bins && *steps > 0 {
            self.respond(model, lists, self.next, steps);
            self.next += 1;
        }
        loop {
            let missing: i64 = model.missing(&self.sums).iter().map(|missing| (*missing).max(0)).sum();
            if missing < self.best.0 {
                self.best = (missing, self.choice.clone());
            }
            if missing == 0 || *steps == 0 || bins == 0 {
                return missing == 0;
            }
            let bin = self.draws.below(bins);
            if self.respond(model, lists, bin, steps) {
                self.stale = 0;
                continue;
            }
            self.stale += 1;
            if self.stale > bins {
                self.stale = 0;
                self.rises += 1;
                let is_repaired = missing <= REPAIRED_MAX
                    && self.rises.is_multiple_of(4)
                    && repair::repair(model, lists, (&mut self.choice, &mut self.sums), &mut self.draws, steps);
                if !is_repaired {
                    self.raise_prices(model);
                }
            }
        }
    }

    /// Takes the best pattern for a bin. Returns whether it is better than the one before.
    fn respond(&mut self, model: &Model, lists: &Lists, bin: usize, steps: &mut u64) -> bool {
        let own = bin * model.kinds..(bin + 1) * model.kinds;
        add(&mut self.sums, &self.choice[own.clone()], -1);
        let mut worth = Worth::new(model, &self.sums);
        let now = worth.of(model, &self.prices, &self.choice[own.clone()]);
        let list = lists.of(bin);
        let mut better = false;
        if list.complete {
            *steps = steps.saturating_sub(list.len() as u64 / 2 + 1);
            let (mut best, mut equals) = (now, 1);
            let mut taken = None;
            for pattern in list.iter() {
                let worth = worth.of(model, &self.prices, pattern);
                if worth > best {
                    (best, equals, taken) = (worth, 1, Some(pattern));
                } else if worth == best {
                    equals += 1;
                    if self.draws.below(equals) == 0 {
                        taken = Some(pattern);
                    }
                }
            }
            better = best > now;
            if let Some(pattern) = taken {
                self.choice[own.clone()].copy_from_slice(pattern);
            }
        } else {
            let prices: Vec<i64> =
                self.prices.iter().map(|price| price + self.draws.below((*price >> 5) as usize + 1) as i64).collect();
            let wish = Wish { model, bin, prices: &prices, wanted: &worth.wanted, needed: &worth.needed };
            let mut response = respond::respond(&wish, RESPONSE_STEPS);
            *steps = steps.saturating_sub(response.steps + 4);
            respond::fill_up(model, bin, &mut response.counts, &mut self.draws);
            let then = worth.of(model, &self.prices, &response.counts);
            if then >= now {
                better = then > now;
                self.choice[own.clone()].copy_from_slice(&response.counts);
            }
        }
        add(&mut self.sums, &self.choice[own], 1);
        better
    }

    /// Raises the prices of what is missing; sometimes all move back towards the first prices.
    fn raise_prices(&mut self, model: &Model) {
        let missing = model.missing(&self.sums);
        for kind in 0..model.kinds {
            if missing[model.group[kind]] > 0 && (!model.all_needed || self.sums[kind] < model.count[kind]) {
                self.prices[kind] += model.size[kind];
            }
        }
        if self.draws.below(64) == 0 || self.prices.iter().any(|price| *price > PRICE_MAX) {
            for (price, first) in self.prices.iter_mut().zip(first_prices(model)) {
                *price -= (*price - first) / 4;
            }
        }
    }
}

/// Kinds of one requirement are worth the same, as any of them meet it.
pub(super) fn first_prices(model: &Model) -> Vec<i64> {
    let smallest = |group: usize| {
        let of_group = (0..model.kinds).filter(|kind| model.group[*kind] == group);
        of_group.map(|kind| model.size[kind]).min().unwrap_or(1)
    };
    model.group.iter().map(|group| smallest(*group) * PRICE_OF_SIZE).collect()
}

pub(super) fn add(sums: &mut [i64], counts: &[u16], sign: i64) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += sign * i64::from(*count);
    }
}

/// What a pattern is worth beside what other bins hold.
struct Worth {
    /// By kind.
    wanted: Vec<i64>,
    /// By requirement.
    needed: Vec<i64>,
    /// A reused buffer.
    left: Vec<i64>,
}

impl Worth {
    fn new(model: &Model, sums: &[i64]) -> Self {
        let wanted = model.count.iter().zip(sums).map(|(count, sum)| (count - sum).max(0)).collect();
        Self { wanted, needed: model.missing(sums), left: Vec::new() }
    }

    fn of(&mut self, model: &Model, prices: &[i64], pattern: &[u16]) -> i64 {
        let covered = pattern.iter().zip(&self.wanted).map(|(count, wanted)| i64::from(*count).min(*wanted));
        if model.all_needed {
            return covered.zip(prices).map(|(covered, price)| covered * price).sum();
        }
        self.left.clone_from(&self.needed);
        let mut worth = 0;
        for (kind, covered) in covered.enumerate() {
            let left = &mut self.left[model.group[kind]];
            let counted = covered.min((*left).max(0));
            *left -= counted;
            worth += counted * prices[kind];
        }
        worth
    }
}
