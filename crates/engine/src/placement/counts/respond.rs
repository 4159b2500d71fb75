//! The best that one bin can hold for given prices of kinds: branch and bound with a limit of steps.

use std::cmp::Ordering;

use super::model::Model;
use crate::placement::draws::Draws;

/// What is wanted of one bin, and at which prices.
pub(super) struct Wish<'a> {
    pub(super) model: &'a Model,
    pub(super) bin: usize,
    /// By kind; at most [`PRICE_MAX`].
    pub(super) prices: &'a [i64],
    /// By kind: no more is paid for.
    pub(super) wanted: &'a [i64],
    /// By requirement: no more is paid for.
    pub(super) needed: &'a [i64],
}

/// Higher prices could overflow.
pub(super) const PRICE_MAX: i64 = 1 << 38;

/// What a bin holds.
pub(super) struct Response {
    pub(super) counts: Vec<u16>,
    /// No pattern is worth more than this.
    pub(super) worth_max: i64,
    pub(super) steps: u64,
}

/// The best counts for a wish that are found in so many steps; not maximal.
pub(super) fn respond(wish: &Wish<'_>, steps_max: u64) -> Response {
    let Wish { model, bin, prices, wanted, .. } = *wish;
    let mut order: Vec<usize> = (0..model.kinds).filter(|kind| wanted[*kind] > 0 && prices[*kind] > 0).collect();
    order.sort_by(|one, other| by_density(model, prices, *one, *other));
    let mut branch = Branch {
        wish,
        order: &order,
        free: model.problem.bins[bin].free.clone(),
        needed: wish.needed.to_vec(),
        chosen: vec![0; model.kinds],
        best: -1,
        best_counts: vec![0; model.kinds],
        steps: steps_max,
        bound_left: None,
    };
    branch.choose(0, 0, model.room[bin]);
    let worth_max = branch.best.max(branch.bound_left.unwrap_or(0));
    Response { worth_max, steps: steps_max - branch.steps + 1, counts: branch.best_counts }
}

/// The highest price for its size first.
fn by_density(model: &Model, prices: &[i64], one: usize, other: usize) -> Ordering {
    let cross = |kind: usize, by: usize| i128::from(prices[kind]) * i128::from(model.size[by]);
    cross(other, one).cmp(&cross(one, other)).then(one.cmp(&other))
}

struct Branch<'w, 'a> {
    wish: &'w Wish<'a>,
    order: &'w [usize],
    free: Vec<i64>,
    needed: Vec<i64>,
    chosen: Vec<u16>,
    best: i64,
    best_counts: Vec<u16>,
    steps: u64,
    /// The highest bound of what was not searched.
    bound_left: Option<i64>,
}

impl Branch<'_, '_> {
    fn choose(&mut self, at: usize, worth: i64, room: i64) {
        if worth > self.best {
            self.best = worth;
            self.best_counts.copy_from_slice(&self.chosen);
        }
        let Some(kind) = self.order.get(at).copied() else { return };
        let bound = worth.saturating_add(self.bound(at, room));
        if bound <= self.best {
            return;
        }
        if self.steps == 0 {
            self.bound_left = Some(self.bound_left.map_or(bound, |left| left.max(bound)));
            return;
        }
        self.steps -= 1;
        let model = self.wish.model;
        let amounts = &model.problem.kinds[kind].amounts;
        let by_amount = amounts.iter().zip(&self.free).filter(|(amount, _)| **amount > 0);
        let fits = by_amount.map(|(amount, free)| free / amount).min().unwrap_or(i64::MAX);
        let group = model.group[kind];
        let limit = i64::from(model.problem.bins[self.wish.bin].most[kind]).min(i64::from(u16::MAX));
        let most = fits.min(limit).min(self.wish.wanted[kind]).min(self.needed[group].max(0));
        for count in (0..=most).rev() {
            self.chosen[kind] = count as u16;
            self.take(kind, count);
            self.choose(at + 1, worth + self.wish.prices[kind] * count, room - model.size[kind] * count);
            self.take(kind, -count);
        }
        self.chosen[kind] = 0;
    }

    fn take(&mut self, kind: usize, count: i64) {
        let model = self.wish.model;
        self.needed[model.group[kind]] -= count;
        for (free, amount) in self.free.iter_mut().zip(&model.problem.kinds[kind].amounts) {
            *free -= amount * count;
        }
    }

    /// At least what the kinds from this position on are worth: fractional, by size alone.
    fn bound(&self, at: usize, mut room: i64) -> i64 {
        let mut bound = 0_i64;
        for kind in &self.order[at..] {
            let (price, size, wanted) = (self.wish.prices[*kind], self.wish.model.size[*kind], self.wish.wanted[*kind]);
            let all = size.saturating_mul(wanted);
            if all > room {
                let part = i128::from(price) * i128::from(room.max(0)) / i128::from(size) + 1;
                return bound.saturating_add(i64::try_from(part).unwrap_or(i64::MAX));
            }
            bound = bound.saturating_add(price.saturating_mul(wanted));
            room -= all;
        }
        bound
    }
}

/// Adds kinds, beginning with any, until none fits.
pub(super) fn fill_up(model: &Model, bin: usize, counts: &mut [u16], draws: &mut Draws) {
    let mut free = model.problem.bins[bin].free.clone();
    let take = |free: &mut [i64], kind: usize, count: i64| {
        for (free, amount) in free.iter_mut().zip(&model.problem.kinds[kind].amounts) {
            *free -= amount * count;
        }
    };
    for (kind, count) in counts.iter().enumerate() {
        take(&mut free, kind, i64::from(*count));
    }
    let begin = draws.below(model.kinds);
    for kind in (begin..model.kinds).chain(0..begin) {
        let limit = i64::from(model.problem.most(bin, kind)).min(i64::from(u16::MAX)) - i64::from(counts[kind]);
        let by_amount = model.problem.kinds[kind].amounts.iter().zip(&free).filter(|(amount, _)| **amount > 0);
        let more = by_amount.map(|(amount, free)| free / amount).min().unwrap_or(i64::MAX).min(limit);
        if more > 0 {
            counts[kind] += more as u16;
            take(&mut free, kind, more);
        }
    }
}
