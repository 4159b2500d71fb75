//! Disruption budgets during planning: which victim units they cover, and how many more pods may be evicted.

use std::collections::BTreeMap;

use super::victim_unit::VictimUnit;
use crate::cluster::Cluster;
use crate::cluster::pod::Pod;
use crate::model::budget::BudgetSpec;

/// The remaining allowance of every budget.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    /// How many more pods may be evicted, by budget.
    allowed: Vec<i64>,
    /// For each unit that any budget covers: the budgets of each covered pod.
    covered: BTreeMap<usize, Vec<Vec<usize>>>,
}

fn covers(budget: &BudgetSpec, pod: &Pod) -> bool {
    budget.namespace == pod.id.namespace && budget.counts(&pod.id.name, &pod.labels)
}

impl Budgets {
    /// Reads the budgets that cover these units.
    pub(crate) fn of(cluster: &Cluster, units: &[VictimUnit]) -> Self {
        let mut budgets = Self::default();
        if cluster.budgets.is_empty() {
            return budgets;
        }
        let numbered: Vec<_> = cluster.budgets.values().collect();
        budgets.allowed = numbered.iter().map(|budget| i64::from(budget.allowed).max(0)).collect();
        // Requested evictions that the budgets do not show yet are subtracted.
        let requested = |pod: &&Pod| pod.eviction.is_some() && !pod.terminating;
        for pod in cluster.leaving().map(|pod| cluster.pod(pod)).filter(requested) {
            for (budget, allowed) in numbered.iter().zip(&mut budgets.allowed) {
                *allowed -= i64::from(covers(budget, pod));
            }
        }
        for (number, unit) in units.iter().enumerate() {
            for (pod, _) in &unit.pods {
                let pod = cluster.pod(*pod);
                let covering = numbered.iter().enumerate().filter(|(_, budget)| covers(budget, pod));
                let listed: Vec<usize> = covering.map(|(number, _)| number).collect();
                if !listed.is_empty() {
                    budgets.covered.entry(number).or_default().push(listed);
                }
            }
        }
        budgets
    }

    /// The budgets of some of the units, in this order, after others were evicted.
    pub(crate) fn after(&self, evicted: &[usize], units: &[usize]) -> Self {
        let mut rest = Self { allowed: self.allowed.clone(), covered: BTreeMap::new() };
        for budget in evicted.iter().filter_map(|unit| self.covered.get(unit)).flatten().flatten() {
            rest.allowed[*budget] -= 1;
        }
        for (number, unit) in units.iter().enumerate() {
            if let Some(covered) = self.covered.get(unit) {
                rest.covered.insert(number, covered.clone());
            }
        }
        rest
    }

    /// How many pods of these units would be evicted in violation of a budget.
    pub(crate) fn violations(&self, taken: &[usize]) -> u32 {
        if self.covered.is_empty() { 0 } else { self.violations_by_unit(taken).into_iter().sum() }
    }

    /// Which of these units, evicted in this order, violate a budget.
    pub(crate) fn violating(&self, taken: &[usize]) -> Vec<bool> {
        self.violations_by_unit(taken).into_iter().map(|pods| pods > 0).collect()
    }

    /// How many pods of each unit violate a budget, if the units are evicted in this order.
    fn violations_by_unit(&self, taken: &[usize]) -> Vec<u32> {
        if self.covered.is_empty() {
            return vec![0; taken.len()];
        }
        let mut left = self.allowed.clone();
        let mut violations_by_unit = Vec::new();
        for unit in taken {
            let mut pods = 0;
            for budgets in self.covered.get(unit).into_iter().flatten() {
                let mut violates = false;
                for budget in budgets {
                    left[*budget] -= 1;
                    violates |= left[*budget] < 0;
                }
                pods += u32::from(violates);
            }
            violations_by_unit.push(pods);
        }
        violations_by_unit
    }
}
