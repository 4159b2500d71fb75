//! Preemption for a single pod: node by node, with kube-scheduler's criteria.
//!
//! On each node, all units of lower priority are removed and then reprieved while the pod still fits: first those that
//! would violate a budget, most important first. Nodes are compared by cost. A unit that also has pods on other nodes
//! counts as a whole.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::cost::{Cost, CostModel, Loss};
use super::declared_costs::{self, Effort, Exchange};
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
    let namespaces = if costs.has_group_costs() { declared_costs::namespaces(cluster, &units) } else { Vec::new() };
    let mut best = BestNode { costs: &costs, namespaces: &namespaces, best: None, others: Vec::new() };
    let attracting: BTreeSet<usize> =
        (0..units.len()).filter(|unit| victim_candidates::attracts(cluster, class, &units[*unit])).collect();
    let nodes: Vec<NodeId> = cache.candidates(cluster, class, priority).statically_feasible_nodes().collect();
    for node in nodes.into_iter().filter(|node| !avoid.contains(node)) {
        let there = &on_node[node.slot()];
        let target = PodOnNode { class, priority, node };
        let least = if target.has_room(transaction.cluster()) {
            None
        } else {
            there.iter().map(|unit| &single_costs[*unit]).min()
        };
        if least.is_some_and(|least| best.rules_out(least)) {
            continue;
        }
        let effort = Effort::CHEAP;
        let exchange = Exchange { units: &units, costs: &costs, allowed: there, namespaces: &namespaces, effort };
        let taken = if transaction.cluster().has_required_inter_pod_terms(class) {
            let savepoint = transaction.savepoint();
            let mut taken = victims(&mut ClusterDryRun { transaction, target }, &exchange);
            transaction.rollback_to(savepoint);
            if taken.is_none() && !attracting.is_empty() {
                // Without the pods that it has affinity to it fits nowhere.
                let others: Vec<usize> = there.iter().copied().filter(|unit| !attracting.contains(unit)).collect();
                taken = victims(&mut ClusterDryRun { transaction, target }, &Exchange { allowed: &others, ..exchange });
                transaction.rollback_to(savepoint);
            }
            taken
        } else {
            victims(&mut NodeDryRun::new(transaction.cluster(), target), &exchange)
        };
        if let Some(taken) = taken {
            best.add(NodeVictims { cost: costs.of(&taken), node, taken });
        }
    }
    let Some(NodeVictims { cost, node, taken }) = best.take() else {
        // Not every set of pods that it has affinity to was tried.
        let why = NoPlan::of(units.is_empty(), withheld);
        return Err(if attracting.is_empty() { why } else { NoPlan::NotFound });
    };
    if rules.respects_budgets && cost.pdb_violations > 0 {
        return Err(NoPlan::Budgets);
    }
    let units = taken.into_iter().map(|unit| units[unit].clone()).collect();
    Ok(Plan { places: vec![(pod, node)], units, cost, proven: false, groups_at_least: 0, lowest: None })
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

/// The victims on a node.
struct NodeVictims {
    cost: Cost,
    node: NodeId,
    taken: Vec<usize>,
}

/// The node with the cheapest victims.
struct BestNode<'b> {
    costs: &'b CostModel,
    /// The number of the namespace of each unit; empty if no group declares a cost.
    namespaces: &'b [usize],
    best: Option<NodeVictims>,
    /// All other nodes, if groups declare costs.
    others: Vec<NodeVictims>,
}

impl BestNode<'_> {
    /// Whether a node that needs at least one victim, of at least this cost, is of no interest.
    fn rules_out(&self, least: &Cost) -> bool {
        let Some(NodeVictims { cost: best, .. }) = &self.best else { return false };
        if self.namespaces.is_empty() {
            return least >= best;
        }
        // Among equals, what groups declare counts.
        (least.pdb_violations, least.highest) > (best.pdb_violations, best.highest)
    }

    fn add(&mut self, new: NodeVictims) {
        let is_better = self.best.as_ref().is_none_or(|best| new.cost < best.cost);
        let other = if is_better { self.best.replace(new) } else { Some(new) };
        self.others.extend(other.filter(|_| !self.namespaces.is_empty()));
    }

    /// The cheapest node. If another one has victims of the same priority in the same namespaces whose groups declare
    /// less, that one.
    fn take(self) -> Option<NodeVictims> {
        let Self { costs, namespaces, best, others } = self;
        let best = best?;
        let namespaces_of = |taken: &[usize]| taken.iter().map(|unit| namespaces[*unit]).collect::<BTreeSet<usize>>();
        if namespaces.is_empty() {
            return Some(best);
        }
        let (in_namespaces, declared) = (namespaces_of(&best.taken), costs.group_cost(&best.taken));
        let is_equal = |other: &NodeVictims| {
            (other.cost.pdb_violations, other.cost.highest) == (best.cost.pdb_violations, best.cost.highest)
                && costs.group_cost(&other.taken) < declared
                && namespaces_of(&other.taken).is_subset(&in_namespaces)
        };
        let cheaper = others.into_iter().filter(is_equal);
        let cheaper = cheaper.min_by_key(|other| (costs.group_cost(&other.taken), other.cost.clone(), other.node));
        Some(cheaper.unwrap_or(best))
    }
}

/// The victims, most important first; `None` if the pod does not fit without all units.
fn victims(dry_run: &mut impl DryRun, exchange: &Exchange<'_>) -> Option<Vec<usize>> {
    let Exchange { units, costs, allowed: there, namespaces, .. } = exchange;
    for unit in *there {
        dry_run.remove(&units[*unit]);
    }
    if !dry_run.fits() {
        return None;
    }
    let violating = costs.budgets.violating(there);
    let (first, then): (Vec<usize>, Vec<usize>) = (0..there.len()).partition(|at| violating[*at]);
    let mut taken = Vec::new();
    for at in first.into_iter().chain(then) {
        dry_run.restore(&units[there[at]]);
        if !dry_run.fits() {
            dry_run.remove(&units[there[at]]);
            taken.push(there[at]);
        }
    }
    if !namespaces.is_empty() {
        exchange.run(dry_run, &mut taken);
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
            cluster: self.cluster,
            node: self.target.node,
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
