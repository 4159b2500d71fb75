//! Who may be tried: the gate in front of the queue, and what a group is told while it waits.
//!
//! A group enters when its object and a quorum of members are known and none of them is held back by scheduling
//! gates or by something that cannot be honoured. Whatever does not enter waits with a reason that users can see. `review_group` may be called at any time,
//! after any change: it derives everything from the group's census.

use std::cmp::Reverse;

use super::voice::Said;
use super::{Engine, Timer};
use crate::cluster::group::{Group, Stray};
use crate::cluster::pod::{PodState, Standing};
use crate::command::{Command, MemberVerdict, Report, Subject};
use crate::diagnosis::{Diagnosis, Waiting};
use crate::model::Millis;
use crate::model::group::Policy;
use crate::model::ids::{GroupId, PodId};
use crate::model::pod::PodRefusal;
use crate::queue::{Entity, Place, Rank};

impl Engine {
    /// Looks at a single pod: in the queue, on its way, or out.
    pub(super) fn review_pod(&mut self, id: PodId) {
        let entity = Entity::Pod(id);
        let pod = self.cluster.pod(id);
        match pod.state {
            // Scheduling gates are the pod's own and are shown by the API already.
            PodState::Waiting if pod.ours && !pod.terminating && !pod.gated && pod.refused.is_none() => {
                let rank = Rank {
                    priority: Reverse(pod.priority),
                    asked_ms: pod.created_ms,
                    uid: None,
                    name: pod.id.to_string().into(),
                };
                if self.queue.admit(entity, rank).place == Place::Held {
                    self.queue.ready(entity, self.now);
                }
            }
            PodState::Assumed(_) => {}
            _ => {
                let ours = pod.ours;
                self.leave_queue(entity);
                if ours {
                    self.clear_nomination(id);
                }
            }
        }
    }

    /// Looks at a group: its start, its health, its place in the queue, and its claim.
    pub(super) fn review_group(&mut self, id: GroupId) {
        let entity = Entity::Group(id);
        if self.cluster.tidy_group(id) {
            self.queue.remove(entity);
            self.voice.forget(entity);
        } else {
            self.review_known_group(id);
        }
        self.review_claim(id);
    }

    fn review_known_group(&mut self, id: GroupId) {
        let entity = Entity::Group(id);
        self.review_strays(id);
        self.review_priority(id);
        self.review_start(id);
        self.review_health(id);
        let group = self.cluster.group(id);
        if !group.wants_places() {
            self.clear_nominations(id);
            self.queue.remove(entity);
            self.voice.hush(entity);
            self.cluster.group_mut(id).desired_until = None;
            self.say_settled(id);
            return;
        }
        self.start_desired_wait(id);
        let rank = self.group_rank(id);
        let known = self.queue.entry(entity).map(|entry| entry.rank.priority);
        let repair_not_before = group_repair(self.cluster.group(id));
        self.queue.admit(entity, rank.clone());
        self.queue.delay(entity, repair_not_before, self.now);
        if let Some(waiting) = self.gate(id) {
            self.queue.put(entity, Place::Held);
            self.clear_nominations(id);
            self.say_group(id, Diagnosis::Waiting(waiting), Vec::new());
            return;
        }
        self.voice.hush(entity);
        let group = self.cluster.group(id);
        let needs = group.needs();
        if group.attempt.is_some() && group.total().assumed > 0 && needs.iter().all(|need| *need == 0) {
            // The start that is under way comes to its end first; later members wait for it.
            self.queue.put(entity, Place::Held);
            self.clear_nominations(id);
            return;
        }
        let stirred = group.stirred != group.stirred_when_parked
            || needs != group.needs_when_parked
            || known != Some(rank.priority);
        match self.queue.entry(entity).map(|entry| &entry.place) {
            Some(Place::Held) => self.queue.ready(entity, self.now),
            Some(Place::Parked { .. }) if stirred => self.queue.ready(entity, self.now),
            _ => {}
        }
    }

    fn group_rank(&self, id: GroupId) -> Rank {
        let group = self.cluster.group(id);
        let turn = group.spec.as_ref().and_then(|spec| spec.turn.as_ref());
        // The time of the oldest member that waits: leftovers keep their turn, newcomers get their own.
        let oldest = || group.waiting.first().or(group.members.first()).map_or(0, |(created_ms, _)| *created_ms);
        Rank {
            priority: Reverse(self.cluster.group_priority(id)),
            asked_ms: turn.map_or_else(oldest, |turn| turn.created_ms),
            uid: turn.map(|turn| Reverse(turn.uid.clone())),
            name: group.key.to_string().into(),
        }
    }

    /// What the group has to wait for before it is tried.
    pub(crate) fn gate(&self, id: GroupId) -> Option<Waiting> {
        let group = self.cluster.group(id);
        let Some(spec) = &group.spec else {
            return Some(Waiting::GroupMissing { group: group.key.to_string(), pods: group.members.len() as u32 });
        };
        if let Some((field, value)) = unsupported(group) {
            return Some(Waiting::Unsupported { field, value });
        }
        if group.is_gang() && self.may_all_go(id) {
            // Whoever joined now would be left alone.
            return Some(Waiting::Leaving);
        }
        if let Some(refused) = group.refused.first().filter(|_| group.waits_for_everyone()) {
            return self.why_refused(*refused, group.refused.len() as u32);
        }
        if !group.joins_singly()
            && let Some((rule, census)) =
                group.rules.iter().zip(&group.census).find(|(rule, census)| census.present() < rule.min_member)
        {
            return Some(Waiting::Members { subset: rule.name.clone(), have: census.present(), need: rule.min_member });
        }
        if let Some(gated) = group.gated.first().filter(|_| group.waits_for_everyone()) {
            let example = self.cluster.pod(*gated).id.to_string();
            return Some(Waiting::Gates { gated: group.gated.len() as u32, example });
        }
        if let (Policy::Basic { desired_count: Some(desired) }, Some(until)) = (&spec.policy, group.desired_until) {
            let have = group.total().present();
            if have < *desired && self.now < until {
                return Some(Waiting::DesiredCount { have, desired: *desired });
            }
        }
        None
    }

