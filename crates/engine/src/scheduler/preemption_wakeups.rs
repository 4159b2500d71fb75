//! Wake-ups caused by preemption: activates parked entities when more victims become available or a plan may be
//! invalid.
//!
//! An attempt is cheap and a missed plan is not, so in doubt entities are activated.

use std::collections::BTreeSet;

use super::Engine;
use crate::cluster::pod::Pod;
use crate::model::budget::BudgetSpec;
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::preemption;
use crate::queue::Entity;

impl Engine {
    /// A disruption budget allows more evictions: activates entities that may preempt the pods it covers.
    pub(super) fn on_budget_increased(&mut self, budget: &BudgetSpec) {
        if !self.config.preemption.on || !self.config.preemption.respects_budgets {
            return;
        }
        let of_budget = |pod: &Pod| {
            let counts = |pod: &Pod| budget.counts(&pod.id.name, &pod.labels);
            pod.id.namespace == budget.namespace && pod.state.node().is_some() && counts(pod)
        };
        let (mut groups, mut singles) = (BTreeSet::new(), Vec::new());
        for (id, pod) in self.cluster.pods().filter(|(_, pod)| of_budget(pod)) {
            match pod.group.filter(|group| self.is_evicted_whole(*group)) {
                Some(group) => _ = groups.insert(group),
                None => singles.push(id),
            }
        }
        for group in groups {
            self.on_group_preemptibility_changed(group);
        }
        for pod in singles {
            self.on_pod_became_preemptible(pod);
        }
    }

    /// A pod can be evicted, or is leaving, that was not before; its whole group, if that is evicted as a whole.
    pub(super) fn on_pod_became_preemptible(&mut self, id: PodId) {
        if !self.config.preemption.on {
            return;
        }
        self.unschedulable.forget_plans();
        let Some(group) = self.cluster.pod(id).group.filter(|group| self.is_evicted_whole(*group)) else {
            if let Some(node) = self.cluster.pod(id).state.node() {
                self.on_capacity_freed(node);
            }
            return;
        };
        self.on_group_became_preemptible(group);
    }

    /// Whether a pod keeps its group from being evicted as a whole: it is placed and cannot be evicted.
    pub(super) fn blocks_group_preemption(&self, pod: &Pod) -> bool {
        pod.state.node().is_some() && !pod.is_leaving() && preemption::evictable_node(pod, self.rules()).is_none()
    }

    /// The last member that kept its group from being preempted is gone or failed to bind.
    pub(super) fn on_group_became_preemptible(&mut self, group: GroupId) {
        // A group with binds in flight cannot be evicted.
        let binds = self.cluster.group_if_any(group).is_none_or(|group| group.total().assumed > 0);
        if !binds && self.is_evicted_whole(group) {
            self.on_group_preemptibility_changed(group);
        }
    }

    /// The priority or disruption mode of a group changed, and with it which entities can preempt it.
    pub(super) fn on_group_preemptibility_changed(&mut self, group: GroupId) {
        if !self.config.preemption.on {
            return;
        }
        self.unschedulable.forget_plans();
        let members = self.cluster.group_if_any(group).into_iter().flat_map(|group| &group.members);
        let nodes = members.filter_map(|(_, member)| self.cluster.pod(*member).state.node());
        for node in nodes.collect::<BTreeSet<NodeId>>() {
            self.on_capacity_freed(node);
        }
    }

    /// Something changed on a node with nominations: activates their owners to check their plans.
    pub(super) fn recheck_plans_on(&mut self, node: NodeId) {
        for pod in self.cluster.node(node).nominated.clone() {
            let entity = self.cluster.pod(pod).group.map_or(Entity::Pod(pod), Entity::Group);
            self.queue.activate_parked(entity, self.now);
        }
    }
}
