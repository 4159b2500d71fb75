//! Exact search: one pattern for each bin, by depth first with remembered dead ends. It proves that there is no solution
//! if it completes.
//!
//! Equal bins take their patterns in order, and what the later bins could hold at most ends a branch early.

use std::collections::BTreeSet;

use super::Lists;
use super::model::Model;

/// More dead ends are not remembered.
const DEAD_ENDS_MAX: usize = 20_000;

/// What the search has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Exact {
    /// A choice of counts by bin and kind.
    Found(Vec<u16>),
    None,
    OutOfSteps,
}

/// Searches with so many steps; all lists are complete.
pub(super) fn search(model: &Model, lists: &Lists, steps: &mut u64) -> Exact {
    let mut bins: Vec<usize> = (0..model.bins()).collect();
    bins.sort_by_key(|bin| (lists.of(*bin).len(), model.like[*bin], *bin));
    let mut choosing = Choosing {
        model,
        lists,
        most: Vec::new(),
        picked: vec![0; bins.len()],
        bins,
        dead_ends: BTreeSet::new(),
        steps,
        complete: true,
    };
    choosing.most = choosing.most_from_each();
    if choosing.choose(0, &vec![0; model.kinds]) {
        let mut choice = vec![0; model.bins() * model.kinds];
        for (bin, picked) in choosing.bins.iter().zip(&choosing.picked) {
            choice[bin * model.kinds..(bin + 1) * model.kinds].copy_from_slice(lists.of(*bin).get(*picked));
        }
        return Exact::Found(choice);
    }
    if choosing.complete { Exact::None } else { Exact::OutOfSteps }
}

struct Choosing<'a> {
    model: &'a Model,
    lists: &'a Lists,
    /// In the order in which they are decided.
    bins: Vec<usize>,
    /// By position: the most that the bins from there on could hold of each kind, and of all sizes.
    most: Vec<(Vec<i64>, i64)>,
    picked: Vec<usize>,
    /// Positions with sums, and the first pattern that the bin may take, below which there is no solution.
    dead_ends: BTreeSet<(usize, usize, Vec<i64>)>,
    steps: &'a mut u64,
    complete: bool,
}

impl Choosing<'_> {
    fn most_from_each(&self) -> Vec<(Vec<i64>, i64)> {
        let mut most = vec![(vec![0; self.model.kinds], 0)];
        for bin in self.bins.iter().rev() {
            let (mut by_kind, mut all) = most.last().cloned().unwrap_or_default();
            for pattern in [self.lists.most_of(*bin)] {
                by_kind.iter_mut().zip(&pattern.0).for_each(|(most, count)| *most += count);
                all += pattern.1;
            }
            most.push((by_kind, all));
        }
        most.reverse();
        most
    }

    /// Whether there is a solution with these sums of the bins before.
    fn choose(&mut self, at: usize, sums: &[i64]) -> bool {
        if !self.may_suffice(at, sums) {
            return false;
        }
        let Some(bin) = self.bins.get(at).copied() else { return true };
        let follows = at > 0 && self.model.like[self.bins[at - 1]] == self.model.like[bin];
        let first = if follows { self.picked[at - 1] } else { 0 };
        let key = (at, first, sums.to_vec());
        if self.dead_ends.contains(&key) {
            return false;
        }
        for place in first..self.lists.of(bin).len() {
            if *self.steps == 0 {
                self.complete = false;
                return false;
            }
            *self.steps -= 1;
            let pattern = self.lists.of(bin).get(place);
            let next = sums.iter().zip(pattern).zip(&self.model.count);
            let next: Vec<i64> = next.map(|((sum, more), count)| (sum + i64::from(*more)).min(*count)).collect();
            self.picked[at] = place;
            if self.choose(at + 1, &next) {
                return true;
            }
            if !self.complete {
                return false;
            }
        }
        if self.dead_ends.len() < DEAD_ENDS_MAX {
            self.dead_ends.insert(key);
        }
        false
    }

    /// Whether the bins from this position on could hold what is missing, each kind on its own and by size.
    fn may_suffice(&self, at: usize, sums: &[i64]) -> bool {
        let model = self.model;
        let (by_kind, all) = &self.most[at];
        let mut missing = model.missing(sums);
        if model.all_needed {
            let size = |kind: usize| (model.count[kind] - sums[kind]) * model.size[kind];
            if (0..model.kinds).map(size).sum::<i64>() > *all {
                return false;
            }
        }
        for kind in 0..model.kinds {
            missing[model.group[kind]] -= by_kind[kind].min(model.count[kind] - sums[kind]);
        }
        missing.iter().all(|missing| *missing <= 0)
    }
}
