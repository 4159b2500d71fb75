//! Binding: sends binds, retries them, moves pods to other nodes, confirms gang starts or rolls them back.
//!
//! Kubernetes cannot unbind. If a gang's minimum is not confirmed by its deadline, its bound members are deleted, but
//! only those that a controller recreates; the others stay, and the group reports that and is retried. After a restart
//! `found_members` decides which bound pods belong to a start.

use std::sync::Arc;

use super::{Engine, Timer};
use crate::cluster::group::sum_of;
use crate::cluster::lifecycle::Cause;
use crate::cluster::pod::{Bind, Counted, Pod, PodState, StartRole};
use crate::command::Command;
use crate::diagnosis::Diagnosis;
use crate::model::Millis;
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::model::pod::PodName;
use crate::observation::{BindOutcome, DeleteOutcome};
use crate::queue::backoff::{PAUSE_MS_MAX, doubled, pause_ms};
use crate::queue::{Entity, QueueState};

impl Engine {
    /// Sends the binds of a pod, or of members of one group, that were just placed.
    pub(super) fn send_binds(&mut self, placed: &[(PodId, NodeId)]) {
        let group = placed.first().and_then(|(pod, _)| self.cluster.pod(*pod).group);
        let starting = group.and_then(|group| self.start_stamp(group, false)).map(Arc::new);
        let started = group.and_then(|group| self.start_stamp(group, true)).map(Arc::new);
        for (pod, _) in placed {
            let start = if self.cluster.pod(*pod).start_role == StartRole::Tentative { &starting } else { &started };
            // The API clears a nomination when it binds.
            self.set_nomination(*pod, None);
            let avoid = self.cluster.pod_mut(*pod).bind.take().map(|bind| bind.avoid).unwrap_or_default();
            let deadline = self.now.saturating_add(self.config.bind_timeout_ms);
            let bind = Bind { tries: 0, in_flight: false, retry_at: None, deadline, avoid, start: start.clone() };
            self.cluster.pod_mut(*pod).bind = Some(Box::new(bind));
        }
        let has_claims = placed.iter().any(|(pod, _)| !self.cluster.pod(*pod).claim_ids.is_empty());
        if (has_claims || group.is_some_and(|group| self.binds_volumes(group))) && self.begin_volume_bindings(placed) {
            return;
        }
        for (pod, node) in placed {
            self.send_bind(*pod, *node);
        }
    }

    pub(super) fn send_bind(&mut self, id: PodId, node: NodeId) {
        let node = self.cluster.node(node).name.clone();
        let pod = self.cluster.pod_mut(id);
        let mut start = None;
        if let Some(bind) = &mut pod.bind {
            bind.tries += 1;
            bind.in_flight = true;
            bind.retry_at = None;
            start.clone_from(&bind.start);
        }
        self.outbox.push(Command::Bind { pod: pod.id.clone(), node, start });
    }

    pub(super) fn bind_done(&mut self, name: &PodName, node: &Arc<str>, outcome: BindOutcome) {
        let Some(id) = self.cluster.pod_id(&name.uid) else { return };
        let state = self.cluster.pod(id).state;
        let named = self.cluster.node_id(node);
        let expected = matches!(state, PodState::Assumed(assumed) if Some(assumed) == named);
        match outcome {
            BindOutcome::Bound => self.on_bound(id, node),
            BindOutcome::Transient { message } if expected => self.schedule_bind_retry(id, &message),
            BindOutcome::Refused { message } if expected => self.abandon_bind(id, &message),
            // The outcome of a bind that was superseded.
            BindOutcome::Transient { .. } | BindOutcome::Refused { .. } => {}
        }
    }

    /// The pod is bound to this node, even if the engine has decided otherwise since.
    fn on_bound(&mut self, id: PodId, node: &Arc<str>) {
        let old = self.cluster.pod(id).state;
        if matches!(old, PodState::Bound(_) | PodState::Finished { .. }) {
            return;
        }
        let target = self.cluster.node_for_pod(node);
        self.cluster.pod_mut(id).bind = None;
        self.end_volume_binding(id);
        self.cluster.confirm_bind(id, target);
        self.set_nomination(id, None);
        self.reports.forget(Entity::Pod(id));
        self.on_member_bound(id);
        self.review_after_change(id);
    }

    /// A member that this process placed is bound. If its start was rolled back meanwhile, a new one begins.
    pub(super) fn on_member_bound(&mut self, id: PodId) {
        let pod = self.cluster.pod(id);
        // Pods that another scheduler bound are not part of a start.
        let (Some(group_id), role) = (pod.group.filter(|_| pod.ours), pod.start_role) else { return };
        let group = self.cluster.group_mut(group_id);
        group.consecutive_refusals = 0;
        let starting = group.lifecycle.attempt().is_some();
        if role == StartRole::Tentative && !group.is_gang() {
            // Without a minimum, every bound member has started, in case the group gets a minimum again.
            self.cluster.pod_mut(id).start_role = StartRole::None;
        } else if role == StartRole::Tentative && !starting && group.is_new_start(&group.quorum_to_confirm()) {
            let quorum = group.quorum_to_confirm();
            self.start_attempt(group_id, quorum);
            self.limit_deadline(group_id, id);
        }
    }

