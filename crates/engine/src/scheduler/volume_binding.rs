//! Volume binding: between the decision and the binds, the claims of the placed pods are bound to volumes.
//!
//! Neither a bound pod nor a volume that is being provisioned can be taken back, so all claims of a gang's minimum are
//! bound before the first of its pods. The steps are taken for all placed pods together: claims that several of them
//! share are provisioned first, since where their volume turns out to be decides for all; then existing volumes are
//! reserved; then nodes are selected for what is to be provisioned. If one claim is refused or takes too long, none of
//! the pods that need it is bound: what was made stays, and the next decision is made with it.
//!
//! Nothing is remembered across a restart: the next process finds claims bound, volumes reserved and nodes selected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Engine, Timer};
use crate::cluster::group::MemberCounts;
use crate::cluster::lifecycle::Cause;
use crate::cluster::pod::{Awaited, BindingStep, ClaimBinding, Counted, MemberState, PodState, VolumeBinding};
use crate::cluster::storage::Choice;
use crate::cluster::transaction::Transaction;
use crate::command::Command;
use crate::diagnosis::{Diagnosis, Waiting};
use crate::filter;
use crate::model::Millis;
use crate::model::ids::{ClaimId, GroupId, NodeId, PodId};
use crate::model::storage::{ClaimName, StorageObservation, StorageWriteOutcome};
use crate::queue::Entity;
use crate::queue::backoff::doubled;

/// Assumed pods whose claims are being bound, by their group.
pub(super) type BindingVolumes = BTreeMap<Option<GroupId>, BTreeSet<PodId>>;

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

/// What a claim needs next: claims of an earlier stage are handled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It is provisioned, and several pods share it.
    Shared,
    /// It is bound to an existing volume.
    Reserve,
    /// It is provisioned.
    Provision,
}

impl Engine {
    // Beginning.

    /// Begins to bind the claims of pods that were just placed. Returns whether they, or others of their group, have to be
    /// waited for.
    pub(super) fn begin_volume_bindings(&mut self, placed: &[(PodId, NodeId)]) -> bool {
        let group = placed.first().and_then(|(pod, _)| self.cluster.pod(*pod).group);
        let mut waits = group.is_some_and(|group| self.binds_volumes(group));
        for (pod, node) in placed {
            waits |= self.begin_volume_binding(*pod, *node);
        }
        if waits {
            self.volumes_changed.extend(placed.iter().map(|(pod, _)| *pod));
            if let Some(group) = group {
                self.extend_deadline_for_volumes(group);
            }
            self.follow_volume_changes();
        }
        waits
    }

    fn begin_volume_binding(&mut self, id: PodId, node: NodeId) -> bool {
        let pod = self.cluster.pod(id);
        let unbound = self.cluster.storage.unbound_claims(&pod.claim_ids);
        if unbound.is_empty() {
            return false;
        }
        let own = pod.group.and_then(|group| self.cluster.group(group).definition.last()?.schedule_timeout_ms);
        let timeout_ms = own.unwrap_or(Millis::MAX).min(self.config.volume_bind_timeout_ms);
        let deadline = self.now.saturating_add(timeout_ms);
        let pending = |claim| ClaimBinding { claim, step: BindingStep::Pending, tries: 0 };
        let claims = unbound.into_iter().map(pending).collect();
        let group = pod.group;
        let name = self.cluster.node(node).name.clone();
        let pod = self.cluster.pod_mut(id);
        pod.volume_binding = Some(Box::new(VolumeBinding { since: self.now, deadline, claims }));
        // Autoscalers and the next process see where it will be.
        pod.shows_nomination = true;
        pod.awaited_nomination = Awaited::Node(name.clone());
        self.outbox.push(Command::Nominate { pod: pod.id.clone(), node: name });
        self.binding_volumes.entry(group).or_default().insert(id);
        self.set_timer(deadline, Timer::VolumeDeadline(id));
        true
    }

