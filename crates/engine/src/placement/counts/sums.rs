//! Which sums of an amount some kinds can make: what a bin must leave unused in any case.

use super::problem::Problem;

/// Larger sums are not listed.
const SUM_MAX: i64 = 1 << 14;
/// With more pods of one kind in a bin, there are too many sums of several dimensions.
const MIXED_COUNT_MAX: u32 = 256;
/// Sums of several dimensions together are counted up to this number, and from zero again.
const MIXED: usize = 1 << 14;

/// The sums that can be made by the kinds from each position of an order on, by dimension.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// By dimension and position, as bits; empty for a dimension with larger numbers.
    by_dimension: Vec<Vec<Vec<u64>>>,
    /// By dimension of which nothing may be left unused: its factor in the mixed sums; zero for the others.
    factors: Vec<usize>,
    /// By position: the mixed sums, as bits; empty if there are not two such dimensions.
    mixed: Vec<Vec<u64>>,
}

impl Sums {
    pub(super) fn new(problem: &Problem, order: &[usize], slack: &[i64]) -> Self {
        let by_dimension = (0..problem.dimensions()).map(|dimension| by_position(problem, order, dimension)).collect();
        let mut factor = 1;
        let factors: Vec<usize> = slack
            .iter()
            .map(|slack| {
                factor = factor * 2731 % MIXED;
                if *slack == 0 { factor } else { 0 }
            })
            .collect();
        let tight = factors.iter().filter(|factor| **factor > 0).count();
        let mixed = if tight > 1 { mixed_by_position(problem, order, &factors) } else { Vec::new() };
        Self { by_dimension, factors, mixed }
    }

    /// The largest sum up to a limit.
    pub(super) fn largest(&self, dimension: usize, limit: i64) -> i64 {
        let Some(all) = self.by_dimension[dimension].first() else { return limit };
        let (word, bit) = (limit as usize / 64, limit as usize % 64);
        let up_to = |at: usize| if at == word { all[at] & (u64::MAX >> (63 - bit)) } else { all[at] };
        let highest = (0..=word).rev().find(|at| up_to(*at) != 0).unwrap_or(0);
        (highest * 64 + up_to(highest).checked_ilog2().unwrap_or(0) as usize) as i64
    }

    /// Whether the kinds from a position on may use all of what is free except the slack, in each dimension.
    pub(super) fn may_fill(&self, position: usize, free: &[i64], slack: &[i64]) -> bool {
        let alone = self.by_dimension.iter().zip(free).zip(slack).all(|((sums, free), slack)| {
            slack >= free
                || sums.get(position).is_none_or(|sums| any_bit(sums, (free - slack) as usize, *free as usize))
        });
        alone
            && self.mixed.get(position).is_none_or(|sums| {
                let sum = mixed(free, &self.factors);
                sums[sum / 64] & (1 << (sum % 64)) != 0
            })
    }
}

fn mixed(amounts: &[i64], factors: &[usize]) -> usize {
    let part = |(amount, factor): (&i64, &usize)| (*amount as usize % MIXED) * factor;
    amounts.iter().zip(factors).map(part).sum::<usize>() % MIXED
}

fn mixed_by_position(problem: &Problem, order: &[usize], factors: &[usize]) -> Vec<Vec<u64>> {
    let most = |at: usize| problem.bins.iter().map(|bin| bin.most[at]).max().unwrap_or(0).min(problem.kinds[at].count);
    if order.iter().any(|at| most(*at) > MIXED_COUNT_MAX) {
        return Vec::new();
    }
    let mut sums = vec![0_u64; MIXED / 64];
    sums[0] = 1;
    let mut all = vec![sums.clone()];
    for at in order.iter().rev() {
        let most = most(*at);
        let one = mixed(&problem.kinds[*at].amounts, factors);
        let before = sums.clone();
        for count in 1..=most as usize {
            add_rotated(&mut sums, &before, one * count % MIXED);
        }
        all.push(sums.clone());
    }
    all.reverse();
    all
}

/// Adds every one of these sums increased by this.
fn add_rotated(sums: &mut [u64], others: &[u64], by: usize) {
    let (words, rest) = (by / 64, by % 64);
    for (at, sum) in sums.iter_mut().enumerate() {
        let from = (at + others.len() - words) % others.len();
        *sum |= others[from] << rest;
        if rest > 0 {
            *sum |= others[(from + others.len() - 1) % others.len()] >> (64 - rest);
        }
    }
}

fn by_position(problem: &Problem, order: &[usize], dimension: usize) -> Vec<Vec<u64>> {
    let largest = problem.bins.iter().map(|bin| bin.free[dimension].max(0)).max().unwrap_or(0);
    if largest > SUM_MAX {
        return Vec::new();
    }
    let bits = largest as usize + 1;
    let mut sums = vec![0_u64; bits.div_ceil(64)];
    sums[0] = 1;
    let mut all = vec![sums.clone()];
    for kind in order.iter().rev().map(|kind| &problem.kinds[*kind]) {
        let amount = usize::try_from(kind.amounts[dimension]).unwrap_or(0).min(bits);
        let mut left = bits.checked_div(amount).map_or(0, |most| most.min(kind.count as usize));
        let mut together = 1;
        while left > 0 {
            let taken = left.min(together);
            add_shifted(&mut sums, amount * taken);
            left -= taken;
            together *= 2;
        }
        all.push(sums.clone());
    }
    all.reverse();
    all
}

/// Adds every sum increased by this.
fn add_shifted(sums: &mut [u64], by: usize) {
    let (words, rest) = (by / 64, by % 64);
    for at in (words..sums.len()).rev() {
        let mut moved = sums[at - words] << rest;
        if rest > 0 && at > words {
            moved |= sums[at - words - 1] >> (64 - rest);
        }
        sums[at] |= moved;
    }
}

/// Whether any of the bits from `low` to `high` is set.
fn any_bit(bits: &[u64], low: usize, high: usize) -> bool {
    (low / 64..=high / 64).any(|at| {
        let mut word = bits[at];
        if at == low / 64 {
            word &= u64::MAX << (low % 64);
        }
        if at == high / 64 {
            word &= u64::MAX >> (63 - high % 64);
        }
        word != 0
    })
}

#[cfg(test)]
mod tests {
    use super::super::problem::{Bin, Kind};
    use super::*;

    #[test]
    fn sums_are_those_of_the_later_kinds() {
        let kind = |amount, count| Kind { amounts: vec![amount], count, subset: 0 };
        let bins = vec![Bin { free: vec![200], most: vec![9, 9] }];
        let problem = Problem { kinds: vec![kind(70, 2), kind(3, 1)], bins, needs: vec![3] };
        let sums = Sums::new(&problem, &[0, 1], &[0]);
        let made = |position| -> Vec<i64> { (0..=200).filter(|sum| sums.may_fill(position, &[*sum], &[0])).collect() };
        assert_eq!(made(0), [0, 3, 70, 73, 140, 143]);
        assert_eq!((made(1), made(2)), (vec![0, 3], vec![0]));
        assert_eq!((sums.largest(0, 139), sums.largest(0, 140), sums.largest(0, 200)), (73, 140, 143));
        assert!(sums.may_fill(0, &[139], &[66]) && !sums.may_fill(0, &[139], &[65]));
    }
}
