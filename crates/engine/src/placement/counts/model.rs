//! A problem with what is derived from it: reduced numbers, equal bins, and what is needed of which kinds.

use std::collections::BTreeMap;

use super::problem::{Bin, Counts, Problem};
use super::sums::Sums;

/// The size of all bins together.
const WHOLE: i128 = 1 << 20;

/// A reduced problem.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// Only with bins that can hold anything, and amounts without common divisors.
    pub(super) problem: Problem,
    /// By dimension of the original problem: by what its amounts were divided; zero if it limits nothing.
    pub(super) divisors: Vec<i64>,
    /// The number of bins of the original problem, and which of them are left.
    bins_before: usize,
    kept: Vec<usize>,
    pub(super) kinds: usize,
    /// By kind: how many there are.
    pub(super) count: Vec<i64>,
    /// By kind: the requirement that it counts for.
    pub(super) group: Vec<usize>,
    /// By requirement: how many pods it needs.
    pub(super) need: Vec<i64>,
    /// Every requirement is for all pods of one kind.
    pub(super) all_needed: bool,
    /// By kind: the sum of its shares of what all bins have; positive.
    pub(super) size: Vec<i64>,
    /// By bin: at least the sum of sizes that fit.
    pub(super) room: Vec<i64>,
    /// By dimension: how much of it all bins together can leave unused.
    pub(super) slack: Vec<i64>,
    /// Kinds, largest first.
    pub(super) order: Vec<usize>,
    /// By bin: the first one that is equal to it.
    pub(super) like: Vec<usize>,
    pub(super) sums: Sums,
}

impl Model {
    pub(super) fn new(problem: &Problem) -> Self {
        let bins_before = problem.bins.len();
        let (mut problem, kept, divisors) = reduced(problem);
        let dimensions = problem.dimensions();
        let any_order: Vec<usize> = (0..problem.kinds.len()).collect();
        let sums = Sums::new(&problem, &any_order, &[]);
        for bin in &mut problem.bins {
            for (dimension, free) in bin.free.iter_mut().enumerate() {
                *free = sums.largest(dimension, *free);
            }
        }
        let total: Vec<i128> = (0..dimensions)
            .map(|dimension| problem.bins.iter().map(|bin| i128::from(bin.free[dimension])).sum::<i128>().max(1))
            .collect();
        let share = |amounts: &[i64]| -> i64 {
            let shares = amounts.iter().zip(&total).map(|(amount, total)| i128::from(*amount) * WHOLE / total);
            shares.sum::<i128>().clamp(1, i128::from(i32::MAX)) as i64
        };
        let size: Vec<i64> = problem.kinds.iter().map(|kind| share(&kind.amounts)).collect();
        // What is lost by rounding down is added.
        let lost = dimensions as i64 + problem.kinds.iter().map(|kind| i64::from(kind.count)).sum::<i64>();
        let room = problem.bins.iter().map(|bin| share(&bin.free).saturating_add(lost)).collect();
        let mut order = any_order;
        order.sort_by_key(|kind| std::cmp::Reverse(size[*kind]));
        let (group, need, all_needed) = requirements(&problem);
        let mut model = Self {
            divisors,
            bins_before,
            kept,
            kinds: problem.kinds.len(),
            count: problem.kinds.iter().map(|kind| i64::from(kind.count)).collect(),
            group,
            need,
            all_needed,
            size,
            room,
            slack: Vec::new(),
            sums,
            order,
            like: equal_bins(&problem.bins),
            problem,
        };
        model.slack = (0..dimensions).map(|dimension| model.slack_of(dimension)).collect();
        model.sums = Sums::new(&model.problem, &model.order, &model.slack);
        model
    }

    pub(super) fn bins(&self) -> usize {
        self.problem.bins.len()
    }

    /// Bins may leave anything unused.
    pub(super) fn ignore_slack(&mut self) {
        self.slack.fill(i64::MAX);
        self.sums = Sums::new(&self.problem, &self.order, &[]);
    }