    /// A start may take as long as its volumes, and then as long as any start.
    fn extend_deadline_for_volumes(&mut self, id: GroupId) {
        let deadlines = self.binding_of(Some(id)).map(|pod| self.cluster.pod(pod).volume_binding.as_deref());
        let Some(latest) = deadlines.flatten().map(|binding| binding.deadline).max() else { return };
        if let Some(attempt) = self.cluster.group_mut(id).lifecycle.attempt_mut() {
            attempt.deadline = latest.saturating_add(attempt.timeout_ms);
            let deadline = attempt.deadline;
            self.set_timer(deadline, Timer::StartDeadline(id));
        }
    }

    /// The assumed pods whose claims are being bound.
    pub(super) fn binding_volumes(&self) -> &BindingVolumes {
        &self.binding_volumes
    }

    fn binding_of(&self, group: Option<GroupId>) -> impl Iterator<Item = PodId> {
        self.binding_volumes.get(&group).into_iter().flatten().copied()
    }

    /// Whether claims of any member are being bound.
    pub(crate) fn binds_volumes(&self, group: GroupId) -> bool {
        self.binding_volumes.contains_key(&Some(group)) || self.volume_groups_changed.contains(&group)
    }

    // Going on.

    /// The claims of a pod, or its place in its group, have changed: the next decision follows that.
    pub(super) fn note_volume_change(&mut self, id: PodId) {
        if self.cluster.pod_if_any(id).is_some_and(|pod| pod.volume_binding.is_some()) {
            self.volumes_changed.insert(id);
        }
    }

    /// Follows all changes since the last decision, once for each group however many claims have changed.
    pub(super) fn follow_volume_changes(&mut self) {
        if self.volumes_changed.is_empty() && self.volume_groups_changed.is_empty() {
            return;
        }
        for pod in std::mem::take(&mut self.volumes_changed) {
            let Some(group) = self.cluster.pod_if_any(pod).map(|pod| pod.group) else { continue };
            self.review_volume_binding(pod);
            match group {
                Some(group) => _ = self.volume_groups_changed.insert(group),
                None => self.continue_volume_binding(pod),
            }
        }
        for group in std::mem::take(&mut self.volume_groups_changed) {
            if self.cluster.group_if_any(group).is_none() {
                continue;
            }
            if self.cancel_start_without_minimum(group) {
                self.review_group(group);
            }
            let pods: Vec<PodId> = self.binding_of(Some(group)).collect();
            self.send_next_stage(&pods);
            self.bind_ready_members(group);
            self.report_volumes(Entity::Group(group));
        }
        self.handle_events();
    }

    /// Takes the next step for the claims of a pod that is in no group, and binds it when it is ready.
    fn continue_volume_binding(&mut self, id: PodId) {
        if self.cluster.pod(id).volume_binding.is_some() {
            self.send_next_stage(&[id]);
            self.bind_if_ready(id);
            self.report_volumes(Entity::Pod(id));
        }
    }

    /// Sends the writes of the first stage that is not done, for all of these pods.
    fn send_next_stage(&mut self, pods: &[PodId]) {
        let mut open: Vec<(Stage, PodId, usize, BindingStep)> = Vec::new();
        for pod in pods {
            let binding = self.cluster.pod(*pod).volume_binding.as_deref();
            for (index, claim) in binding.into_iter().flat_map(|binding| binding.claims.iter().enumerate()) {
                open.extend(self.stage_of(*pod, claim.claim).map(|stage| (stage, *pod, index, claim.step)));
            }
        }
        // Reserved volumes need not be bound before others are provisioned.
        let is_done = |stage: Stage, step: BindingStep| match step {
            BindingStep::Bound => true,
            BindingStep::Written { .. } => stage != Stage::Shared,
            _ => false,
        };
        let Some(stage) = open.iter().filter(|(stage, _, _, step)| !is_done(*stage, *step)).map(|open| open.0).min()
        else {
            return;
        };
        for (of, pod, index, step) in open {
            if of == stage && step == BindingStep::Pending {
                self.send_claim(pod, index);
            }
        }
    }

