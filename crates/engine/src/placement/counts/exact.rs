//! Exact search: one pattern for each bin, the bin with the fewest first. It proves that there is no solution if it
//! completes.
//!
//! Patterns are dropped as soon as they are not enough even if all other bins hold as much as they can, of each
//! requirement and of each dimension. Of equal bins, the later ones take no earlier patterns. The search goes on where
//! it stopped.

use super::Lists;
use super::model::Model;

/// With more patterns in all lists together there is no exact search.
const PATTERNS_MAX: usize = 6000;

/// What the search has shown so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// A choice of counts by bin and kind.
    Found(Vec<u16>),
    None,
    OutOfSteps,
}

/// By bin: the patterns that it may still take.
type Left = Vec<Vec<u32>>;

/// A bin, and the patterns that are still to be tried for it, the last one first.
#[derive(Clone, Debug)]
struct Branch {
    left: Left,
    bin: usize,
    patterns: Vec<u32>,
}

/// The state of the search.
#[derive(Clone, Debug)]
pub(super) struct Exact {
    /// By list and pattern: what it contributes to each requirement, and what it uses of each dimension.
    worth: Vec<Vec<i64>>,
    /// How much is needed of each of these.
    needed: Vec<i64>,
    branches: Vec<Branch>,
    begun: bool,
}

impl Exact {
    /// The search among all patterns; `None` if there are too many, or not all are listed.
    pub(super) fn new(model: &Model, lists: &Lists) -> Option<Self> {
        let all: usize = (0..model.bins()).map(|bin| lists.of(bin).len()).sum();
        if all > PATTERNS_MAX || !lists.patterns.iter().all(|list| list.complete) {
            return None;
        }
        let total = |dimension: usize| model.problem.bins.iter().map(|bin| bin.free[dimension]).sum::<i64>();
        let used = model.slack.iter().enumerate().map(|(dimension, slack)| total(dimension) - slack);
        let needed: Vec<i64> = model.need.iter().copied().chain(used).collect();
        let worth_of = |pattern: &[u16]| {
            let mut worth = vec![0; needed.len()];
            for (kind, count) in pattern.iter().map(|count| i64::from(*count)).enumerate() {
                worth[model.group[kind]] += count;
                for (dimension, amount) in model.problem.kinds[kind].amounts.iter().enumerate() {
                    worth[model.need.len() + dimension] += amount * count;
                }
            }
            worth
        };
        let worth = lists.patterns.iter().map(|list| list.iter().flat_map(worth_of).collect()).collect();
        Some(Self { worth, needed, branches: Vec::new(), begun: false })
    }

    /// Goes on with so many steps, which it counts down.
    pub(super) fn run(&mut self, model: &Model, lists: &Lists, steps: &mut u64) -> Shown {
        let mut choosing = Choosing { model, lists, worth: &self.worth, needed: &self.needed, steps };
        if !std::mem::replace(&mut self.begun, true) {
            let all = (0..model.bins()).map(|bin| (0..lists.of(bin).len() as u32).collect()).collect();
            match choosing.branch(all) {
                Next::Branch(branch) => self.branches.push(branch),
                Next::Found(choice) => return Shown::Found(choice),
                Next::DeadEnd => {}
            }
        }
        while let Some(branch) = self.branches.last_mut() {
            if *choosing.steps == 0 {
                return Shown::OutOfSteps;
            }
            let Some(pattern) = branch.patterns.pop() else {
                self.branches.pop();
                continue;
            };
            let left = choosing.with(branch, pattern);
            match choosing.branch(left) {
                Next::Branch(branch) => self.branches.push(branch),
                Next::Found(choice) => return Shown::Found(choice),
                Next::DeadEnd => {}
            }
        }
        Shown::None
    }
}

/// What follows from a choice.
enum Next {
    Found(Vec<u16>),
    Branch(Branch),
    DeadEnd,
}

struct Choosing<'a> {
    model: &'a Model,
    lists: &'a Lists,
    worth: &'a [Vec<i64>],
    needed: &'a [i64],
    steps: &'a mut u64,
}