    /// What all bins have of a dimension beyond the least that the needed pods use.
    fn slack_of(&self, dimension: usize) -> i64 {
        let free: i128 = self.problem.bins.iter().map(|bin| i128::from(bin.free[dimension])).sum();
        let least = self.least(|kind| self.problem.kinds[kind].amounts[dimension]);
        (free - i128::from(least)).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// The least that the needed pods use together, by the amount of each kind.
    pub(super) fn least(&self, amount: impl Fn(usize) -> i64) -> i64 {
        let mut least = 0_i128;
        for (group, need) in self.need.iter().enumerate() {
            let of_group = (0..self.kinds).filter(|kind| self.group[*kind] == group);
            let mut amounts: Vec<(i64, i64)> = of_group.map(|kind| (amount(kind), self.count[kind])).collect();
            amounts.sort_unstable();
            let mut left = *need;
            for (amount, count) in amounts {
                let taken = left.min(count);
                least += i128::from(amount) * i128::from(taken);
                left -= taken;
            }
        }
        i64::try_from(least).unwrap_or(i64::MAX)
    }

    /// What a choice of counts for each bin lacks, by requirement, if `sums` are its counts of each kind.
    pub(super) fn missing(&self, sums: &[i64]) -> Vec<i64> {
        let mut missing = self.need.clone();
        for (kind, sum) in sums.iter().enumerate() {
            missing[self.group[kind]] -= (*sum).min(self.count[kind]);
        }
        missing
    }

    /// Counts for the original bins, without pods that do not exist.
    pub(super) fn counts(&self, choice: &[u16]) -> Counts {
        let mut left = self.count.clone();
        let mut counts = vec![vec![0; self.kinds]; self.bins_before];
        for (bin, chosen) in choice.chunks_exact(self.kinds).enumerate() {
            for (kind, count) in chosen.iter().enumerate() {
                let taken = i64::from(*count).min(left[kind]);
                left[kind] -= taken;
                counts[self.kept[bin]][kind] = taken as u32;
            }
        }
        counts
    }

    /// Counts for the reduced bins.
    pub(super) fn choice_of(&self, counts: &Counts) -> Vec<u16> {
        let kept = self.kept.iter().flat_map(|bin| &counts[*bin]);
        kept.map(|count| u16::try_from(*count).unwrap_or(u16::MAX)).collect()
    }
}

/// The problem without bins that hold nothing, dimensions that limit nothing, and common divisors.
fn reduced(problem: &Problem) -> (Problem, Vec<usize>, Vec<i64>) {
    let kinds = problem.kinds.len();
    let mut kept = Vec::new();
    let mut bins = Vec::new();
    for at in 0..problem.bins.len() {
        let most: Vec<u32> = (0..kinds).map(|kind| problem.most(at, kind)).collect();
        if most.iter().any(|most| *most > 0) {
            kept.push(at);
            bins.push(Bin { free: problem.bins[at].free.iter().map(|free| (*free).max(0)).collect(), most });
        }
    }
    let mut reduced = Problem { kinds: problem.kinds.clone(), bins, needs: problem.needs.clone() };
    let mut divisors = vec![0; problem.dimensions()];
    for dimension in (0..problem.dimensions()).rev() {
        let at_most = |bin: &Bin| -> i128 {
            let uses = problem.kinds.iter().zip(&bin.most);
            uses.map(|(kind, most)| i128::from(kind.amounts[dimension]) * i128::from(*most)).sum()
        };
        let limits = reduced.bins.iter().any(|bin| at_most(bin) > i128::from(bin.free[dimension]));
        let divisor = problem.kinds.iter().fold(0, |divisor, kind| common_divisor(divisor, kind.amounts[dimension]));
        divisors[dimension] = if limits { divisor } else { 0 };
        if divisors[dimension] == 0 {
            reduced.kinds.iter_mut().for_each(|kind| _ = kind.amounts.remove(dimension));
            reduced.bins.iter_mut().for_each(|bin| _ = bin.free.remove(dimension));
        } else {
            reduced.kinds.iter_mut().for_each(|kind| kind.amounts[dimension] /= divisor);
            reduced.bins.iter_mut().for_each(|bin| bin.free[dimension] /= divisor);
        }
    }
    (reduced, kept, divisors)
}

fn common_divisor(one: i64, other: i64) -> i64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

/// By kind its requirement, the number of pods of each requirement, and whether each is for all pods of one kind.
fn requirements(problem: &Problem) -> (Vec<usize>, Vec<i64>, bool) {
    let mut there = vec![(0_u32, 0); problem.needs.len()];
    for kind in &problem.kinds {
        there[kind.subset].0 += kind.count;
        there[kind.subset].1 += 1;
    }
    let (mut group, mut need, mut all_needed) = (Vec::new(), Vec::new(), true);
    let mut shared: BTreeMap<usize, usize> = BTreeMap::new();
    for kind in &problem.kinds {
        let (pods, kinds) = there[kind.subset];
        let needed = problem.needs[kind.subset];
        if needed >= pods || kinds == 1 {
            all_needed &= needed >= pods;
            group.push(need.len());
            need.push(i64::from(kind.count.min(needed)));
        } else {
            all_needed = false;
            group.push(*shared.entry(kind.subset).or_insert_with(|| {
                need.push(i64::from(needed));
                need.len() - 1
            }));
        }
    }
    (group, need, all_needed)
}

fn equal_bins(bins: &[Bin]) -> Vec<usize> {
    let mut first: BTreeMap<&Bin, usize> = BTreeMap::new();
    bins.iter().enumerate().map(|(at, bin)| *first.entry(bin).or_insert(at)).collect()
}
