//! Binding pods whose claims are bound, or which wait only for others of their group.

use std::collections::BTreeSet;

use super::super::{Engine, Timer};
use crate::cluster::group::MemberCounts;
use crate::cluster::pod::{Counted, MemberState, PodState};
use crate::cluster::transaction::Transaction;
use crate::filter;
use crate::model::ids::{GroupId, NodeId, PodId};

impl Engine {
    /// Binds a pod that is not in a group as soon as its claims are bound.
    pub(super) fn bind_if_ready(&mut self, id: PodId) {
        let pod = self.cluster.pod(id);
        let (Some(binding), PodState::Assumed(node)) = (pod.volume_binding.as_deref(), pod.state) else { return };
        if !binding.open.is_empty() {
            return;
        }
        match self.misfit(id, node) {
            None => {
                self.record_volume_wait(id, true);
                self.send_bind(id, node);
            }
            Some(why) => self.place_is_lost(id, node, &why),
        }
    }

    /// Binds the members whose claims are bound, if their group has its minimum with them.
    pub(super) fn bind_ready_members(&mut self, id: GroupId) {
        let Some(waiting) = self.volumes.of(Some(id)).filter(|waiting| !waiting.done.is_empty()) else { return };
        if !self.has_minimum_without(id, &waiting.open) {
            return;
        }
        let all_are_bound = waiting.open.is_empty();
        let place = |pod: &PodId| Some((*pod, self.cluster.pod(*pod).state.node()?));
        let ready: Vec<(PodId, NodeId)> = waiting.done.iter().filter_map(place).collect();
        for (pod, node) in &ready {
            if let Some(why) = self.misfit(*pod, *node) {
                return self.place_is_lost(*pod, *node, &why);
            }
        }
        let timeout_ms = self.schedule_timeout_ms(id);
        let deadline = self.now.saturating_add(timeout_ms);
        if let Some(attempt) = self.cluster.group_mut(id).lifecycle.attempt_mut().filter(|_| all_are_bound) {
            attempt.deadline = deadline;
            self.set_timer(deadline, Timer::StartDeadline(id));
        }
        for (pod, node) in ready {
            self.record_volume_wait(pod, true);
            self.send_bind(pod, node);
        }
    }

    /// Whether the start of a group under way has its minimum without these members, or there is none under way.
    fn has_minimum_without(&self, id: GroupId, without: &BTreeSet<PodId>) -> bool {
        let group = self.cluster.group(id);
        let Some(attempt) = group.lifecycle.attempt().filter(|_| !without.is_empty()) else { return true };
        let quorum = group.cap_at_minimum(&attempt.quorum);
        let mut there: Vec<u32> = group.member_counts.iter().map(MemberCounts::placed).collect();
        for pod in without {
            if let Counted::In { subset, member_state: MemberState::Assumed } = self.cluster.pod(*pod).counted {
                there[usize::from(subset)] -= 1;
            }
        }
        there.iter().zip(&quorum).all(|(there, needed)| there >= needed)
    }

    /// Why the node of an assumed pod is not right for it any more, if so: the node may have changed since it was
    /// chosen, and so may claims that were bound before.
    fn misfit(&mut self, id: PodId, node: NodeId) -> Option<String> {
        if let Some(unusable) = &self.cluster.pod(id).unusable {
            return Some(unusable.reason.clone());
        }
        let (class, priority) = self.shape_of(id);
        let mut transaction = Transaction::new(&mut self.cluster);
        transaction.remove(id);
        let cluster = transaction.cluster();
        let view = filter::view(cluster, node, priority);
        let (class, node) = (cluster.class(class), cluster.node(node));
        let fits =
            filter::passes_static_filters(class, node) && filter::has_room_ignoring_inter_pod(class, node, &view);
        (!fits).then(|| "the node has changed while volumes were bound".to_owned())
    }
}
