//! Whoever can be taken now and could not before, and plans that may not stand any more: those who wait for that are
//! tried again.
//!
//! Being tried costs little, and a plan that is missed for ever costs a lot: in doubt they are woken.

use std::collections::BTreeSet;

use super::Engine;
use crate::cluster::pod::Pod;
use crate::model::budget::BudgetSpec;
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::preemption;
use crate::queue::Entity;

impl Engine {
    /// The pods under a budget may be evicted now that could not be before, where budgets are always kept.
    pub(super) fn budget_loosened(&mut self, budget: &BudgetSpec) {
        if !self.config.preemption.on || !self.config.preemption.keeps_budgets {
            return;
        }
        let of_budget = |pod: &Pod| {
            let counts = |pod: &Pod| budget.counts(&pod.id.name, &pod.labels);
            pod.id.namespace == budget.namespace && pod.state.node().is_some() && counts(pod)
        };
        let (mut groups, mut singles) = (BTreeSet::new(), Vec::new());
        for (id, pod) in self.cluster.pods().filter(|(_, pod)| of_budget(pod)) {
            match pod.group.filter(|group| self.goes_whole(*group)) {
                Some(group) => _ = groups.insert(group),
                None => singles.push(id),
            }
        }
        for group in groups {
            self.group_became_prey(group);
        }
        for pod in singles {
            self.prey_appeared(pod);
        }
    }

    /// A pod can be counted as gone, or be evicted, that could not before; with it goes its group, if that goes whole.
    pub(super) fn prey_appeared(&mut self, id: PodId) {
        if !self.config.preemption.on {
            return;
        }
        self.noes.forget_plans();
        let Some(group) = self.cluster.pod(id).group.filter(|group| self.goes_whole(*group)) else {
            if let Some(node) = self.cluster.pod(id).state.node() {
                self.room_appeared(node);
            }
            return;
        };
        self.rest_became_prey(group);
    }

    /// Whether a pod keeps its group where it is, if that goes whole: it is placed and cannot be taken.
    pub(super) fn holds_back(&self, pod: &Pod) -> bool {
        pod.state.node().is_some() && !pod.is_leaving() && preemption::can_be_taken(pod, self.rules()).is_none()
    }

    /// One that held back his group does so no more: his bind failed, or he is gone.
    pub(super) fn rest_became_prey(&mut self, group: GroupId) {
        // As long as binds of it are on their way it cannot go.
        let binds = self.cluster.group_if_any(group).is_none_or(|group| group.total().assumed > 0);
        if !binds && self.goes_whole(group) {
            self.group_became_prey(group);
        }
    }

    /// The members of a group are something else to others than before.
    pub(super) fn group_became_prey(&mut self, group: GroupId) {
        if !self.config.preemption.on {
            return;
        }
        self.noes.forget_plans();
        let members = self.cluster.group_if_any(group).into_iter().flat_map(|group| &group.members);
        let nodes = members.filter_map(|(_, member)| self.cluster.pod(*member).state.node());
        for node in nodes.collect::<BTreeSet<NodeId>>() {
            self.room_appeared(node);
        }
    }

    /// Something changed on a node that may be kept free for somebody: the plan is looked at again.
    pub(super) fn plans_shaken(&mut self, node: NodeId) {
        for pod in self.cluster.node(node).nominated.clone() {
            let entity = self.cluster.pod(pod).group.map_or(Entity::Pod(pod), Entity::Group);
            self.queue.wake_parked(entity, self.now);
        }
    }
}
