//! What a plan costs, as a tuple that is compared from its first part on.
//!
//! Every part only grows when a unit is added, so a set is never cheaper than a part of it.

use std::collections::BTreeMap;

use super::budgets::Budgets;
use super::unit::{Kind, Unit};
use crate::cluster::Cluster;
use crate::cluster::pod::Counted;
use crate::model::Millis;
use crate::model::ids::GroupId;

/// What a plan costs. Less is better, from the first field on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Pods that are taken against a disruption budget.
    pub against_budgets: u32,
    /// The highest priority that is hurt; none is least.
    pub highest: Option<i32>,
    /// The sum of priorities over pods, each counted from the lowest there is, so that every pod counts.
    pub priorities: i64,
    /// Groups that are taken whole or fall below their minimum.
    pub groups: u32,
    /// Pods that are taken.
    pub pods: u32,
    /// What the owners say that it would cost them.
    pub asked: i64,
    /// The time that is lost.
    pub lost_ms: Millis,
}

/// How lost time is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The running time of all pods together.
    Sum,
    /// The longest running time among the pods of the highest priority: kube-scheduler's last rule.
    LongestOfHighest,
}

/// What it takes to tell what any set of some units costs. It must not look at the cluster again: that may be on trial.
#[derive(Clone, Debug)]
pub(crate) struct Prices {
    units: Vec<Price>,
    /// What the gangs that lose single members need and have, by subset.
    gangs: BTreeMap<GroupId, Vec<(u32, u32)>>,
    pub(crate) budgets: Budgets,
    loss: Loss,
}

/// What one unit counts for.
#[derive(Clone, Debug)]
pub(crate) struct Price {
    priority: i32,
    pub(crate) weight: i64,
    /// It is a whole group.
    pub(crate) whole: bool,
    pub(crate) pods: u32,
    pub(crate) asked: i64,
    pub(crate) lost_ms: Millis,
    /// The gang that loses a member, and of which subset.
    member_of: Option<(GroupId, usize)>,
}

impl Prices {
    pub(crate) fn new(cluster: &Cluster, units: &[Unit], loss: Loss, now: Millis) -> Self {
        let mut gangs = BTreeMap::new();
        let priced = units.iter().map(|unit| {
            let pods = unit.pods.iter().map(|(pod, _)| cluster.pod(*pod));
            let times = pods.clone().map(|pod| pod.started_ms.map_or(0, |started| now.saturating_sub(started)));
            let lost_ms = match loss {
                Loss::Sum => times.fold(0, Millis::saturating_add),
                Loss::LongestOfHighest => times.max().unwrap_or(0),
            };
            let member_of =
                unit.group.filter(|_| matches!(unit.kind, Kind::Surplus | Kind::Needed)).zip(subset(cluster, unit));
            if let Some((group, _)) = member_of {
                gangs.entry(group).or_insert_with(|| needs_and_has(cluster, group));
            }
            Price {
                priority: unit.priority,
                weight: unit.weight(),
                whole: unit.kind == Kind::Whole,
                pods: unit.pods.len() as u32,
                asked: pods.map(|pod| i64::from(pod.preemption_cost)).sum(),
                lost_ms,
                member_of,
            }
        });
        let priced = priced.collect();
        Self { units: priced, gangs, budgets: Budgets::of(cluster, units), loss }
    }

    /// What one unit counts for.
    pub(crate) fn unit(&self, unit: usize) -> &Price {
        &self.units[unit]
    }

    /// What it costs to take these units.
    pub(crate) fn of(&self, taken: &[usize]) -> Cost {
        let mut cost = Cost { against_budgets: self.budgets.broken(taken), ..Cost::default() };
        let mut lost: BTreeMap<GroupId, Vec<u32>> = BTreeMap::new();
        for price in taken.iter().map(|unit| &self.units[*unit]) {
            if self.loss == Loss::LongestOfHighest {
                let of_highest = Some(price.priority).cmp(&cost.highest);
                cost.lost_ms = match of_highest {
                    std::cmp::Ordering::Greater => price.lost_ms,
                    std::cmp::Ordering::Equal => cost.lost_ms.max(price.lost_ms),
                    std::cmp::Ordering::Less => cost.lost_ms,
                };
            } else {
                cost.lost_ms = cost.lost_ms.saturating_add(price.lost_ms);
            }
            cost.highest = cost.highest.max(Some(price.priority));
            cost.priorities += price.weight;
            cost.groups += u32::from(price.whole);
            cost.pods += price.pods;
            cost.asked += price.asked;
            if let Some((group, subset)) = price.member_of {
                let subsets = self.gangs[&group].len();
                lost.entry(group).or_insert_with(|| vec![0; subsets])[subset] += 1;
            }
        }
        cost.groups += lost.iter().filter(|(group, lost)| self.falls_below(**group, lost)).count() as u32;
        cost
    }

    /// Whether a gang that has its minimum loses it.
    fn falls_below(&self, group: GroupId, lost: &[u32]) -> bool {
        let subsets = self.gangs[&group].iter().zip(lost);
        subsets.into_iter().any(|((need, has), lost)| has >= need && has.saturating_sub(*lost) < *need)
    }
}

fn subset(cluster: &Cluster, unit: &Unit) -> Option<usize> {
    match cluster.pod(unit.pods.first()?.0).counted {
        Counted::In { subset, .. } => Some(usize::from(subset)),
        _ => None,
    }
}

fn needs_and_has(cluster: &Cluster, group: GroupId) -> Vec<(u32, u32)> {
    let group = cluster.group(group);
    group.rules.iter().zip(&group.census).map(|(rule, census)| (rule.min_member, census.secured())).collect()
}
