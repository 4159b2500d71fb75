//! Patterns: what one bin can hold, as counts by kind.
//!
//! Only maximal ones, to which nothing can be added, are listed, and only those that leave no more unused than all bins
//! together may: every solution can be extended to such patterns.

use super::model::Model;

/// More patterns of one bin are not listed.
const PATTERNS_MAX: usize = 3000;

/// Patterns of one bin.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    counts: Vec<u16>,
    kinds: usize,
    /// There are no others.
    pub(super) complete: bool,
}

impl Patterns {
    pub(super) fn len(&self) -> usize {
        self.counts.len() / self.kinds.max(1)
    }

    pub(super) fn get(&self, at: usize) -> &[u16] {
        &self.counts[at * self.kinds..(at + 1) * self.kinds]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u16]> {
        self.counts.chunks_exact(self.kinds.max(1))
    }
}

/// The patterns of a bin, in at most so many steps.
pub(super) fn list(model: &Model, bin: usize, steps: &mut u64) -> Patterns {
    let limits: Vec<i64> =
        (0..model.kinds).map(|kind| i64::from(model.problem.most(bin, kind)).min(i64::from(u16::MAX))).collect();
    let dimensions = model.problem.dimensions();
    let mut later = vec![vec![0_i64; dimensions]; model.kinds + 1];
    for at in (0..model.kinds).rev() {
        let kind = model.order[at];
        let amounts = model.problem.kinds[kind].amounts.iter().map(|amount| limits[kind].saturating_mul(*amount));
        later[at] = later[at + 1].iter().zip(amounts).map(|(rest, amount)| rest.saturating_add(amount)).collect();
    }
    let mut listing = Listing {
        model,
        limits: &limits,
        later: &later,
        free: model.problem.bins[bin].free.clone(),
        chosen: vec![0; model.kinds],
        found: Patterns { counts: Vec::new(), kinds: model.kinds, complete: true },
        steps,
    };
    listing.choose(0);
    listing.found
}

struct Listing<'a> {
    model: &'a Model,
    /// By kind: the most that fit alone.
    limits: &'a [i64],
    /// By position of the order and dimension: the most that the later kinds could use.
    later: &'a [Vec<i64>],
    free: Vec<i64>,
    chosen: Vec<u16>,
    found: Patterns,
    steps: &'a mut u64,
}

impl Listing<'_> {
    /// Chooses how many pods of the kind at this position, and of all later ones.
    fn choose(&mut self, at: usize) {
        if *self.steps == 0 || self.found.len() >= PATTERNS_MAX {
            self.found.complete = false;
            return;
        }
        *self.steps -= 1;
        let left_over = self.free.iter().zip(&self.later[at]).map(|(free, later)| free - later);
        if left_over.zip(&self.model.slack).any(|(left_over, slack)| left_over > *slack)
            || !self.model.sums.may_fill(at, &self.free, &self.model.slack)
        {
            return;
        }
        let Some(kind) = self.model.order.get(at).copied() else {
            if self.is_maximal() {
                self.found.counts.extend(&self.chosen);
            }
            return;
        };
        for count in (0..=self.room(kind).min(self.limits[kind])).rev() {
            self.chosen[kind] = count as u16;
            self.take(kind, count);
            self.choose(at + 1);
            self.take(kind, -count);
            if !self.found.complete {
                return;
            }
        }
    }

    fn is_maximal(&self) -> bool {
        (0..self.model.kinds).all(|kind| i64::from(self.chosen[kind]) >= self.limits[kind] || self.room(kind) < 1)
    }

    /// How many more pods of a kind fit by amounts.
    fn room(&self, kind: usize) -> i64 {
        let amounts = self.model.problem.kinds[kind].amounts.iter().zip(&self.free);
        amounts.filter(|(amount, _)| **amount > 0).map(|(amount, free)| free / amount).min().unwrap_or(i64::MAX)
    }

    fn take(&mut self, kind: usize, count: i64) {
        for (free, amount) in self.free.iter_mut().zip(&self.model.problem.kinds[kind].amounts) {
            *free -= amount * count;
        }
    }
}