    fn schedule_bind_retry(&mut self, id: PodId, message: &str) {
        let (now, initial, max) = (self.now, self.config.bind_retry_ms_initial, self.config.bind_retry_ms_max);
        let pod = self.cluster.pod_mut(id);
        let Some(bind) = pod.bind.as_deref_mut() else { return };
        if pod.terminating {
            self.abandon_bind(id, message);
            return;
        }
        bind.in_flight = false;
        let due = now.saturating_add(doubled(initial, bind.tries).min(max));
        bind.retry_at = Some(due);
        self.set_timer(due, Timer::RetryBind(id));
    }

    /// Sends a bind again, unless its deadline has passed.
    pub(super) fn retry_bind(&mut self, id: PodId, due: Millis) {
        let Some(pod) = self.cluster.pod_if_any(id) else { return };
        let PodState::Assumed(node) = pod.state else { return };
        let Some(bind) = pod.bind.as_deref().filter(|bind| bind.retry_at == Some(due)) else { return };
        let in_attempt = pod.group.is_some_and(|group| self.cluster.group(group).lifecycle.attempt().is_some());
        // A gang start has its own deadline; the binds of other pods are abandoned after a while.
        let too_late = !in_attempt && bind.deadline <= self.now;
        if let Some(unusable) = pod.unusable.clone() {
            self.abandon_bind(id, &unusable.reason);
        } else if too_late || pod.terminating || !self.cluster.node(node).present {
            self.abandon_bind(id, "the bind did not succeed in time");
        } else {
            self.send_bind(id, node);
        }
    }

    /// The bind to this node failed: the pod waits again and avoids the node in the next attempt.
    fn abandon_bind(&mut self, id: PodId, message: &str) {
        let PodState::Assumed(node) = self.cluster.pod(id).state else { return };
        let name = self.cluster.node(node).name.clone();
        if let Some(bind) = &mut self.cluster.pod_mut(id).bind {
            bind.in_flight = false;
            bind.retry_at = None;
            bind.avoid.push(name.clone());
        }
        self.give_up_place(id);
        self.report_pod(id, Diagnosis::BindFailed { node: name.to_string(), message: message.to_owned() });
        let group = self.cluster.pod(id).group;
        match group {
            Some(group) => self.count_refusal(group),
            None => self.count_failure(Entity::Pod(id), 1),
        }
        self.review_after_change(id);
    }

    /// After the first refusal members are placed again at once, after further ones with growing pauses.
    pub(super) fn count_refusal(&mut self, id: GroupId) {
        let (now, initial) = (self.now, self.config.backoff_ms_initial);
        let group = self.cluster.group_mut(id);
        if group.refused_decision == group.decisions {
            return;
        }
        group.refused_decision = group.decisions;
        group.consecutive_refusals = group.consecutive_refusals.saturating_add(1);
        let pause = doubled(initial, group.consecutive_refusals.saturating_sub(1)).min(PAUSE_MS_MAX);
        group.repair_not_before = now.saturating_add(pause);
    }

    pub(super) fn count_failure(&mut self, entity: Entity, size: usize) {
        if self.queue.entry(entity).is_some() {
            let (initial, max) = (self.config.backoff_ms_initial, self.config.backoff_ms_max);
            self.queue.record_failure(entity, self.now, |failures| pause_ms(initial, max, failures, size));
        }
    }

    /// The deadline of a start: if it is not confirmed, it is rolled back.
    pub(super) fn on_start_deadline(&mut self, id: GroupId, due: Millis) {
        let Some(group) = self.cluster.group_if_any(id) else { return };
        let Some(attempt) = group.lifecycle.attempt().filter(|attempt| attempt.deadline == due) else { return };
        if group.definition.current().is_none() {
            // Pods that are created again could not start without an object.
            self.keep_start(id);
            self.review_group(id);
            return;
        }
        let quorum = group.cap_at_minimum(&attempt.quorum);
        let (minimum, scheduled) = (sum_of(&quorum), group.total().scheduled());
        if let Some(part) = group.complete_part(&quorum) {
            return self.confirm_part_of_tree(id, part);
        }
        let first_start = group.lifecycle.confirmed().is_none();
        let members = group.members.iter().map(|(_, member)| *member);
        let members: Vec<PodId> = members.filter(|member| !group.is_former(*member)).collect();
        let (mut rolled_back, mut kept, mut stays) = (0, 0, false);
        for member in members {
            let pod = self.cluster.pod(member);
            let mut this_start = pod.start_role == StartRole::Tentative;
            let stays_for_good = self.has_run_long(id, pod) || self.is_of_former_object(id, pod);
            if this_start && !pod.is_leaving() && stays_for_good {
                // The deadline is handled late, or the object was created again since the bind: the pod stays.
                this_start = false;
                self.cluster.pod_mut(member).start_role = StartRole::None;
            }
            let pod = self.cluster.pod(member);
            let idle = pod.bind.as_deref().is_none_or(|bind| !bind.in_flight);
            match pod.state {
                PodState::Bound(_) if !pod.ours || pod.is_leaving() => {}
                PodState::Bound(_) if this_start && pod.controlled => {
                    self.roll_back(member);
                    rolled_back += 1;
                }
                PodState::Bound(_) => {
                    kept += u32::from(this_start);
                    stays |= this_start || first_start;
                }
                // A bind in flight cannot be cancelled; its outcome is handled when it arrives.
                PodState::Assumed(_) if idle => self.forget_assumed(member),
                _ => {}
            }
        }
        self.cluster.group_mut(id).lifecycle.apply(Cause::DeadlinePassed { kept: stays });
        let entity = Entity::Group(id);
        self.report_group(id, Diagnosis::TimedOut { minimum, scheduled, rolled_back, kept, victims: None }, Vec::new());
        self.count_failure(entity, self.cluster.group(id).members.len());
        if self.queue.entry(entity).is_some() {
            self.queue.move_to(entity, QueueState::Held);
        }
        self.review_group(id);
    }

