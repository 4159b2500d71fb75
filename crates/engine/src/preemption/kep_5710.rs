//! The algorithm of KEP-5710: removes all units of lower priority, places the group, and reprieves the units that still
//! fit, most important first.
//!
//! The group stays where it was placed first. The other algorithms may find cheaper plans; an executed plan never costs
//! more than this one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::victim_unit::{self, VictimUnit};
use crate::cluster::transaction::Transaction;
use crate::filter::{self, View};
use crate::model::ids::{ClassId, NodeId, PodId};
use crate::placement::cache::Cache;
use crate::placement::{self, PlacementRequest, Verdict};

/// One run of the algorithm. The transaction is left unchanged.
pub(crate) struct Kep5710<'p, 'c> {
    pub(crate) transaction: &'p mut Transaction<'c>,
    pub(crate) cache: &'p mut Cache,
    pub(crate) request: &'p PlacementRequest,
    /// Most important first.
    pub(crate) units: &'p [VictimUnit],
    /// The units whose eviction violates a disruption budget, if all units are evicted.
    pub(crate) violating: &'p [bool],
    pub(crate) steps_max: u64,
}

impl Kep5710<'_, '_> {
    /// The victims; `None` if no placement was found without all units.
    pub(crate) fn run(&mut self) -> Option<Vec<usize>> {
        let (violating, others): (Vec<usize>, Vec<usize>) =
            (0..self.units.len()).partition(|unit| self.violating[*unit]);
        let all: Vec<usize> = (0..self.units.len()).collect();
        let mut taken = if violating.is_empty() { Vec::new() } else { self.reprieve(&all, &violating)? };
        let priority = self.lowest_priority(&taken, &others)?;
        let touched: Vec<usize> =
            others.into_iter().filter(|unit| i64::from(self.units[*unit].priority) <= priority).collect();
        let away: Vec<usize> = taken.iter().chain(&touched).copied().collect();
        taken.extend(self.reprieve(&away, &touched)?);
        taken.sort_unstable();
        Some(taken)
    }

    /// Removes all of `away`, places the group, and reprieves those of `candidates` that still fit. Returns the others.
    fn reprieve(&mut self, away: &[usize], candidates: &[usize]) -> Option<Vec<usize>> {
        let savepoint = self.transaction.savepoint();
        self.take(away);
        let answer = self.place().then(|| {
            let placed = self.placed();
            let mut taken = Vec::new();
            for unit in candidates {
                if !self.try_reprieve(&placed, *unit) {
                    taken.push(*unit);
                }
            }
            taken
        });
        self.transaction.rollback_to(savepoint);
        answer
    }

    /// The lowest priority up to which units must be evicted in addition to those already chosen, or one below all of
    /// them. It is known that the group fits without all of them.
    fn lowest_priority(&mut self, taken: &[usize], others: &[usize]) -> Option<i64> {
        let mut steps: Vec<i64> = others.iter().map(|unit| i64::from(self.units[*unit].priority)).collect();
        steps.push(i64::MIN);
        steps.sort_unstable();
        steps.dedup();
        let (mut low, mut high) = (0, steps.len() - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            let touched = others.iter().copied().filter(|unit| i64::from(self.units[*unit].priority) <= steps[middle]);
            let away: Vec<usize> = taken.iter().copied().chain(touched).collect();
            let savepoint = self.transaction.savepoint();
            self.take(&away);
            let fits = self.place();
            self.transaction.rollback_to(savepoint);
            if fits {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        steps.get(low).copied()
    }

    fn take(&mut self, away: &[usize]) {
        victim_unit::remove_all(self.transaction, away.iter().map(|unit| &self.units[*unit]));
    }

    fn place(&mut self) -> bool {
        placement::place(self.transaction, self.cache, self.request, self.steps_max) == Verdict::Placed
    }

    /// The classes of the group's pods that were placed, expected ones included, by node.
    fn placed(&self) -> BTreeMap<NodeId, Vec<ClassId>> {
        let mut placed: BTreeMap<NodeId, Vec<ClassId>> = BTreeMap::new();
        let class_of = |(pod, node): (PodId, NodeId)| (self.transaction.cluster().pod(pod).class, node);
        for (class, node) in self.transaction.placed().map(class_of).chain(self.transaction.occupied()) {
            let classes = placed.entry(node).or_default();
            if !classes.contains(&class) {
                classes.push(class);
            }
        }
        placed
    }

    /// Restores a unit if the group still fits where it was placed.
    fn try_reprieve(&mut self, placed: &BTreeMap<NodeId, Vec<ClassId>>, unit: usize) -> bool {
        let savepoint = self.transaction.savepoint();
        self.units[unit].restore_to(self.transaction);
        let nodes = self.units[unit].pods.iter().map(|(_, node)| *node);
        let fits = nodes
            .filter_map(|node| Some((node, placed.get(&node)?)))
            .all(|(node, classes)| classes.iter().all(|class| self.still_fits(node, *class)));
        let nodes = || placed.keys().copied();
        let is_open = placement::domains::are_open(self.transaction.cluster(), self.cache, self.request, nodes());
        if !fits || !is_open || !self.group_still_passes_inter_pod_filters() {
            self.transaction.rollback_to(savepoint);
            return false;
        }
        true
    }

    /// Whether all placed pods of the group still pass the inter-pod filters.
    fn group_still_passes_inter_pod_filters(&mut self) -> bool {
        let cluster = self.transaction.cluster();
        let constrained = |pod: &PodId| cluster.has_required_inter_pod_terms(cluster.pod(*pod).class);
        let placed: Vec<(PodId, NodeId)> = self.transaction.placed().filter(|(pod, _)| constrained(pod)).collect();
        placed.into_iter().all(|(pod, node)| {
            let savepoint = self.transaction.savepoint();
            self.transaction.remove(pod);
            let cluster = self.transaction.cluster();
            let (class, view) =
                (cluster.class(cluster.pod(pod).class), filter::view(cluster, node, self.request.priority));
            let passes = filter::passes_inter_pod_filters(class, cluster.node(node), &view);
            self.transaction.rollback_to(savepoint);
            passes
        })
    }

    /// Whether a placed pod of the class still fits on its node.
    fn still_fits(&self, node: NodeId, class: ClassId) -> bool {
        let cluster = self.transaction.cluster();
        let View { load, blocked_by_reservation, .. } = filter::view(cluster, node, self.request.priority);
        let mut load = load.into_owned();
        load.sub(cluster.class(class));
        let view = View { load: Cow::Owned(load), cluster, node, blocked_by_reservation, inter_pod: None };
        filter::has_room_ignoring_inter_pod(cluster.class(class), cluster.node(node), &view)
    }
}
