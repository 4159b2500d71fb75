//! From a decision to its end: binds that are sent, sent again, repaired elsewhere, confirmed, or taken back.
//!
//! Kubernetes cannot unbind. If a gang's minimum is not confirmed by its deadline, its bound members are deleted,
//! but only those that a controller will make again; the others stay, the group says so and is tried again.
//! After a restart the same rules pick up from what the API shows.

use std::sync::Arc;

use super::{Engine, Timer};
use crate::cluster::group::sum_of;
use crate::cluster::pod::{Bind, Part, PodState};
use crate::command::Command;
use crate::diagnosis::Diagnosis;
use crate::model::Millis;
use crate::model::group::History;
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::model::pod::PodName;
use crate::observation::{BindOutcome, TakeBackOutcome};
use crate::queue::backoff::{PAUSE_MS_MAX, doubled, pause_ms};
use crate::queue::{Entity, Place};

impl Engine {
    /// Sends the binds of pods that were just placed.
    pub(super) fn decided(&mut self, placed: &[(PodId, NodeId)]) {
        for (pod, node) in placed {
            // The API clears a nomination when it binds.
            self.renominate(*pod, None);
            let avoid = self.cluster.pod_mut(*pod).bind.take().map(|bind| bind.avoid).unwrap_or_default();
            let deadline = self.now.saturating_add(self.config.bind_timeout_ms);
            let bind = Bind { tries: 0, in_flight: false, retry_at: None, deadline, avoid };
            self.cluster.pod_mut(*pod).bind = Some(Box::new(bind));
            self.send_bind(*pod, *node);
            self.company_came(*pod);
        }
    }

    fn send_bind(&mut self, id: PodId, node: NodeId) {
        let node = self.cluster.node(node).name.clone();
        let pod = self.cluster.pod_mut(id);
        if let Some(bind) = &mut pod.bind {
            bind.tries += 1;
            bind.in_flight = true;
            bind.retry_at = None;
        }
        self.outbox.push(Command::Bind { pod: pod.id.clone(), node });
    }

    pub(super) fn bind_done(&mut self, name: &PodName, node: &Arc<str>, outcome: BindOutcome) {
        let Some(id) = self.cluster.pod_id(&name.uid) else { return };
        let state = self.cluster.pod(id).state;
        let named = self.cluster.node_id(node);
        let expected = matches!(state, PodState::Assumed(assumed) if Some(assumed) == named);
        match outcome {
            BindOutcome::Bound => self.bound(id, node),
            BindOutcome::Transient { message } if expected => self.bind_again_later(id, &message),
            BindOutcome::Refused { message } if expected => self.give_up(id, &message),
            // An answer to a question that is no longer asked.
            BindOutcome::Transient { .. } | BindOutcome::Refused { .. } => {}
        }
    }

    /// The pod is bound there, whatever we thought meanwhile.
    fn bound(&mut self, id: PodId, node: &Arc<str>) {
        let old = self.cluster.pod(id).state;
        if matches!(old, PodState::Bound(_) | PodState::Finished { .. }) {
            return;
        }
        let target = self.cluster.node_for_pod(node);
        self.cluster.pod_mut(id).bind = None;
        self.cluster.set_state(id, PodState::Bound(target));
        self.renominate(id, None);
        if let Some(other) = old.node().filter(|other| *other != target) {
            self.room_appeared(other);
        }
        self.voice.forget(Entity::Pod(id));
        self.bound_member(id);
        self.concern(id);
        self.prey_appeared(id);
    }

