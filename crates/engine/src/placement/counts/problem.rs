//! A placement problem as integers: how many pods of each kind go to each bin.
//!
//! A kind stands for pods that are equal for the problem. A dimension is a resource, the number of pods, or anything
//! else of which a bin has a certain amount and pods use some. Must not depend on the cluster.

/// Pods that are equal for the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// By dimension; not negative.
    pub(crate) amounts: Vec<i64>,
    pub(crate) count: u32,
    pub(crate) subset: usize,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bin {
    /// By dimension.
    pub(crate) free: Vec<i64>,
    /// By kind: how many fit if no others are placed there.
    pub(crate) most: Vec<u32>,
}

/// Of each subset, at least `needs` pods have to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) bins: Vec<Bin>,
    pub(crate) needs: Vec<u32>,
}

/// Counts by bin and kind.
pub(crate) type Counts = Vec<Vec<u32>>;

impl Problem {
    pub(crate) fn dimensions(&self) -> usize {
        self.kinds.first().map_or(0, |kind| kind.amounts.len())
    }

    /// How many pods of a kind fit into an empty bin.
    pub(crate) fn most(&self, bin: usize, kind: usize) -> u32 {
        let Bin { free, most } = &self.bins[bin];
        let Kind { amounts, count, .. } = &self.kinds[kind];
        let by_amount = amounts.iter().zip(free).filter(|(amount, _)| **amount > 0);
        let room = by_amount.map(|(amount, free)| (*free).max(0) / amount).min().unwrap_or(i64::MAX);
        u32::try_from(room).unwrap_or(u32::MAX).min(most[kind]).min(*count)
    }

    /// Whether a bin can hold these counts.
    pub(crate) fn bin_holds(&self, bin: usize, counts: &[u32]) -> bool {
        let Bin { free, most } = &self.bins[bin];
        let used = |dimension: usize| -> i128 {
            let amounts = self.kinds.iter().zip(counts).map(|(kind, count)| (kind.amounts[dimension], *count));
            amounts.map(|(amount, count)| i128::from(amount) * i128::from(count)).sum()
        };
        (0..self.dimensions()).all(|dimension| used(dimension) <= i128::from(free[dimension].max(0)))
            && most.iter().zip(counts).all(|(most, count)| count <= most)
    }

    /// Whether these counts are a solution.
    #[cfg(test)]
    pub(crate) fn is_solved_by(&self, counts: &Counts) -> bool {
        let placed = |kind: usize| counts.iter().map(|counts| counts[kind]).sum::<u32>();
        let mut there = vec![0; self.needs.len()];
        for (kind, Kind { subset, .. }) in self.kinds.iter().enumerate() {
            there[*subset] += placed(kind);
        }
        counts.iter().enumerate().all(|(bin, counts)| self.bin_holds(bin, counts))
            && self.kinds.iter().enumerate().all(|(at, kind)| placed(at) <= kind.count)
            && there.iter().zip(&self.needs).all(|(there, need)| there >= need)
    }
}
