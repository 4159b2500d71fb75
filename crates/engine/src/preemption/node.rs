//! A plan for a single pod: node by node, with kube-scheduler's rules of choice.
//!
//! On each node all units below go, and come back while the pod still fits, those that would break a budget first and
//! the most important first among them. The nodes are compared by cost. A unit that is also on other nodes counts whole.

use std::borrow::Cow;

use super::budgets::Budgets;
use super::cost::{Cost, Loss, Prices};
use super::stage::Stage;
use super::unit::{self, Below, Rules, Unit};
use super::{NoPlan, Plan};
use crate::cluster::Cluster;
use crate::cluster::load::Load;
use crate::cluster::trial::Trial;
use crate::filter::{self, View};
use crate::model::ids::{ClassId, NodeId, PodId};
use crate::placement::cache::Cache;

/// A plan for a pod. The trial shows the cluster as the pod sees it, without those who are leaving anyway, and is given
/// back as it was.
pub(crate) fn for_pod(
    trial: &mut Trial<'_>,
    cache: &mut Cache,
    (pod, class, priority): (PodId, ClassId, i32),
    avoid: &[NodeId],
    rules: Rules,
) -> Result<Plan, NoPlan> {
    let cluster = trial.cluster();
    let Below { units, withheld } = unit::below(cluster, priority, rules);
    let prices = Prices::new(cluster, &units, Loss::LongestOfHighest, rules.now);
    let on_node = by_node(cluster, &units);
    let alone: Vec<Cost> = (0..units.len()).map(|unit| prices.of(&[unit])).collect();
    let mut best: Option<(Cost, NodeId, Vec<usize>)> = None;
    let nodes: Vec<NodeId> = cache.candidates(cluster, class, priority).nodes_that_would_do().collect();
    for node in nodes.into_iter().filter(|node| !avoid.contains(node)) {
        let there = &on_node[node.slot()];
        let asked = Asked { class, priority, node };
        let least = if asked.has_room(trial.cluster()) { None } else { there.iter().map(|unit| &alone[*unit]).min() };
        if best.as_ref().is_some_and(|(best, ..)| least.is_some_and(|least| least >= best)) {
            // Somebody has to go from here, and it costs no less than what was found.
            continue;
        }
        let taken = if trial.cluster().class(class).has_demands() {
            let mark = trial.mark();
            let taken = victims(&mut Among { trial, asked }, &units, there, &prices.budgets);
            trial.undo_to(mark);
            taken
        } else {
            victims(&mut Alone::new(trial.cluster(), asked), &units, there, &prices.budgets)
        };
        let Some(taken) = taken else { continue };
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

/// The units that have to go, most important first; `None` if the pod does not fit without any of them.
fn victims(stage: &mut impl Stage, units: &[Unit], there: &[usize], budgets: &Budgets) -> Option<Vec<usize>> {
    for unit in there {
        stage.remove(&units[*unit]);
    }
    if !stage.fits() {
        return None;
    }
    let breaking = budgets.breaking(there);
    let (first, then): (Vec<usize>, Vec<usize>) = (0..there.len()).partition(|at| breaking[*at]);
    let mut taken = Vec::new();
    for at in first.into_iter().chain(then) {
        stage.restore(&units[there[at]]);
        if !stage.fits() {
            stage.remove(&units[there[at]]);
            taken.push(there[at]);
        }
    }
    taken.sort_unstable();
    Some(taken)
}

/// A pod that wants to go to a node.
#[derive(Clone, Copy)]
struct Asked {
    class: ClassId,
    priority: i32,
    node: NodeId,
}

impl Asked {
    /// Whether the pod fits.
    fn has_room(self, cluster: &Cluster) -> bool {
        let view = filter::view(cluster, self.node, self.priority);
        filter::has_room(cluster.class(self.class), cluster.node(self.node), &view)
    }
}

/// The node by itself: only what is on it matters.
struct Alone<'a> {
    cluster: &'a Cluster,
    asked: Asked,
    load: Load,
    claimed: bool,
}

impl<'a> Alone<'a> {
    fn new(cluster: &'a Cluster, asked: Asked) -> Self {
        let View { load, claimed, .. } = filter::view(cluster, asked.node, asked.priority);
        Self { cluster, asked, load: load.into_owned(), claimed }
    }

    fn change(&mut self, unit: &Unit, add: bool) {
        for (pod, _) in unit.pods.iter().filter(|(_, node)| *node == self.asked.node) {
            let class = self.cluster.class(self.cluster.pod(*pod).class);
            if add {
                self.load.add(class);
            } else {
                self.load.sub(class);
            }
        }
    }
}

impl Stage for Alone<'_> {
    fn remove(&mut self, unit: &Unit) {
        self.change(unit, false);
    }

    fn restore(&mut self, unit: &Unit) {
        self.change(unit, true);
    }

    fn fits(&mut self) -> bool {
        let view = View { load: Cow::Borrowed(&self.load), claimed: self.claimed, near: None };
        filter::has_room_alone(self.cluster.class(self.asked.class), self.cluster.node(self.asked.node), &view)
    }
}

/// The node among the others: it matters who is near.
struct Among<'t, 'c> {
    trial: &'t mut Trial<'c>,
    asked: Asked,
}

impl Stage for Among<'_, '_> {
    fn remove(&mut self, unit: &Unit) {
        unit.leave(self.trial);
    }

    fn restore(&mut self, unit: &Unit) {
        unit.come_back(self.trial);
    }

    fn fits(&mut self) -> bool {
        self.asked.has_room(self.trial.cluster())
    }
}