    /// A member has its place. If its start was given up meanwhile, the question is open again.
    pub(super) fn bound_member(&mut self, id: PodId) {
        let pod = self.cluster.pod(id);
        // What another scheduler bound is no part of any start of ours.
        let (Some(group_id), part) = (pod.group.filter(|_| pod.ours), pod.part) else { return };
        let group = self.cluster.group_mut(group_id);
        group.refusals_in_a_row = 0;
        if part == Part::None && group.attempt.is_some() && group.reached.is_empty() {
            // Seen only now, as after a restart: it is part of the start that was found half done.
            self.cluster.pod_mut(id).part = Part::Tentative;
            return;
        }
        let found = group.decisions == 0 && group.history == History::New && !group.founded.is_empty();
        if part == Part::None && found && group.attempt.is_none() {
            // Seen only after enough others of a start that this process had no hand in: it came with them.
            self.cluster.pod_mut(id).part = Part::Founder;
            return;
        }
        if part == Part::Tentative && !group.is_gang() {
            // Without a minimum whoever is bound has started, should it get one again.
            self.cluster.pod_mut(id).part = Part::None;
        } else if part == Part::Tentative && group.attempt.is_none() && !group.joins_singly() {
            let quorum = group.quorum();
            self.start_attempt(group_id, quorum);
        }
    }

    fn bind_again_later(&mut self, id: PodId, message: &str) {
        let (now, initial, max) = (self.now, self.config.bind_retry_ms_initial, self.config.bind_retry_ms_max);
        let pod = self.cluster.pod_mut(id);
        let Some(bind) = pod.bind.as_deref_mut() else { return };
        if pod.terminating {
            self.give_up(id, message);
            return;
        }
        bind.in_flight = false;
        let due = now.saturating_add(doubled(initial, bind.tries).min(max));
        bind.retry_at = Some(due);
        self.set_timer(due, Timer::Rebind(id));
    }

    /// The time to send a bind again has come, unless it is too late for it.
    pub(super) fn rebind(&mut self, id: PodId, due: Millis) {
        let Some(pod) = self.cluster.pod_if_any(id) else { return };
        let PodState::Assumed(node) = pod.state else { return };
        let Some(bind) = pod.bind.as_deref().filter(|bind| bind.retry_at == Some(due)) else { return };
        let in_attempt = pod.group.is_some_and(|group| self.cluster.group(group).attempt.is_some());
        // The start of a gang has its own deadline; everybody else gives up this node after a while.
        let too_late = !in_attempt && bind.deadline <= self.now;
        if too_late || pod.terminating || !self.cluster.node(node).present {
            self.give_up(id, "the bind did not succeed in time");
        } else {
            self.send_bind(id, node);
        }
    }

    /// This node will not do: the pod waits again, and avoids the node at the next try.
    fn give_up(&mut self, id: PodId, message: &str) {
        let PodState::Assumed(node) = self.cluster.pod(id).state else { return };
        let name = self.cluster.node(node).name.clone();
        if let Some(bind) = &mut self.cluster.pod_mut(id).bind {
            bind.in_flight = false;
            bind.retry_at = None;
            bind.avoid.push(name.clone());
        }
        self.cluster.set_state(id, PodState::Waiting);
        self.show_no_nomination(id);
        self.say_pod(id, Diagnosis::BindFailed { node: name.to_string(), message: message.to_owned() });
        let group = self.cluster.pod(id).group;
        match group {
            Some(group) => self.count_refusal(group),
            None => self.count_failure(Entity::Pod(id), 1),
        }
        self.concern(id);
        self.room_appeared(node);
        self.prey_appeared(id);
    }

    /// After a first refusal the members are placed again at once, after further ones with growing pauses.
    fn count_refusal(&mut self, id: GroupId) {
        let (now, initial) = (self.now, self.config.backoff_ms_initial);
        let group = self.cluster.group_mut(id);
        if group.refused_decision == group.decisions {
            return;
        }
        group.refused_decision = group.decisions;
        group.refusals_in_a_row = group.refusals_in_a_row.saturating_add(1);
        let pause = doubled(initial, group.refusals_in_a_row.saturating_sub(1)).min(PAUSE_MS_MAX);
        group.repair_not_before = now.saturating_add(pause);
    }

