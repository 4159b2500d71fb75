//! Volume binding: between the decision and the binds, the claims of the placed pods are bound to volumes.
//!
//! Neither a bound pod nor a volume that is being provisioned can be taken back, so all claims of a gang's minimum are
//! bound before the first of its pods. The steps are taken for all placed pods together: claims that several of them
//! share are provisioned first, since where their volume turns out to be decides for all; then existing volumes are
//! reserved; then nodes are selected for what is to be provisioned. If one claim is refused or takes too long, none of
//! the pods that need it is bound: what was made stays, and the next decision is made with it.
//!
//! `waiting` lists the pods and their claims, `claim_writes` sends the writes, `following` reads from the API how far a
//! claim is, `ready` binds pods whose claims are bound, and `failure` ends placements.
//!
//! Nothing is remembered across a restart: the next process finds claims bound, volumes reserved and nodes selected.

mod claim_writes;
mod failure;
mod following;
mod ready;
mod waiting;

use std::collections::BTreeSet;

use super::{Engine, Timer};
use crate::cluster::pod::{Awaited, PodState, VolumeBinding};
use crate::command::Command;
use crate::diagnosis::{Diagnosis, Waiting as WaitingFor};
use crate::model::Millis;
use crate::model::ids::{ClaimId, GroupId, NodeId, PodId};
use crate::queue::Entity;
pub(super) use waiting::VolumeBindings;

/// Something that has ended about the volumes of placed pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeEvent {
    /// A pod does not wait for its volumes any more.
    Waited {
        /// For how long it did.
        ms: Millis,
        /// Whether its volumes are bound, and it is next; otherwise its placement was given up.
        bound: bool,
    },
    /// The volume of a claim failed: it was refused, or took too long.
    Failed {
        /// The claim, as namespace and name.
        claim: String,
        /// The provisioner of its storage class; empty if there is none.
        provisioner: String,
    },
}

impl Engine {
    // Beginning.

    /// Begins to bind the claims of pods that were just placed. Returns whether they, or others of their group, have to
    /// be waited for.
    pub(super) fn begin_volume_bindings(&mut self, placed: &[(PodId, NodeId)]) -> bool {
        let group = placed.first().and_then(|(pod, _)| self.cluster.pod(*pod).group);
        let unbound = |engine: &Self, pod| engine.cluster.storage.unbound_claims(&engine.cluster.pod(pod).claim_ids);
        let claims: Vec<Vec<ClaimId>> = placed.iter().map(|(pod, _)| unbound(self, *pod)).collect();
        let waits = claims.iter().any(|claims| !claims.is_empty());
        if !waits && !group.is_some_and(|group| self.binds_volumes(group)) {
            return false;
        }
        for ((pod, node), claims) in placed.iter().zip(claims) {
            self.begin_volume_binding(*pod, *node, claims);
        }
        self.volumes.changed_pods.extend(placed.iter().map(|(pod, _)| *pod));
        if let Some(group) = group {
            self.extend_deadline_for_volumes(group);
        }
        self.follow_volume_changes();
        true
    }

    fn begin_volume_binding(&mut self, id: PodId, node: NodeId, open: Vec<ClaimId>) {
        let pod = self.cluster.pod(id);
        let own = pod.group.and_then(|group| self.cluster.group(group).definition.last()?.schedule_timeout_ms);
        let timeout_ms = own.unwrap_or(Millis::MAX).min(self.config.volume_bind_timeout_ms);
        let deadline = self.now.saturating_add(timeout_ms);
        let name = |claim: &ClaimId| Some((*claim, self.cluster.storage.claim(*claim).spec.as_ref()?.id.clone()));
        let named: Vec<_> = open.iter().filter_map(name).collect();
        self.volumes.add(pod.group, id, &named);
        let (has_claims, name) = (!open.is_empty(), self.cluster.node(node).name.clone());
        let pod = self.cluster.pod_mut(id);
        pod.volume_binding = Some(Box::new(VolumeBinding { since: self.now, deadline, open, has_claims }));
        if has_claims {
            // Autoscalers and the next process see where it will be.
            pod.shows_nomination = true;
            pod.awaited_nomination = Awaited::Node(name.clone());
            self.outbox.push(Command::Nominate { pod: pod.id.clone(), node: name });
            self.set_timer(deadline, Timer::VolumeDeadline(id));
        }
    }

