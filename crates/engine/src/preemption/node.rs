//! A plan for a single pod: node by node, with kube-scheduler's rules of choice.
//!
//! On each node all units below go, and come back while the pod still fits, those that would break a budget first and
//! the most important first among them. The nodes are compared by cost. A unit that is also on other nodes counts whole.

use std::borrow::Cow;

use super::budgets::Budgets;
use super::cost::{Cost, Loss, Prices};
use super::unit::{self, Below, Rules, Unit};
use super::{NoPlan, Plan};
use crate::cluster::Cluster;
use crate::cluster::load::Load;
use crate::filter::{self, View};
use crate::model::ids::{ClassId, NodeId, PodId};
use crate::placement::cache::Cache;

/// A plan for a pod. The cluster is as the pod sees it, without those who are leaving anyway.
pub(crate) fn for_pod(
    cluster: &Cluster,
    cache: &mut Cache,
    (pod, class, priority): (PodId, ClassId, i32),
    avoid: &[NodeId],
    rules: Rules,
) -> Result<Plan, NoPlan> {
    let Below { units, withheld } = unit::below(cluster, priority, rules);
    let prices = Prices::new(cluster, &units, Loss::LongestOfHighest, rules.now);
    let on_node = by_node(cluster, &units);
    let alone: Vec<Cost> = (0..units.len()).map(|unit| prices.of(&[unit])).collect();
    let mut best: Option<(Cost, NodeId, Vec<usize>)> = None;
    for node in cache.candidates(cluster, class, priority).nodes_that_would_do() {
        if avoid.contains(&node) {
            continue;
        }
        let there = &on_node[node.slot()];
        let one = OneNode { cluster, class, priority, node, units: &units };
        let least = if one.has_room() { None } else { there.iter().map(|unit| &alone[*unit]).min() };
        if best.as_ref().is_some_and(|(best, ..)| least.is_some_and(|least| least >= best)) {
            // Somebody has to go from here, and it costs no less than what was found.
            continue;
        }
        let Some(taken) = one.victims(there, &prices.budgets) else { continue };
        let cost = prices.of(&taken);
        if best.as_ref().is_none_or(|(best, ..)| cost < *best) {
            best = Some((cost, node, taken));
        }
    }
    let Some((cost, node, taken)) = best else {
        return Err(NoPlan::of(units.is_empty(), withheld));
    };
    if rules.keeps_budgets && cost.against_budgets > 0 {
        return Err(NoPlan::Budgets);
    }
    let units = taken.into_iter().map(|unit| units[unit].clone()).collect();
    Ok(Plan { places: vec![(pod, node)], units, cost, proven: false })
}

/// The units on each node, by its slot, most important first.
fn by_node(cluster: &Cluster, units: &[Unit]) -> Vec<Vec<usize>> {
    let mut on_node: Vec<Vec<usize>> = vec![Vec::new(); cluster.node_slots()];
    for (number, unit) in units.iter().enumerate() {
        for (_, node) in &unit.pods {
            let there = &mut on_node[node.slot()];
            if there.last() != Some(&number) {
                there.push(number);
            }
        }
    }
    on_node
}

/// One node and the pod that wants to go there.
struct OneNode<'a> {
    cluster: &'a Cluster,
    class: ClassId,
    priority: i32,
    node: NodeId,
    units: &'a [Unit],
}

impl OneNode<'_> {
    /// Whether the pod fits without anybody's going.
    fn has_room(&self) -> bool {
        let view = filter::view(self.cluster, self.node, self.priority);
        filter::has_room(self.cluster.class(self.class), self.cluster.node(self.node), &view)
    }

    /// The units that have to go, most important first; `None` if the pod does not fit without any of them.
    fn victims(&self, there: &[usize], budgets: &Budgets) -> Option<Vec<usize>> {
        let View { load, claimed } = filter::view(self.cluster, self.node, self.priority);
        let mut load = load.into_owned();
        for unit in there {
            self.change(&mut load, *unit, false);
        }
        if !self.fits(&load, claimed) {
            return None;
        }
        let breaking = budgets.breaking(there);
        let (first, then): (Vec<usize>, Vec<usize>) = (0..there.len()).partition(|at| breaking[*at]);
        let mut taken = Vec::new();
        for at in first.into_iter().chain(then) {
            self.change(&mut load, there[at], true);
            if !self.fits(&load, claimed) {
                self.change(&mut load, there[at], false);
                taken.push(there[at]);
            }
        }
        taken.sort_unstable();
        Some(taken)
    }

    fn fits(&self, load: &Load, claimed: bool) -> bool {
        let view = View { load: Cow::Borrowed(load), claimed };
        filter::has_room(self.cluster.class(self.class), self.cluster.node(self.node), &view)
    }

    fn change(&self, load: &mut Load, unit: usize, add: bool) {
        for (pod, _) in self.units[unit].pods.iter().filter(|(_, node)| *node == self.node) {
            let class = self.cluster.class(self.cluster.pod(*pod).class);
            if add {
                load.add(class);
            } else {
                load.sub(class);
            }
        }
    }
}