    /// The time of a start is over, and a part of the tree is complete that can go on without the rest: only the rest
    /// is
    /// undone.
    fn confirm_part_of_tree(&mut self, id: GroupId, part: Vec<u32>) {
        let group = self.cluster.group(id);
        let belongs = |pod: &Pod| matches!(pod.counted, Counted::In { subset, .. } if part[usize::from(subset)] > 0);
        let is_of_rest = |member: &PodId| {
            let pod = self.cluster.pod(*member);
            pod.start_role == StartRole::Tentative && !belongs(pod)
        };
        let rest: Vec<PodId> = group.members.iter().map(|(_, member)| *member).filter(is_of_rest).collect();
        for member in rest.iter().copied() {
            let pod = self.cluster.pod(member);
            let stays = !pod.controlled || self.has_run_long(id, pod) || self.is_of_former_object(id, pod);
            let idle = pod.bind.as_deref().is_none_or(|bind| !bind.in_flight);
            match pod.state {
                PodState::Bound(_) if !pod.ours || pod.is_leaving() => {}
                PodState::Bound(_) if stays => self.cluster.pod_mut(member).start_role = StartRole::None,
                PodState::Bound(_) => self.roll_back(member),
                PodState::Assumed(_) if idle => self.forget_assumed(member),
                _ => {}
            }
        }
        self.start_confirmed(id, part);
        for member in rest {
            let pod = self.cluster.pod_mut(member);
            // A bind in flight may still succeed: then it is a start of its own, as after any other deadline.
            if matches!(pod.state, PodState::Assumed(_)) || pod.rolling_back {
                pod.start_role = StartRole::Tentative;
            }
        }
        self.count_failure(Entity::Group(id), self.cluster.group(id).members.len());
        self.review_group(id);
    }

    fn forget_assumed(&mut self, id: PodId) {
        self.cluster.pod_mut(id).bind = None;
        // The bind would have cleared its nomination.
        self.give_up_place(id);
        self.review_refusal(id);
    }

    pub(super) fn roll_back(&mut self, id: PodId) {
        self.cluster.change_pod(id, |pod| pod.rolling_back = true);
        self.outbox.push(Command::RollBack { pod: self.cluster.pod(id).id.clone() });
    }

    pub(super) fn roll_back_done(&mut self, name: &PodName, outcome: &DeleteOutcome) {
        let Some(id) = self.cluster.pod_id(&name.uid).filter(|id| self.cluster.pod(*id).rolling_back) else { return };
        match outcome {
            // The watch shows that it is terminating and gone.
            DeleteOutcome::Deleted => {}
            DeleteOutcome::Transient { .. } => {
                let due = self.now.saturating_add(self.config.bind_retry_ms_max);
                self.set_timer(due, Timer::RetryRollBack(id));
            }
            DeleteOutcome::Refused { .. } => self.abandon_roll_back(id),
        }
    }

    /// The pod stays although its bind was to be rolled back.
    fn abandon_roll_back(&mut self, id: PodId) {
        self.cluster.cancel_roll_back(id);
        if let Some(group) = self.cluster.pod(id).group {
            self.cluster.group_mut(group).lifecycle.apply(Cause::RollBackRefused);
        }
        self.review_after_change(id);
    }

    pub(super) fn retry_roll_back(&mut self, id: PodId, _due: Millis) {
        let Some(pod) = self.cluster.pod_if_any(id) else { return };
        let (Some(group), true, PodState::Bound(_)) = (pod.group, pod.rolling_back, pod.state) else { return };
        let uid = self.cluster.group(group).definition.current().map(|spec| &spec.uid);
        let is_own = uid.is_some_and(|uid| pod.start.as_ref().is_none_or(|stamp| stamp.group_uid == *uid));
        // A degraded gang is evicted whatever its members have done.
        let is_of_start = pod.start_role == StartRole::Tentative;
        if is_own && !(is_of_start && self.has_run_long(group, pod)) {
            self.roll_back(id);
        } else {
            // The object whose start failed is gone, or the pod has run for too long meanwhile.
            self.cluster.pod_mut(id).start_role = StartRole::None;
            self.abandon_roll_back(id);
        }
    }
}