    fn count_failure(&mut self, entity: Entity, size: usize) {
        if self.queue.entry(entity).is_some() {
            let (initial, max) = (self.config.backoff_ms_initial, self.config.backoff_ms_max);
            self.queue.failed(entity, self.now, |failures| pause_ms(initial, max, failures, size));
        }
    }

    /// The start had its time: if it is not confirmed, it is taken back.
    pub(super) fn deadline(&mut self, id: GroupId, due: Millis) {
        let Some(group) = self.cluster.group_if_any(id) else { return };
        let Some(attempt) = group.attempt.as_ref().filter(|attempt| attempt.deadline == due) else { return };
        let minimum = sum_of(&group.no_more_than_asked(&attempt.quorum));
        let secured = group.total().secured();
        let first_start = group.reached.is_empty();
        let members: Vec<PodId> = group.members.iter().map(|(_, member)| *member).collect();
        self.cluster.group_mut(id).attempt = None;
        let (mut taken_back, mut kept) = (0, 0);
        for member in members {
            let pod = self.cluster.pod(member);
            let this_start = pod.ours && (first_start || pod.part == Part::Tentative);
            let idle = pod.bind.as_deref().is_none_or(|bind| !bind.in_flight);
            match pod.state {
                PodState::Bound(_) if this_start && !pod.is_leaving() && pod.controlled => {
                    self.take_back(member);
                    taken_back += 1;
                }
                PodState::Bound(_) if this_start && !pod.is_leaving() => kept += 1,
                // What is on its way cannot be called back; its outcome opens the question again.
                PodState::Assumed(_) if idle => self.unassume(member),
                _ => {}
            }
        }
        self.cluster.group_mut(id).kept_partial = kept > 0;
        let entity = Entity::Group(id);
        self.say_group(id, Diagnosis::TimedOut { minimum, secured, taken_back, kept }, Vec::new());
        self.count_failure(entity, self.cluster.group(id).members.len());
        if self.queue.entry(entity).is_some() {
            self.queue.put(entity, Place::Held);
        }
        self.review_group(id);
    }

    fn unassume(&mut self, id: PodId) {
        let node = self.cluster.pod(id).state.node();
        self.cluster.pod_mut(id).bind = None;
        self.cluster.set_state(id, PodState::Waiting);
        // The bind would have cleared it.
        self.show_no_nomination(id);
        self.review_refusal(id);
        if let Some(node) = node {
            self.room_appeared(node);
        }
        self.prey_appeared(id);
    }

    pub(super) fn take_back(&mut self, id: PodId) {
        self.cluster.change_pod(id, |pod| pod.taking_back = true);
        self.outbox.push(Command::TakeBack { pod: self.cluster.pod(id).id.clone() });
    }

    pub(super) fn take_back_done(&mut self, name: &PodName, outcome: &TakeBackOutcome) {
        let Some(id) = self.cluster.pod_id(&name.uid).filter(|id| self.cluster.pod(*id).taking_back) else { return };
        match outcome {
            // The watch will show it going and gone.
            TakeBackOutcome::Deleted => {}
            TakeBackOutcome::Transient { .. } => {
                let due = self.now.saturating_add(self.config.bind_retry_ms_max);
                self.set_timer(due, Timer::TakeBack(id));
            }
            TakeBackOutcome::Refused { .. } => {
                self.cluster.change_pod(id, |pod| pod.taking_back = false);
                if let Some(group) = self.cluster.pod(id).group {
                    self.cluster.group_mut(group).kept_partial = true;
                }
                self.concern(id);
            }
        }
    }

    pub(super) fn take_back_again(&mut self, id: PodId, _due: Millis) {
        let pod = self.cluster.pod_if_any(id);
        if pod.is_some_and(|pod| pod.taking_back && matches!(pod.state, PodState::Bound(_))) {
            self.take_back(id);
        }
    }
}
