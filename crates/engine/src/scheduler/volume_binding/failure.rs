//! Placements that end before their pods are bound: a claim is refused or late, or the place is lost.

use std::sync::Arc;

use super::super::Engine;
use super::VolumeEvent;
use super::claim_writes::Stage;
use super::waiting::Write;
use crate::cluster::group::MemberCounts;
use crate::cluster::lifecycle::Cause;
use crate::cluster::pod::PodState;
use crate::diagnosis::Diagnosis;
use crate::model::Millis;
use crate::model::ids::{ClaimId, GroupId, NodeId, PodId};
use crate::queue::Entity;

impl Engine {
    /// The deadline of a pod's claims has passed.
    pub(in crate::scheduler) fn on_volume_deadline(&mut self, id: PodId, due: Millis) {
        let Some(binding) = self.cluster.pod_if_any(id).and_then(|pod| pod.volume_binding.as_deref()) else { return };
        let Some(claim) = binding.open.first().copied().filter(|_| binding.deadline == due) else { return };
        let message = match (self.volumes.write(claim), self.stage_of(claim)) {
            (Some(Write::Unsent), _) => "another claim of its group was not bound in time".to_owned(),
            (Some(Write::Retry { message, .. }), _) => format!("it could not be written in time: {message}"),
            (_, Some(Stage::Shared | Stage::Provision)) => {
                format!("{} made no volume in time", self.provisioner(claim))
            }
            _ => "the volume controller did not bind it in time".to_owned(),
        };
        self.fail_claim_of(id, claim, &message);
    }

    /// The provisioner of a claim, for messages.
    pub(super) fn provisioner(&self, claim: ClaimId) -> String {
        format!("the provisioner {}", self.cluster.storage.provisioner_of(claim))
    }

    /// A claim cannot be bound: neither can the pods that wait for it.
    pub(super) fn fail_claim(&mut self, claim: ClaimId, message: &str) {
        for pod in self.cluster.storage.claim(claim).users.clone() {
            let binding = self.cluster.pod_if_any(pod).and_then(|pod| pod.volume_binding.as_deref());
            if binding.is_some_and(|binding| binding.open.contains(&claim)) {
                self.fail_claim_of(pod, claim, message);
            }
        }
    }

    /// A claim of an assumed pod cannot be bound: the pod waits again and avoids the node in the next attempt. If its
    /// group cannot start without it, neither is any other member placed any more.
    pub(super) fn fail_claim_of(&mut self, id: PodId, claim: ClaimId, message: &str) {
        let PodState::Assumed(node) = self.cluster.pod(id).state else { return };
        let node_name = self.cluster.node(node).name.clone();
        let provisioner = self.cluster.storage.provisioner_of(claim).to_owned();
        let failed = self.cluster.storage.claim(claim);
        let (name, node, message) =
            (format!("{}/{}", failed.namespace, failed.name), node_name.to_string(), message.to_owned());
        // The pods that share a claim fail together.
        if self.failed_claims.insert(claim) {
            self.volume_events.push(VolumeEvent::Failed { claim: name.clone(), provisioner });
        }
        self.fail_placement(id, Diagnosis::VolumeBindFailed { claim: name, node, message }, &node_name);
    }

    /// The node of an assumed pod is not right for it any more, or a claim cannot be used any more.
    pub(super) fn place_is_lost(&mut self, id: PodId, node: NodeId, why: &str) {
        let node = self.cluster.node(node).name.clone();
        let diagnosis = Diagnosis::BindFailed { node: node.to_string(), message: why.to_owned() };
        self.fail_placement(id, diagnosis, &node);
    }

    /// An assumed pod cannot be bound to its node.
    fn fail_placement(&mut self, id: PodId, diagnosis: Diagnosis, node: &Arc<str>) {
        let group = self.cluster.pod(id).group;
        if let Some(bind) = &mut self.cluster.pod_mut(id).bind {
            bind.avoid.push(node.clone());
        }
        self.give_up_place(id);
        self.report_pod(id, diagnosis.clone());
        let Some(group) = group else {
            self.count_failure(Entity::Pod(id), 1);
            self.review_after_change(id);
            return;
        };
        self.report_group(group, diagnosis, Vec::new());
        self.count_refusal(group);
        self.cancel_start_without_minimum(group);
        self.review_after_change(id);
    }

    /// Gives up the places of all members of a start under way if it has not its minimum any more and none of them is
    /// being bound yet. Returns whether it did.
    pub(super) fn cancel_start_without_minimum(&mut self, id: GroupId) -> bool {
        let group = self.cluster.group(id);
        let Some(attempt) = group.lifecycle.attempt() else { return false };
        let quorum = group.cap_at_minimum(&attempt.quorum);
        let there = group.member_counts.iter().map(MemberCounts::placed);
        if there.zip(&quorum).all(|(there, needed)| there >= *needed) {
            return false;
        }
        let assumed = |pod: &PodId| matches!(self.cluster.pod(*pod).state, PodState::Assumed(_));
        let is_sent = |pod: &PodId| {
            self.cluster.pod(*pod).bind.as_deref().is_some_and(|bind| bind.in_flight || bind.retry_at.is_some())
        };
        let members: Vec<PodId> = group.members.iter().map(|(_, pod)| *pod).filter(assumed).collect();
        if members.iter().any(is_sent) {
            // The start is completed or rolled back.
            return false;
        }
        for member in &members {
            self.give_up_place(*member);
            self.review_refusal(*member);
        }
        self.forget_unbound_start(id);
        true
    }

    /// The places of a start were given up before any pod was bound: it is over.
    pub(in crate::scheduler) fn forget_unbound_start(&mut self, id: GroupId) {
        let group = self.cluster.group_mut(id);
        if group.total().assumed == 0 && group.total().bound == 0 {
            group.lifecycle.apply(Cause::DeadlinePassed { kept: false });
        }
    }

    /// A pod whose claims were being bound is not placed any more.
    pub(in crate::scheduler) fn give_up_place(&mut self, id: PodId) {
        self.end_volume_binding(id);
        self.cluster.set_state(id, PodState::Waiting);
        self.clear_nomination_in_api(id);
    }
}