    /// The stage of a claim of a pod; `None` if nothing was chosen for it.
    fn stage_of(&self, pod: PodId, claim: ClaimId) -> Option<Stage> {
        let (_, choice) = self.cluster.pod(pod).volume_plan.as_deref()?.0.iter().find(|(of, _)| *of == claim)?;
        let is_shared = self.cluster.storage.claim(claim).users.len() > 1;
        Some(match choice {
            Choice::Provision { .. } if is_shared => Stage::Shared,
            Choice::Provision { .. } => Stage::Provision,
            Choice::Volume(_) => Stage::Reserve,
        })
    }

    /// Writes what was chosen for a claim, unless the API shows it already or another pod has it written.
    fn send_claim(&mut self, id: PodId, index: usize) {
        let pod = self.cluster.pod(id);
        let Some(binding) = pod.volume_binding.as_deref() else { return };
        let claim_id = binding.claims[index].claim;
        let choice = pod.volume_plan.as_deref().and_then(|plan| plan.0.iter().find(|(of, _)| *of == claim_id));
        let (Some((_, choice)), Some(claim)) = (choice, self.cluster.storage.claim(claim_id).spec.clone()) else {
            return;
        };
        let choice = choice.clone();
        let others = self.cluster.storage.claim(claim_id).users.iter().copied().filter(|other| *other != id);
        let written_by_other = others.into_iter().any(|other| {
            let binding = self.cluster.pod(other).volume_binding.as_deref();
            let claims = binding.into_iter().flat_map(|binding| &binding.claims);
            claims.into_iter().any(|other| other.claim == claim_id && other.step != BindingStep::Pending)
        });
        let command = match &choice {
            _ if written_by_other => None,
            Choice::Provision { node, .. } => {
                let node = node.clone();
                let shown = claim.selected_node == *node;
                (!shown).then(|| Command::SelectNode { claim: claim.id.clone(), version: claim.version.clone(), node })
            }
            Choice::Volume(volume) => {
                let volume = self.cluster.storage.volume(*volume);
                let Some(spec) = volume.spec.as_deref() else { return };
                let shown = spec.claim.as_ref().is_some_and(|of| of.uid == claim.id.uid);
                (!shown).then(|| Command::ReserveVolume {
                    claim: claim.id.clone(),
                    claim_version: claim.version.clone(),
                    volume: volume.name.clone(),
                    version: spec.version.clone(),
                })
            }
        };
        let is_sent = command.is_some();
        self.outbox.extend(command);
        if let Some(binding) = self.claim_binding_mut(id, claim_id) {
            binding.tries += u32::from(is_sent);
            // What another pod writes is seen when it is there.
            let written = BindingStep::Written { seen: !written_by_other };
            binding.step = if is_sent { BindingStep::Sent } else { written };
        }
    }

    fn claim_binding_mut(&mut self, pod: PodId, claim: ClaimId) -> Option<&mut ClaimBinding> {
        let binding = self.cluster.pod_mut(pod).volume_binding.as_deref_mut()?;
        binding.claims.iter_mut().find(|binding| binding.claim == claim)
    }

