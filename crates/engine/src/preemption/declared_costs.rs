//! The costs that groups declare: exchanges victims for others of the same namespace and priority whose groups declare
//! less, even if more pods are evicted.
//!
//! A declared cost only decides which units of its own namespace are evicted. If it was a part of the cost of a plan, a
//! tenant could shift evictions to the equals of its groups in other namespaces.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::cost::CostModel;
use super::dry_run::DryRun;
use super::shrink;
use super::victim_unit::VictimUnit;
use crate::cluster::Cluster;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// The maximum number of units that are exchanged.
    exchanges: usize,
    /// The maximum number of units that are considered in exchange for one.
    others: usize,
}

impl Effort {
    /// Where a dry run only adds up capacity.
    pub(crate) const CHEAP: Self = Self { exchanges: 32, others: 64 };
    /// Where a dry run places the whole group.
    pub(crate) const DEAR: Self = Self { exchanges: 4, others: 8 };
}

/// A set of victims, to be exchanged.
pub(crate) struct Exchange<'e> {
    pub(crate) units: &'e [VictimUnit],
    pub(crate) costs: &'e CostModel,
    /// The units that may be evicted.
    pub(crate) allowed: &'e [usize],
    /// The number of the namespace of each unit.
    pub(crate) namespaces: &'e [usize],
    pub(crate) effort: Effort,
}

impl Exchange<'_> {
    /// Exchanges units of `taken`; all units are present. Returns whether any was.
    pub(crate) fn run_from(&self, dry_run: &mut impl DryRun, taken: &mut Vec<usize>) -> bool {
        for unit in taken.iter() {
            dry_run.remove(&self.units[*unit]);
        }
        self.run(dry_run, taken)
    }

    /// Exchanges units of `taken`, all of which are removed before and after the call. Returns whether any was.
    pub(crate) fn run(&self, dry_run: &mut impl DryRun, taken: &mut Vec<usize>) -> bool {
        let mut dearest = taken.clone();
        dearest.sort_unstable_by_key(|unit| (Reverse(self.costs.unit(*unit).group_cost), *unit));
        let mut exchanged = false;
        for unit in dearest.into_iter().take(self.effort.exchanges) {
            exchanged |= self.exchange(dry_run, taken, unit);
        }
        if exchanged && taken.len() <= self.effort.others {
            // Those that were taken first may not be needed any more.
            shrink::put_back(dry_run, self.units, taken);
        }
        exchanged
    }

    /// Exchanges one unit for others that declare less in total, if that is enough.
    fn exchange(&self, dry_run: &mut impl DryRun, taken: &mut Vec<usize>, unit: usize) -> bool {
        let mut others: Vec<usize> =
            self.allowed.iter().copied().filter(|other| self.is_cheaper(*other, unit)).collect();
        if others.is_empty() {
            // As on most nodes: nothing else is worth its time.
            return false;
        }
        let all_taken: BTreeSet<usize> = taken.iter().copied().collect();
        others.retain(|other| !all_taken.contains(other));
        others.sort_by_key(|other| self.costs.unit(*other).group_cost);
        others.truncate(self.effort.others);
        if others.is_empty() {
            return false;
        }
        dry_run.restore(&self.units[unit]);
        for other in &others {
            dry_run.remove(&self.units[*other]);
        }
        if dry_run.fits() {
            // Those that declare the most stay first, then the most important ones.
            others.sort_unstable_by_key(|other| (Reverse(self.costs.unit(*other).group_cost), *other));
            shrink::put_back_in_order(dry_run, self.units, &mut others);
            let kept = taken.iter().copied().filter(|kept| *kept != unit);
            let changed: Vec<usize> = kept.chain(others.iter().copied()).collect();
            if self.is_better(&changed, taken) {
                *taken = changed;
                return true;
            }
        }
        for other in &others {
            dry_run.restore(&self.units[*other]);
        }
        dry_run.remove(&self.units[unit]);
        false
    }

    fn is_cheaper(&self, other: usize, unit: usize) -> bool {
        self.namespaces[other] == self.namespaces[unit]
            && self.units[other].priority == self.units[unit].priority
            && self.costs.unit(other).group_cost < self.costs.unit(unit).group_cost
    }

    /// Whether less is declared for these victims, and no more budgets are violated.
    fn is_better(&self, changed: &[usize], taken: &[usize]) -> bool {
        self.costs.group_cost(changed) < self.costs.group_cost(taken)
            && self.costs.budgets.violations(changed) <= self.costs.budgets.violations(taken)
    }
}

/// Numbers the namespaces of units.
pub(crate) fn namespaces(cluster: &Cluster, units: &[VictimUnit]) -> Vec<usize> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let number = |unit: &VictimUnit| {
        let name = unit.pods.first().map_or("", |(pod, _)| cluster.pod(*pod).id.namespace.as_str());
        let next = numbers.len();
        *numbers.entry(name).or_insert(next)
    };
    units.iter().map(number).collect()
}