    fn start_desired_wait(&mut self, id: GroupId) {
        let until = self.now.saturating_add(self.config.desired_wait_ms);
        let group = self.cluster.group_mut(id);
        let desired =
            matches!(group.spec.as_ref().map(|spec| &spec.policy), Some(Policy::Basic { desired_count: Some(_) }));
        if desired && group.desired_until.is_none() && group.total().held() == 0 {
            group.desired_until = Some(until);
            self.set_timer(until, Timer::Desired(id));
        }
    }

    pub(super) fn desired_wait_over(&mut self, id: GroupId, due: Millis) {
        if self.cluster.group_if_any(id).is_some_and(|group| group.desired_until == Some(due)) {
            self.review_group(id);
        }
    }

    fn review_priority(&mut self, id: GroupId) {
        let priority = self.cluster.group_priority(id);
        if self.cluster.group(id).nominated_at != priority {
            self.cluster.group_mut(id).nominated_at = priority;
            for node in self.cluster.touch_nominations(id) {
                self.room_appeared(node);
            }
            self.group_became_prey(id);
        }
    }

    /// Says why members are left out of their group, and no longer says it of those that are taken in again.
    fn review_strays(&mut self, id: GroupId) {
        for member in std::mem::take(&mut self.cluster.group_mut(id).strays_changed) {
            match self.why_left_out(id, member) {
                Some(waiting) => {
                    self.clear_nomination(member);
                    self.say_pod(member, Diagnosis::Waiting(waiting));
                }
                None => self.voice.hush(Entity::Pod(member)),
            }
        }
    }

    fn why_left_out(&self, id: GroupId, member: PodId) -> Option<Waiting> {
        let (pod, group) = (self.cluster.pod(member), self.cluster.group(id));
        // Of a pod that is refused, that is said instead.
        if pod.state != PodState::Waiting || !pod.ours || pod.refused.is_some() {
            return None;
        }
        let key = group.key.to_string();
        Some(match group.strays.get(&member)? {
            Stray::UnknownSubset => Waiting::UnknownSubset { subset: pod.subset.to_string(), group: key },
            Stray::OtherPriority { shared } => {
                Waiting::OtherPriority { own: pod.priority, shared: *shared, group: key }
            }
            Stray::Former => Waiting::Former { group: key },
        })
    }

    /// Says why a pod is refused, of members too: its group speaks for it only before the start. It is no longer said
    /// of a pod that is not refused any more.
    pub(super) fn review_refusal(&mut self, id: PodId) {
        let entity = Entity::Pod(id);
        if self.cluster.pod(id).standing() == Standing::Refused {
            self.clear_nomination(id);
            if let Some(waiting) = self.why_refused(id, 1) {
                self.say_pod(id, Diagnosis::Waiting(waiting));
            }
        } else if matches!(self.voice.latest(entity), Some(Diagnosis::Waiting(Waiting::PodRefused { .. }))) {
            self.voice.forget(entity);
        }
    }

    fn why_refused(&self, example: PodId, pods: u32) -> Option<Waiting> {
        let pod = self.cluster.pod(example);
        let PodRefusal { kind, field, value, reason } = pod.refused.as_deref()?.clone();
        Some(Waiting::PodRefused { pod: pod.id.to_string(), kind, field, value, reason, pods })
    }

    pub(super) fn say_pod(&mut self, id: PodId, diagnosis: Diagnosis) {
        let subject = Subject::Pod(self.cluster.pod(id).id.clone());
        self.say(Entity::Pod(id), Report { subject, diagnosis, members: Vec::new() });
    }

    pub(super) fn say_group(
        &mut self,
        id: GroupId,
        diagnosis: Diagnosis,
        members: Vec<(std::sync::Arc<crate::model::pod::PodName>, MemberVerdict)>,
    ) {
        let subject = Subject::Group(self.cluster.group(id).key.clone());
        self.say(Entity::Group(id), Report { subject, diagnosis, members });
    }

    fn say(&mut self, entity: Entity, report: Report) {
        match self.voice.say(entity, self.now, report) {
            Said::Now(report) => self.outbox.push(Command::Report(report)),
            Said::Later(due) => self.set_timer(due, Timer::Voice(entity)),
            Said::Nothing => {}
        }
    }
}

/// When members whose bind was refused may be placed again.
fn group_repair(group: &Group) -> Millis {
    if group.refusals_in_a_row > 1 { group.repair_not_before } else { 0 }
}

/// What the group asks for that nobody would honour yet.
fn unsupported(group: &Group) -> Option<(String, String)> {
    let spec = group.spec.as_ref()?;
    if let Some(constraint) = spec.topology.first() {
        return Some(("topology".to_owned(), constraint.key.clone()));
    }
    let parent = spec.parent.as_ref()?;
    Some(("parent".to_owned(), parent.to_string()))
}
