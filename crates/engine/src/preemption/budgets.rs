//! Disruption budgets as a plan sees them: which units they cover, and how many pods may still go.

use std::collections::BTreeMap;

use super::unit::Unit;
use crate::cluster::Cluster;
use crate::cluster::pod::Pod;
use crate::model::budget::BudgetSpec;

/// What is left of every budget.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    /// How many more pods may go, by budget.
    allowed: Vec<i64>,
    /// For each unit that any budget covers: the budgets of each such pod of it.
    covered: BTreeMap<usize, Vec<Vec<usize>>>,
}

fn covers(budget: &BudgetSpec, pod: &Pod) -> bool {
    budget.namespace == pod.id.namespace && budget.counts(&pod.id.name, &pod.labels)
}

impl Budgets {
    /// Reads the budgets that cover these units.
    pub(crate) fn of(cluster: &Cluster, units: &[Unit]) -> Self {
        let mut budgets = Self::default();
        if cluster.budgets.is_empty() {
            return budgets;
        }
        let numbered: Vec<_> = cluster.budgets.values().collect();
        budgets.allowed = numbered.iter().map(|budget| i64::from(budget.allowed).max(0)).collect();
        // What is ordered and does not show yet will be counted: it is spent.
        let ordered = |pod: &&Pod| pod.eviction.is_some() && !pod.terminating;
        for pod in cluster.leaving().map(|pod| cluster.pod(pod)).filter(ordered) {
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

    /// How many pods of these units would be taken against a budget.
    pub(crate) fn broken(&self, taken: &[usize]) -> u32 {
        if self.covered.is_empty() { 0 } else { self.too_many(taken).into_iter().sum() }
    }

    /// Which of these units, taken in this order, are taken against a budget.
    pub(crate) fn breaking(&self, taken: &[usize]) -> Vec<bool> {
        self.too_many(taken).into_iter().map(|pods| pods > 0).collect()
    }

    /// How many pods of each unit are too many, if the units are taken in this order.
    fn too_many(&self, taken: &[usize]) -> Vec<u32> {
        if self.covered.is_empty() {
            return vec![0; taken.len()];
        }
        let mut left = self.allowed.clone();
        let mut too_many = Vec::new();
        for unit in taken {
            let mut pods = 0;
            for budgets in self.covered.get(unit).into_iter().flatten() {
                let mut against = false;
                for budget in budgets {
                    left[*budget] -= 1;
                    against |= left[*budget] < 0;
                }
                pods += u32::from(against);
            }
            too_many.push(pods);
        }
        too_many
    }
}
