//! The cost of a plan: a tuple that is compared lexicographically.
//!
//! Every field only grows when a unit is added, so a set never costs less than a subset of it.

use std::collections::BTreeMap;

use super::budgets::Budgets;
use super::victim_unit::{VictimKind, VictimUnit};
use crate::cluster::Cluster;
use crate::cluster::pod::Counted;
use crate::model::Millis;
use crate::model::ids::GroupId;

/// The cost of a plan. Less is better; earlier fields take precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// The number of pods evicted in violation of a disruption budget.
    pub pdb_violations: u32,
    /// The highest priority of the victims; `None` without victims.
    pub highest: Option<i32>,
    /// The sum of the pods' priorities, each relative to the lowest possible one, so that every pod counts.
    pub priorities: i64,
    /// The number of groups that are evicted whole or fall below their minimum.
    pub groups: u32,
    /// The number of evicted pods.
    pub pods: u32,
    /// The sum of the preemption costs that the owners declared.
    pub preemption_cost: i64,
    /// The lost running time.
    pub lost_ms: Millis,
}

/// How lost running time is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The running time of all pods together.
    Sum,
    /// The longest running time among the pods of the highest priority: kube-scheduler's last criterion.
    LongestOfHighest,
}

/// Precomputed data for the cost of any set of units. Must not depend on the cluster, which a transaction may have
/// changed.
#[derive(Clone, Debug)]
pub(crate) struct CostModel {
    units: Vec<UnitCost>,
    /// The minimum and the current number of members, by subset, of gangs that lose single members.
    gangs: BTreeMap<GroupId, Vec<(u32, u32)>>,
    pub(crate) budgets: Budgets,
    loss: Loss,
}

/// The contribution of one unit.
#[derive(Clone, Debug)]
pub(crate) struct UnitCost {
    priority: i32,
    pub(crate) weight: i64,
    /// It is a whole group.
    pub(crate) whole: bool,
    pub(crate) pods: u32,
    pub(crate) preemption_cost: i64,
    pub(crate) lost_ms: Millis,
    /// The cost that its group declares.
    pub(crate) group_cost: i64,
    /// The gang and subset that lose a member.
    member_of: Option<(GroupId, usize)>,
}

impl CostModel {
    pub(crate) fn new(cluster: &Cluster, units: &[VictimUnit], loss: Loss, now: Millis) -> Self {
        let mut gangs = BTreeMap::new();
        let unit_costs = units.iter().map(|unit| {
            let pods = unit.pods.iter().map(|(pod, _)| cluster.pod(*pod));
            let times = pods.clone().map(|pod| pod.started_ms.map_or(0, |started| now.saturating_sub(started)));
            let lost_ms = match loss {
                Loss::Sum => times.fold(0, Millis::saturating_add),
                Loss::LongestOfHighest => times.max().unwrap_or(0),
            };
            let member_of = unit
                .group
                .filter(|_| matches!(unit.kind, VictimKind::Surplus | VictimKind::Needed))
                .zip(subset(cluster, unit));
            if let Some((group, _)) = member_of {
                gangs.entry(group).or_insert_with(|| minimums_and_members(cluster, group));
            }
            UnitCost {
                priority: unit.priority,
                weight: unit.weight(),
                whole: unit.kind == VictimKind::Whole,
                pods: unit.pods.len() as u32,
                preemption_cost: pods.map(|pod| i64::from(pod.preemption_cost)).sum(),
                lost_ms,
                group_cost: i64::from(group_cost(cluster, unit)),
                member_of,
            }
        });
        let unit_costs = unit_costs.collect();
        Self { units: unit_costs, gangs, budgets: Budgets::of(cluster, units), loss }
    }

    /// The units whose eviction violates a disruption budget, if all are evicted.
    pub(crate) fn violating(&self) -> Vec<bool> {
        let all: Vec<usize> = (0..self.units.len()).collect();
        self.budgets.violating(&all)
    }

    /// The model of some of the units, in this order, after others were evicted.
    pub(crate) fn after(&self, evicted: &[usize], units: &[usize]) -> Self {
        Self {
            units: units.iter().map(|unit| self.units[*unit].clone()).collect(),
            gangs: self.gangs.clone(),
            budgets: self.budgets.after(evicted, units),
            loss: self.loss,
        }
    }

    /// The sum of the costs that the groups of these units declare.
    pub(crate) fn group_cost(&self, taken: &[usize]) -> i64 {
        taken.iter().map(|unit| self.units[*unit].group_cost).sum()
    }

    /// Whether any group declares a cost.
    pub(crate) fn has_group_costs(&self) -> bool {
        self.units.iter().any(|unit| unit.group_cost != 0)
    }

    /// The contribution of one unit.
    pub(crate) fn unit(&self, unit: usize) -> &UnitCost {
        &self.units[unit]
    }

    /// The cost of evicting these units.
    pub(crate) fn of(&self, taken: &[usize]) -> Cost {
        let mut cost = Cost { pdb_violations: self.budgets.violations(taken), ..Cost::default() };
        let mut lost: BTreeMap<GroupId, Vec<u32>> = BTreeMap::new();
        for unit_cost in taken.iter().map(|unit| &self.units[*unit]) {
            if self.loss == Loss::LongestOfHighest {
                let of_highest = Some(unit_cost.priority).cmp(&cost.highest);
                cost.lost_ms = match of_highest {
                    std::cmp::Ordering::Greater => unit_cost.lost_ms,
                    std::cmp::Ordering::Equal => cost.lost_ms.max(unit_cost.lost_ms),
                    std::cmp::Ordering::Less => cost.lost_ms,
                };
            } else {
                cost.lost_ms = cost.lost_ms.saturating_add(unit_cost.lost_ms);
            }
            cost.highest = cost.highest.max(Some(unit_cost.priority));
            cost.priorities += unit_cost.weight;
            cost.groups += u32::from(unit_cost.whole);
            cost.pods += unit_cost.pods;
            cost.preemption_cost += unit_cost.preemption_cost;
            if let Some((group, subset)) = unit_cost.member_of {
                let subsets = self.gangs[&group].len();
                lost.entry(group).or_insert_with(|| vec![0; subsets])[subset] += 1;
            }
        }
        cost.groups += lost.iter().filter(|(group, lost)| self.falls_below(**group, lost)).count() as u32;
        cost
    }

    /// Whether a gang that meets its minimum falls below it.
    fn falls_below(&self, group: GroupId, lost: &[u32]) -> bool {
        let subsets = self.gangs[&group].iter().zip(lost);
        subsets.into_iter().any(|((need, has), lost)| has >= need && has.saturating_sub(*lost) < *need)
    }
}

fn group_cost(cluster: &Cluster, unit: &VictimUnit) -> i32 {
    let spec = unit.group.and_then(|group| cluster.group(group).definition.last());
    spec.map_or(0, |spec| spec.preemption_cost)
}

fn subset(cluster: &Cluster, unit: &VictimUnit) -> Option<usize> {
    match cluster.pod(unit.pods.first()?.0).counted {
        Counted::In { subset, .. } => Some(usize::from(subset)),
        _ => None,
    }
}

fn minimums_and_members(cluster: &Cluster, group: GroupId) -> Vec<(u32, u32)> {
    let group = cluster.group(group);
    group.rules.iter().zip(&group.member_counts).map(|(rule, counts)| (rule.min_member, counts.scheduled())).collect()
}