    /// The outcome of a write.
    pub(super) fn storage_write_done(&mut self, name: &Arc<ClaimName>, outcome: &StorageWriteOutcome) {
        let Some(claim) = self.cluster.storage.claim_id(&name.namespace, &name.name) else { return };
        let sent = |pod: &PodId| {
            let binding = self.cluster.pod(*pod).volume_binding.as_deref();
            let mut claims = binding.into_iter().flat_map(|binding| &binding.claims);
            claims.any(|binding| binding.claim == claim && binding.step == BindingStep::Sent)
        };
        let Some(pod) = self.cluster.storage.claim(claim).users.iter().copied().find(sent) else { return };
        match outcome {
            StorageWriteOutcome::Written => {
                if let Some(binding) = self.claim_binding_mut(pod, claim) {
                    binding.step = BindingStep::Written { seen: false };
                }
                self.note_volume_change(pod);
            }
            StorageWriteOutcome::Transient { .. } => {
                let (now, initial, max) = (self.now, self.config.bind_retry_ms_initial, self.config.bind_retry_ms_max);
                let Some(binding) = self.claim_binding_mut(pod, claim) else { return };
                let due = now.saturating_add(doubled(initial, binding.tries).min(max));
                binding.step = BindingStep::Retry(due);
                self.set_timer(due, Timer::RetryVolume(pod));
            }
            StorageWriteOutcome::Refused { message } => self.fail_claim(claim, message),
        }
    }

    /// Sends failed writes again.
    pub(super) fn retry_volumes(&mut self, id: PodId, due: Millis) {
        let Some(binding) = self.cluster.pod_if_any(id).and_then(|pod| pod.volume_binding.as_deref()) else { return };
        let is_due = |claim: &ClaimBinding| claim.step == BindingStep::Retry(due);
        let claims: Vec<ClaimId> = binding.claims.iter().filter(|claim| is_due(claim)).map(|one| one.claim).collect();
        for claim in claims {
            if let Some(binding) = self.claim_binding_mut(id, claim) {
                binding.step = BindingStep::Pending;
            }
        }
        self.note_volume_change(id);
    }

    // Following what the API shows.

    /// Applies a change of storage: updates the classes of the pods concerned and follows their binding.
    pub(super) fn storage_seen(&mut self, observation: StorageObservation) {
        let pods = self.cluster.apply_storage(observation);
        for pod in pods {
            self.refresh_demand(pod);
            self.note_volume_change(pod);
        }
    }

    /// Looks at the claims of a pod that are being bound: one may be bound now, or refused.
    fn review_volume_binding(&mut self, id: PodId) {
        let pod = self.cluster.pod(id);
        let (Some(binding), PodState::Assumed(node)) = (pod.volume_binding.clone(), pod.state) else { return };
        let mut steps = Vec::new();
        let pending = binding.claims.iter().find(|claim| claim.step == BindingStep::Pending);
        if let Some(pending) = pending.filter(|pending| self.stage_of(id, pending.claim).is_none()) {
            return self.fail_claim_of(id, pending.claim, "no volume is left for it on the node");
        }
        for claim in &binding.claims {
            match self.followed(claim, pod.volume_plan.as_deref().and_then(|plan| plan.of(claim.claim)), node) {
                Ok(step) => steps.push(step),
                Err(message) => return self.fail_claim_of(id, claim.claim, &message),
            }
        }
        if let Some(binding) = self.cluster.pod_mut(id).volume_binding.as_deref_mut() {
            for (claim, step) in binding.claims.iter_mut().zip(steps) {
                claim.step = step;
            }
        }
    }