    /// A start may take as long as its volumes, and then as long as any start.
    fn extend_deadline_for_volumes(&mut self, id: GroupId) {
        let Some(waiting) = self.volumes.of(Some(id)) else { return };
        let deadlines = waiting.pods().map(|pod| self.cluster.pod(pod).volume_binding.as_deref());
        let Some(latest) = deadlines.flatten().map(|binding| binding.deadline).max() else { return };
        if let Some(attempt) = self.cluster.group_mut(id).lifecycle.attempt_mut() {
            attempt.deadline = latest.saturating_add(attempt.timeout_ms);
            let deadline = attempt.deadline;
            self.set_timer(deadline, Timer::StartDeadline(id));
        }
    }

    /// Whether any member waits for volumes.
    pub(crate) fn binds_volumes(&self, group: GroupId) -> bool {
        self.volumes.of(Some(group)).is_some() || self.volumes.changed_groups.contains(&group)
    }

    // Going on.

    /// The claims of a pod have changed: the next decision follows that.
    pub(super) fn note_volume_change(&mut self, id: PodId) {
        if self.cluster.pod_if_any(id).is_some_and(|pod| pod.volume_binding.is_some()) {
            self.volumes.changed_pods.insert(id);
        }
    }

    /// A node is gone: the next decision ends the placements on it that wait for volumes.
    pub(super) fn note_volume_changes_on(&mut self, node: NodeId) {
        let pods = self.cluster.node_if_any(node).map(|node| node.pods.clone()).unwrap_or_default();
        for pod in pods {
            self.note_volume_change(pod);
        }
    }

    /// Follows all changes since the last decision, once for each group however many claims have changed.
    pub(super) fn follow_volume_changes(&mut self) {
        if !self.volumes.has_changes() {
            return;
        }
        for pod in std::mem::take(&mut self.volumes.changed_pods) {
            let Some(group) = self.cluster.pod_if_any(pod).map(|pod| pod.group) else { continue };
            self.review_volume_binding(pod);
            match group {
                Some(group) => _ = self.volumes.changed_groups.insert(group),
                None => self.continue_volume_binding(pod),
            }
        }
        for group in std::mem::take(&mut self.volumes.changed_groups) {
            if self.cluster.group_if_any(group).is_none() {
                continue;
            }
            if self.cancel_start_without_minimum(group) {
                self.review_group(group);
            }
            self.send_next_stage_of(group);
            self.bind_ready_members(group);
            self.report_volumes(Entity::Group(group));
        }
        self.handle_events();
    }

    /// Takes the next step for the claims of a pod that is in no group, and binds it when it is ready.
    fn continue_volume_binding(&mut self, id: PodId) {
        if let Some(binding) = self.cluster.pod(id).volume_binding.as_deref() {
            let open = binding.open.clone();
            self.send_next_stage(&open);
            self.bind_if_ready(id);
            self.report_volumes(Entity::Pod(id));
        }
    }

    /// Looks at the claims that a pod waits for: one may be bound now, or refused.
    fn review_volume_binding(&mut self, id: PodId) {
        let pod = self.cluster.pod(id);
        let (Some(binding), PodState::Assumed(node)) = (pod.volume_binding.as_deref(), pod.state) else { return };
        if !self.cluster.node(node).present {
            return self.place_is_lost(id, node, "the node is gone");
        }
        for claim in binding.open.clone() {
            match self.is_claim_bound(claim, node) {
                Ok(true) => self.close_claim(id, claim),
                Ok(false) => {}
                Err(message) => return self.fail_claim_of(id, claim, &message),
            }
        }
    }

