//! Preemption for a single pod: node by node, with kube-scheduler's criteria.
//!
//! On each node, all units of lower priority are removed and then reprieved while the pod still fits: first those that
//! would violate a budget, most important first. Nodes are compared by cost. A unit that also has pods on other nodes
//! counts as a whole.

use std::borrow::Cow;

use super::budgets::Budgets;
use super::cost::{Cost, CostModel, Loss};
use super::dry_run::DryRun;
use super::plan::{NoPlan, Plan};
use super::victim_candidates::{self, VictimCandidates, VictimRules};
use super::victim_unit::VictimUnit;
use crate::cluster::Cluster;
use crate::cluster::load::Load;
use crate::cluster::transaction::Transaction;
use crate::filter::{self, View};
use crate::model::ids::{ClassId, NodeId, PodId};
use crate::placement::cache::Cache;

/// Plans preemption for a pod. The transaction shows the cluster as the pod sees it, without terminating pods, and is
/// left unchanged.
pub(crate) fn for_pod(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    (pod, class, priority): (PodId, ClassId, i32),
    avoid: &[NodeId],
    rules: VictimRules,
) -> Result<Plan, NoPlan> {
    let cluster = transaction.cluster();
    let VictimCandidates { units, withheld } = victim_candidates::candidates_below(cluster, priority, rules);
    let costs = CostModel::new(cluster, &units, Loss::LongestOfHighest, rules.now);
    let on_node = by_node(cluster, &units);
    let single_costs: Vec<Cost> = (0..units.len()).map(|unit| costs.of(&[unit])).collect();
    let mut best: Option<(Cost, NodeId, Vec<usize>)> = None;
    let nodes: Vec<NodeId> = cache.candidates(cluster, class, priority).statically_feasible_nodes().collect();
    for node in nodes.into_iter().filter(|node| !avoid.contains(node)) {
        let there = &on_node[node.slot()];
        let target = PodOnNode { class, priority, node };
        let least = if target.has_room(transaction.cluster()) {
            None
        } else {
            there.iter().map(|unit| &single_costs[*unit]).min()
        };
        if best.as_ref().is_some_and(|(best, ..)| least.is_some_and(|least| least >= best)) {
            // The node needs at least one victim, which costs no less than the best plan so far.
            continue;
        }
        let taken = if transaction.cluster().class(class).has_required_inter_pod_terms() {
            let savepoint = transaction.savepoint();
            let taken = victims(&mut ClusterDryRun { transaction, target }, &units, there, &costs.budgets);
            transaction.rollback_to(savepoint);
            taken
        } else {
            victims(&mut NodeDryRun::new(transaction.cluster(), target), &units, there, &costs.budgets)
        };
        let Some(taken) = taken else { continue };
        let cost = costs.of(&taken);
        if best.as_ref().is_none_or(|(best, ..)| cost < *best) {
            best = Some((cost, node, taken));
        }
    }
    let Some((cost, node, taken)) = best else {
        return Err(NoPlan::of(units.is_empty(), withheld));
    };
    if rules.respects_budgets && cost.pdb_violations > 0 {
        return Err(NoPlan::Budgets);
    }
    let units = taken.into_iter().map(|unit| units[unit].clone()).collect();
    Ok(Plan { places: vec![(pod, node)], units, cost, proven: false })
}

/// The units on each node, by node slot, most important first.
fn by_node(cluster: &Cluster, units: &[VictimUnit]) -> Vec<Vec<usize>> {
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

/// The victims, most important first; `None` if the pod does not fit without all units.
fn victims(dry_run: &mut impl DryRun, units: &[VictimUnit], there: &[usize], budgets: &Budgets) -> Option<Vec<usize>> {
    for unit in there {
        dry_run.remove(&units[*unit]);
    }
    if !dry_run.fits() {
        return None;
    }
    let violating = budgets.violating(there);
    let (first, then): (Vec<usize>, Vec<usize>) = (0..there.len()).partition(|at| violating[*at]);
    let mut taken = Vec::new();
    for at in first.into_iter().chain(then) {
        dry_run.restore(&units[there[at]]);
        if !dry_run.fits() {
            dry_run.remove(&units[there[at]]);
            taken.push(there[at]);
        }
    }
    taken.sort_unstable();
    Some(taken)
}

/// A pod on a candidate node.
#[derive(Clone, Copy)]
struct PodOnNode {
    class: ClassId,
    priority: i32,
    node: NodeId,
}

impl PodOnNode {
    /// Whether the pod fits.
    fn has_room(self, cluster: &Cluster) -> bool {
        let view = filter::view(cluster, self.node, self.priority);
        filter::has_room(cluster.class(self.class), cluster.node(self.node), &view)
    }
}

/// Dry run on the load of the node alone, for pods without required inter-pod terms.
struct NodeDryRun<'a> {
    cluster: &'a Cluster,
    target: PodOnNode,
    load: Load,
    blocked_by_reservation: bool,
}

impl<'a> NodeDryRun<'a> {
    fn new(cluster: &'a Cluster, target: PodOnNode) -> Self {
        let View { load, blocked_by_reservation, .. } = filter::view(cluster, target.node, target.priority);
        Self { cluster, target, load: load.into_owned(), blocked_by_reservation }
    }

    fn change(&mut self, unit: &VictimUnit, add: bool) {
        for (pod, _) in unit.pods.iter().filter(|(_, node)| *node == self.target.node) {
            let class = self.cluster.class(self.cluster.pod(*pod).class);
            if add {
                self.load.add(class);
            } else {
                self.load.sub(class);
            }
        }
    }
}

impl DryRun for NodeDryRun<'_> {
    fn remove(&mut self, unit: &VictimUnit) {
        self.change(unit, false);
    }

    fn restore(&mut self, unit: &VictimUnit) {
        self.change(unit, true);
    }

    fn fits(&mut self) -> bool {
        let view = View {
            load: Cow::Borrowed(&self.load),
            blocked_by_reservation: self.blocked_by_reservation,
            inter_pod: None,
        };
        filter::has_room_ignoring_inter_pod(
            self.cluster.class(self.target.class),
            self.cluster.node(self.target.node),
            &view,
        )
    }
}

/// Dry run on the whole cluster, for pods with required inter-pod terms.
struct ClusterDryRun<'t, 'c> {
    transaction: &'t mut Transaction<'c>,
    target: PodOnNode,
}

impl DryRun for ClusterDryRun<'_, '_> {
    fn remove(&mut self, unit: &VictimUnit) {
        unit.remove_from(self.transaction);
    }

    fn restore(&mut self, unit: &VictimUnit) {
        unit.restore_to(self.transaction);
    }

    fn fits(&mut self) -> bool {
        self.target.has_room(self.transaction.cluster())
    }
}