    /// How far a claim is by what the API shows, or why it failed.
    fn followed(&self, binding: &ClaimBinding, choice: Option<&Choice>, node: NodeId) -> Result<BindingStep, String> {
        let storage = &self.cluster.storage;
        let claim = storage.claim(binding.claim);
        let Some(spec) = claim.spec.as_deref() else { return Err("the claim is gone".to_owned()) };
        if spec.terminating {
            return Err("the claim is being deleted".to_owned());
        }
        if spec.lost {
            return Err("the volume of the claim is lost".to_owned());
        }
        if spec.bind_completed {
            // The volume may be seen later than the claim that names it.
            let Some(volume) = storage.volume_id(&spec.volume) else { return Ok(binding.step) };
            if storage.volume(volume).spec.is_none() {
                return Ok(binding.step);
            }
            if storage.is_accessible(volume, self.cluster.node(node)) {
                return Ok(BindingStep::Bound);
            }
            return Err(format!("its volume {} is not accessible from the node", spec.volume));
        }
        let BindingStep::Written { seen } = binding.step else { return Ok(binding.step) };
        let shown = match choice {
            Some(Choice::Provision { node: selected, .. }) => {
                if !spec.selected_node.is_empty() && spec.selected_node != **selected {
                    return Err(format!("another node, {}, is selected for its volume", spec.selected_node));
                }
                !spec.selected_node.is_empty()
            }
            Some(Choice::Volume(volume)) => {
                let of = storage.volume(*volume).spec.as_deref().and_then(|volume| volume.claim.as_ref());
                // Until the write is seen it may name the claim without its UID, as its administrator has written it.
                let names_it = |of: &ClaimName| {
                    let same_name = (&of.namespace, &of.name) == (&spec.id.namespace, &spec.id.name);
                    of.uid == spec.id.uid || (of.uid.is_empty() && same_name)
                };
                if of.is_some_and(|of| !names_it(of)) {
                    return Err("its volume is reserved for another claim".to_owned());
                }
                of.is_some_and(|of| of.uid == spec.id.uid)
            }
            None => seen,
        };
        match (seen, shown, choice) {
            (true, false, Some(Choice::Volume(_))) => Err("its volume is not reserved for it any more".to_owned()),
            (true, false, _) => {
                Err(format!("{} refused to make a volume for the node", self.provisioner(binding.claim)))
            }
            _ => Ok(BindingStep::Written { seen: shown }),
        }
    }

    /// The provisioner of a claim, for messages.
    fn provisioner(&self, claim: ClaimId) -> String {
        format!("the provisioner {}", self.cluster.storage.provisioner_of(claim))
    }

    /// Binds a pod that is not in a group as soon as its claims are bound.
    fn bind_if_ready(&mut self, id: PodId) {
        let pod = self.cluster.pod(id);
        let (Some(binding), PodState::Assumed(node)) = (pod.volume_binding.as_deref(), pod.state) else { return };
        if !binding.is_done() {
            return;
        }
        if self.still_fits(id, node) {
            self.record_volume_wait(id, true);
            self.send_bind(id, node);
        } else {
            self.place_is_lost(id, node);
        }
    }

    /// Whether the node of an assumed pod is still right for it: it may have changed since it was chosen, and so may
    /// claims that were bound before.
    fn still_fits(&mut self, id: PodId, node: NodeId) -> bool {
        if self.cluster.pod(id).unusable.is_some() {
            return false;
        }
        let (class, priority) = self.shape_of(id);
        let mut transaction = Transaction::new(&mut self.cluster);
        transaction.remove(id);
        let cluster = transaction.cluster();
        let view = filter::view(cluster, node, priority);
        let (class, node) = (cluster.class(class), cluster.node(node));
        filter::passes_static_filters(class, node) && filter::has_room_ignoring_inter_pod(class, node, &view)
    }

    /// The node of an assumed pod is not right for it any more, or a claim cannot be used any more.
    fn place_is_lost(&mut self, id: PodId, node: NodeId) {
        let node = self.cluster.node(node).name.clone();
        let unusable = self.cluster.pod(id).unusable.as_ref().map(|unusable| unusable.reason.clone());
        let message = unusable.unwrap_or_else(|| "the node has changed while volumes were bound".to_owned());
        self.fail_placement(id, Diagnosis::BindFailed { node: node.to_string(), message }, &node);
    }