    /// A claim of a pod is bound.
    fn close_claim(&mut self, id: PodId, claim: ClaimId) {
        let pod = self.cluster.pod_mut(id);
        let group = pod.group;
        let Some(binding) = pod.volume_binding.as_deref_mut() else { return };
        binding.open.retain(|open| *open != claim);
        let left = !binding.open.is_empty();
        self.volumes.close(group, id, claim, left);
    }

    /// A group has changed: the start whose volumes are awaited may be over, or another pod may be bound.
    pub(super) fn review_volumes_of(&mut self, id: GroupId) {
        let Some(waiting) = self.volumes.of(Some(id)) else { return };
        let pods: BTreeSet<PodId> = waiting.pods().collect();
        self.volumes.changed_groups.insert(id);
        if self.cluster.group(id).definition.current().is_none() {
            // Nothing says what its minimum is.
            for pod in pods {
                self.give_up_place(pod);
            }
        }
    }

    /// Reports that a pod, or the members of a group, wait for volumes.
    pub(super) fn report_volumes(&mut self, entity: Entity) {
        let (claims, first) = match entity {
            Entity::Pod(pod) => {
                let open = self.cluster.pod(pod).volume_binding.as_deref().map(|binding| &binding.open);
                (open.map_or(0, Vec::len), open.and_then(|open| open.first().copied()))
            }
            Entity::Group(group) => {
                let claims = self.volumes.of(Some(group)).map(|waiting| &waiting.claims);
                let first = claims.and_then(|claims| claims.first_key_value().map(|(claim, _)| *claim));
                (claims.map_or(0, std::collections::BTreeMap::len), first)
            }
        };
        let Some(first) = first else { return };
        let of_entity = |pod: &PodId| match entity {
            Entity::Pod(one) => *pod == one,
            Entity::Group(group) => self.cluster.pod(*pod).group == Some(group),
        };
        let claim = self.cluster.storage.claim(first);
        let waits = |pod: &PodId| {
            let binding = self.cluster.pod(*pod).volume_binding.as_deref();
            of_entity(pod) && binding.is_some_and(|binding| binding.open.contains(&first))
        };
        let node = claim.users.iter().copied().find(waits).and_then(|pod| self.cluster.pod(pod).state.node());
        let Some(node) = node.map(|node| self.cluster.node(node).name.to_string()) else { return };
        let example = format!("{}/{}", claim.namespace, claim.name);
        let diagnosis = Diagnosis::Waiting(WaitingFor::Volumes { claims: claims as u32, example, node });
        match entity {
            Entity::Pod(pod) => self.report_pod(pod, diagnosis),
            Entity::Group(group) => self.report_group(group, diagnosis, Vec::new()),
        }
    }

    /// Whether the pods that wait for volumes, and what they wait for, are exactly what is listed.
    pub(crate) fn volume_bindings_are_listed(&self) -> bool {
        let waiting = || self.cluster.pods().filter_map(|(id, pod)| Some((id, pod, pod.volume_binding.as_deref()?)));
        waiting().all(|(_, pod, _)| matches!(pod.state, PodState::Assumed(_)))
            && self.volumes.audit(waiting().map(|(id, pod, binding)| (pod.group, id, binding.open.clone())))
    }

    // Ending.

    /// A pod is not placed any more, or not by us.
    pub(super) fn end_volume_binding(&mut self, id: PodId) {
        self.record_volume_wait(id, false);
    }

    /// A pod does not wait for volumes any more.
    fn record_volume_wait(&mut self, id: PodId, bound: bool) {
        let pod = self.cluster.pod_mut(id);
        let Some(ended) = pod.volume_binding.take() else { return };
        if ended.has_claims {
            let ms = self.now.saturating_sub(ended.since);
            self.volume_events.push(VolumeEvent::Waited { ms, bound });
        }
        let group = pod.group;
        self.volumes.changed_groups.extend(group);
        self.volumes.remove(group, id, &ended.open);
    }
}