impl Choosing<'_> {
    fn worth(&self, bin: usize, pattern: u32) -> &[i64] {
        let width = self.needed.len();
        &self.worth[self.lists.index[bin]][pattern as usize * width..(pattern as usize + 1) * width]
    }

    /// What is left if the bin of a branch takes a pattern.
    fn with(&self, branch: &Branch, pattern: u32) -> Left {
        let mut left = branch.left.clone();
        for (other, left) in left.iter_mut().enumerate() {
            if self.model.like[other] == self.model.like[branch.bin] {
                left.retain(|at| if other < branch.bin { *at <= pattern } else { *at >= pattern });
            }
        }
        left[branch.bin] = vec![pattern];
        left
    }

    /// The next bin to decide on.
    fn branch(&mut self, mut left: Left) -> Next {
        if !self.propagate(&mut left) {
            return Next::DeadEnd;
        }
        let open = (0..left.len()).filter(|bin| left[*bin].len() > 1);
        if let Some(bin) = open.min_by_key(|bin| (left[*bin].len(), *bin)) {
            let patterns = self.scarcest_last(&left, bin);
            return Next::Branch(Branch { left, bin, patterns });
        }
        let mut choice = Vec::with_capacity(left.len() * self.model.kinds);
        let mut sums = vec![0; self.model.kinds];
        for (bin, left) in left.iter().enumerate() {
            let pattern = self.lists.of(bin).get(left[0] as usize);
            super::climb::add(&mut sums, pattern, 1);
            choice.extend_from_slice(pattern);
        }
        let is_enough = self.model.missing(&sums).iter().all(|missing| *missing <= 0);
        if is_enough { Next::Found(choice) } else { Next::DeadEnd }
    }

    /// The patterns of a bin, last those with the most of what is scarce.
    fn scarcest_last(&self, left: &Left, bin: usize) -> Vec<u32> {
        let most = self.most(left);
        let total = |at: usize| most.iter().map(|most| most[at]).sum::<i64>();
        let scarcity: Vec<i64> =
            (0..self.model.need.len()).map(|at| 10_000 / (1 + (total(at) - self.needed[at]).max(0))).collect();
        let rank = |pattern: &u32| -> i64 {
            self.worth(bin, *pattern).iter().zip(&scarcity).map(|(worth, scarcity)| worth * scarcity).sum()
        };
        let mut patterns = left[bin].clone();
        patterns.sort_by_key(|pattern| (rank(pattern), *pattern));
        patterns
    }

    /// By bin: the most of everything that it may hold.
    fn most(&self, left: &Left) -> Vec<Vec<i64>> {
        let of_bin = |(bin, left): (usize, &Vec<u32>)| {
            let mut most = vec![0; self.needed.len()];
            for pattern in left {
                most.iter_mut().zip(self.worth(bin, *pattern)).for_each(|(most, worth)| *most = (*most).max(*worth));
            }
            most
        };
        left.iter().enumerate().map(of_bin).collect()
    }

    /// Drops patterns that are not enough. Returns whether every bin has one left.
    fn propagate(&mut self, left: &mut Left) -> bool {
        loop {
            let all: usize = left.iter().map(Vec::len).sum();
            // The last branch is completed, also if the steps run out.
            *self.steps = self.steps.saturating_sub((all / 4 + 1) as u64);
            let most = self.most(left);
            let spare: Vec<i64> = (0..self.needed.len())
                .map(|at| most.iter().map(|most| most[at]).sum::<i64>() - self.needed[at])
                .collect();
            if spare.iter().any(|spare| *spare < 0) {
                return false;
            }
            let mut dropped = false;
            for (bin, patterns) in left.iter_mut().enumerate() {
                let before = patterns.len();
                patterns.retain(|pattern| {
                    let worth = self.worth(bin, *pattern).iter().zip(&most[bin]).zip(&spare);
                    worth.into_iter().all(|((worth, most), spare)| most - worth <= *spare)
                });
                if patterns.is_empty() {
                    return false;
                }
                dropped |= patterns.len() < before;
            }
            if !dropped {
                return true;
            }
        }
    }
}