    /// Binds the members whose claims are bound, if their group has its minimum with them.
    pub(super) fn bind_ready_members(&mut self, id: GroupId) {
        let is_done =
            |pod: &PodId| self.cluster.pod(*pod).volume_binding.as_deref().is_some_and(VolumeBinding::is_done);
        let pending: BTreeSet<PodId> = self.binding_of(Some(id)).filter(|pod| !is_done(pod)).collect();
        if !self.has_minimum_without(id, &pending) {
            return;
        }
        let waits = |pod: PodId| {
            let (state, bind) = (self.cluster.pod(pod).state, self.cluster.pod(pod).bind.as_deref());
            let idle = bind.is_some_and(|bind| !bind.in_flight && bind.retry_at.is_none());
            match state {
                PodState::Assumed(node) if idle && !pending.contains(&pod) => Some((pod, node)),
                _ => None,
            }
        };
        let members = self.cluster.group(id).members.iter();
        let ready: Vec<(PodId, NodeId)> = members.filter_map(|(_, pod)| waits(*pod)).collect();
        if ready.is_empty() {
            return;
        }
        if let Some((pod, node)) = ready.iter().copied().find(|(pod, node)| !self.still_fits(*pod, *node)) {
            return self.place_is_lost(pod, node);
        }
        let timeout_ms = self.schedule_timeout_ms(id);
        let deadline = self.now.saturating_add(timeout_ms);
        if let Some(attempt) = self.cluster.group_mut(id).lifecycle.attempt_mut().filter(|_| pending.is_empty()) {
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
        let mut there: Vec<u32> = group.member_counts.iter().map(MemberCounts::placed).collect();
        for pod in without {
            if let Counted::In { subset, member_state: MemberState::Assumed } = self.cluster.pod(*pod).counted {
                there[usize::from(subset)] -= 1;
            }
        }
        let quorum = group.cap_at_minimum(&attempt.quorum);
        there.iter().zip(&quorum).all(|(there, needed)| there >= needed)
    }

    /// A group has changed: the start whose volumes are awaited may be over, or another pod may be bound.
    pub(super) fn review_volumes_of(&mut self, id: GroupId) {
        if !self.binding_volumes.contains_key(&Some(id)) {
            return;
        }
        self.volume_groups_changed.insert(id);
        if self.cluster.group(id).definition.current().is_none() {
            // Nothing says what its minimum is.
            for pod in self.binding_of(Some(id)).collect::<Vec<PodId>>() {
                self.give_up_place(pod);
            }
        }
    }

    /// Whether the pods whose claims are being bound are exactly those that are listed.
    pub(crate) fn binding_volumes_are_listed(&self) -> bool {
        let mut listed = BindingVolumes::new();
        for (id, pod) in self.cluster.pods().filter(|(_, pod)| pod.volume_binding.is_some()) {
            if !matches!(pod.state, PodState::Assumed(_)) {
                return false;
            }
            listed.entry(pod.group).or_default().insert(id);
        }
        listed == self.binding_volumes
    }

    // Ending.

    /// A pod is not placed any more, or not by us.
    pub(super) fn end_volume_binding(&mut self, id: PodId) {
        self.record_volume_wait(id, false);
    }

    /// A pod does not wait for its volumes any more.
    fn record_volume_wait(&mut self, id: PodId, bound: bool) {
        let pod = self.cluster.pod_mut(id);
        let Some(ended) = pod.volume_binding.take() else { return };
        let ms = self.now.saturating_sub(ended.since);
        self.volume_events.push(VolumeEvent::Waited { ms, bound });
        let group = pod.group;
        self.volume_groups_changed.extend(group);
        if let Some(pods) = self.binding_volumes.get_mut(&group) {
            pods.remove(&id);
            if pods.is_empty() {
                self.binding_volumes.remove(&group);
            }
        }
    }

    /// The deadline of a pod's claims has passed.
    pub(super) fn on_volume_deadline(&mut self, id: PodId, due: Millis) {
        let Some(binding) = self.cluster.pod_if_any(id).and_then(|pod| pod.volume_binding.as_deref()) else { return };
        if binding.deadline != due {
            return;
        }
        let Some(late) = binding.claims.iter().find(|claim| claim.step != BindingStep::Bound) else { return };
        let claim = late.claim;
        let message = match (late.step, self.stage_of(id, claim)) {
            (BindingStep::Pending, _) => "another claim of its group was not bound in time".to_owned(),
            (_, Some(Stage::Shared | Stage::Provision)) => {
                format!("{} made no volume in time", self.provisioner(claim))
            }
            _ => "the volume controller did not bind it in time".to_owned(),
        };
        self.fail_claim_of(id, claim, &message);
    }

    /// A claim cannot be bound: neither can the pods that use it.
    fn fail_claim(&mut self, claim: ClaimId, message: &str) {
        for pod in self.cluster.storage.claim(claim).users.clone() {
            let binding = self.cluster.pod_if_any(pod).and_then(|pod| pod.volume_binding.as_deref());
            if binding.is_some_and(|binding| binding.claims.iter().any(|binding| binding.claim == claim)) {
                self.fail_claim_of(pod, claim, message);
            }
        }
    }

    /// A claim of an assumed pod cannot be bound: the pod waits again and avoids the node in the next attempt. If its
    /// group cannot start without it, neither is any other member placed any more.
    fn fail_claim_of(&mut self, id: PodId, claim: ClaimId, message: &str) {
        let PodState::Assumed(node) = self.cluster.pod(id).state else { return };
        let node_name = self.cluster.node(node).name.clone();
        let provisioner = self.cluster.storage.provisioner_of(claim).to_owned();
        let claim = self.cluster.storage.claim(claim);
        let (claim, node, message) =
            (format!("{}/{}", claim.namespace, claim.name), node_name.to_string(), message.to_owned());
        let failed = VolumeEvent::Failed { claim: claim.clone(), provisioner };
        // The pods that share a claim fail together.
        if !self.volume_events.contains(&failed) {
            self.volume_events.push(failed);
        }
        self.fail_placement(id, Diagnosis::VolumeBindFailed { claim, node, message }, &node_name);
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
    fn cancel_start_without_minimum(&mut self, id: GroupId) -> bool {
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
    pub(super) fn forget_unbound_start(&mut self, id: GroupId) {
        let group = self.cluster.group_mut(id);
        if group.total().assumed == 0 && group.total().bound == 0 {
            group.lifecycle.apply(Cause::DeadlinePassed { kept: false });
        }
    }

    /// A pod whose claims were being bound is not placed any more.
    pub(super) fn give_up_place(&mut self, id: PodId) {
        self.end_volume_binding(id);
        self.cluster.set_state(id, PodState::Waiting);
        self.clear_nomination_in_api(id);
    }

    /// Reports that a pod, or the members of a group, wait for volumes.
    pub(super) fn report_volumes(&mut self, entity: Entity) {
        let pods: Vec<PodId> = match entity {
            Entity::Pod(pod) => vec![pod],
            Entity::Group(group) => self.binding_of(Some(group)).collect(),
        };
        let mut waiting: BTreeMap<ClaimId, PodId> = BTreeMap::new();
        for pod in pods {
            let binding = self.cluster.pod(pod).volume_binding.as_deref();
            let open = binding.into_iter().flat_map(|binding| &binding.claims);
            for claim in open.filter(|claim| claim.step != BindingStep::Bound) {
                waiting.entry(claim.claim).or_insert(pod);
            }
        }
        let Some((claim, pod)) = waiting.first_key_value() else { return };
        let Some(node) = self.cluster.pod(*pod).state.node() else { return };
        let claim = self.cluster.storage.claim(*claim);
        let example = format!("{}/{}", claim.namespace, claim.name);
        let node = self.cluster.node(node).name.to_string();
        let diagnosis = Diagnosis::Waiting(Waiting::Volumes { claims: waiting.len() as u32, example, node });
        match entity {
            Entity::Pod(pod) => self.report_pod(pod, diagnosis),
            Entity::Group(group) => self.report_group(group, diagnosis, Vec::new()),
        }
    }
}
