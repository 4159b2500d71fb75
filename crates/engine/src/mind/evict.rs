//! Evictions from the command to their end.
//!
//! What was asked for is not asked for again once it succeeded. What failed in passing is tried again as long as the
//! plan stands that it was for; a unit that must go whole and has begun to go is followed to its end in any case.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Engine, Timer};
use crate::cluster::pod::{Eviction, Pod, PodState};
use crate::command::{Command, Subject};
use crate::model::Millis;
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::model::pod::PodName;
use crate::observation::TakeBackOutcome;
use crate::preemption::{self, Unit};
use crate::queue::Entity;

impl Engine {
    /// Sends a unit away.
    pub(super) fn evict(&mut self, unit: &Unit, by: &Arc<Subject>) {
        let pods = unit.pods.iter().map(|(pod, _)| self.cluster.pod(*pod).id.clone()).collect();
        let eviction = Eviction { by: by.clone(), whole: unit.is_whole(), sent: true, failed: None, must_go: false };
        for (pod, _) in &unit.pods {
            self.cluster.change_pod(*pod, |pod| pod.eviction = Some(eviction.clone()));
        }
        let group = unit.group.filter(|_| unit.is_whole()).map(|group| self.cluster.group(group).key.clone());
        self.noes.forget_plans();
        self.outbox.push(Command::Evict { pods, group, by: by.clone() });
        // All of a unit are of one group, which is looked at once.
        if let Some((pod, _)) = unit.pods.first() {
            self.concern(*pod);
        }
    }

    /// What became of an eviction. Of a unit those that go are told before those that do not.
    pub(super) fn evict_done(&mut self, name: &PodName, outcome: &TakeBackOutcome) {
        if let Some((group, by)) = self.gone_unanswered.remove(&name.uid)
            && *outcome == TakeBackOutcome::Deleted
        {
            self.rest_must_go(group, &by);
        }
        let Some(id) = self.cluster.pod_id(&name.uid) else { return };
        let pod = self.cluster.pod_mut(id);
        let Some(eviction) = &mut pod.eviction else { return };
        eviction.sent = false;
        eviction.failed = match outcome {
            TakeBackOutcome::Deleted => None,
            TakeBackOutcome::Transient { message } | TakeBackOutcome::Refused { message } => {
                Some(message.as_str().into())
            }
        };
        let unit = pod.group.filter(|_| eviction.whole && !eviction.must_go).map(|group| (group, eviction.by.clone()));
        match outcome {
            // The watch will show it going and gone.
            TakeBackOutcome::Deleted => {
                // If it has to go already, the first of them said so for all.
                if let Some((group, by)) = unit {
                    self.rest_must_go(group, &by);
                }
            }
            // Half a unit is worse than none: what has begun to go whole is not left in part for a refusal.
            TakeBackOutcome::Refused { .. } if !self.has_begun_to_go(id) => {
                self.spare_unit(id, self.now.saturating_add(self.config.preemption.spare_ms));
            }
            TakeBackOutcome::Transient { .. } | TakeBackOutcome::Refused { .. } => {
                let due = self.now.saturating_add(self.config.bind_retry_ms_max);
                self.set_timer(due, Timer::Evict(id));
            }
        }
    }

    /// One of a unit goes: of a group that goes whole nobody stays, also when this one is long gone.
    fn rest_must_go(&mut self, group: GroupId, by: &Subject) {
        let members = self.cluster.group_if_any(group).into_iter().flat_map(|group| &group.members);
        for member in members.map(|(_, member)| *member).collect::<Vec<PodId>>() {
            let other = self.cluster.pod_mut(member).eviction.as_mut();
            if let Some(other) = other.filter(|other| other.whole && *other.by == *by) {
                other.must_go = true;
            }
        }
        if self.cluster.group_if_any(group).is_some() {
            self.review_group(group);
        }
    }

    /// A pod is gone whose eviction was ordered: whether that was its eviction, and so the beginning for all of its unit,
    /// is told by the answer that is still to come.
    pub(super) fn gone_before_answer(&mut self, id: PodId) {
        let pod = self.cluster.pod(id);
        let sent = pod.eviction.as_ref().filter(|eviction| eviction.sent && eviction.whole);
        if let (Some(group), Some(eviction)) = (pod.group, sent) {
            self.gone_unanswered.insert(pod.id.uid.clone(), (group, eviction.by.clone()));
        }
    }

    /// The time to send an eviction again has come. Whoever it is for is tried first: he may have found room elsewhere.
    pub(super) fn evict_again(&mut self, id: PodId) {
        self.evictions_due.remove(&id);
        let Some(pod) = self.cluster.pod_if_any(id).filter(|pod| !pod.terminating && pod.state.node().is_some()) else {
            return;
        };
        let Some(by) = pod.eviction.as_ref().filter(|one| !one.sent).map(|one| one.by.clone()) else { return };
        if self.has_begun_to_go(id) {
            // Whoever waits for it tells that it fails.
            if let Some(entity) = self.entity(&by) {
                self.queue.wake_parked(entity, self.now);
            }
            return self.send_eviction(&[id], &by);
        }
        match self.entity(&by).filter(|entity| self.still_needs_room(*entity, &by)) {
            Some(entity) => {
                self.evictions_due.insert(id);
                self.queue.wake_parked(entity, self.now);
                self.set_timer(self.now.saturating_add(self.config.bind_retry_ms_max), Timer::Evict(id));
            }
            // Nobody needs it any more.
            None => self.spare_unit(id, self.now),
        }
    }

    /// Asks once more for the eviction of pods of one unit.
    fn send_eviction(&mut self, unit: &[PodId], by: &Arc<Subject>) {
        let Some(first) = unit.first().map(|pod| self.cluster.pod(*pod)) else { return };
        let whole = first.group.filter(|_| first.eviction.as_ref().is_some_and(|one| one.whole));
        let group = whole.map(|group| self.cluster.group(group).key.clone());
        for pod in unit {
            if let Some(eviction) = &mut self.cluster.pod_mut(*pod).eviction {
                eviction.sent = true;
            }
        }
        let pods = unit.iter().map(|pod| self.cluster.pod(*pod).id.clone()).collect();
        self.outbox.push(Command::Evict { pods, group, by: by.clone() });
    }

    /// An earlier process marked members of a group that goes whole, and some of them are going: the rest follows.
    pub(super) fn follow_up(&mut self, id: GroupId) {
        let mut members = self.cluster.group(id).members.iter().map(|(_, member)| self.cluster.pod(*member));
        if self.goes_whole(id) && members.any(|pod| pod.terminating && pod.marked) {
            self.send_the_rest(id);
        }
    }

    /// Whoever preempted is gone: what has not begun for it, and is not on its way, stays.
    pub(super) fn spare_what_was_for(&mut self, subject: &Subject) {
        let stay: Vec<PodId> = self.cluster.leaving().filter(|id| failed_for(self.cluster.pod(*id), subject)).collect();
        for pod in stay {
            // With the first of a unit the others are spared.
            if self.cluster.pod(pod).eviction.is_some() && !self.has_begun_to_go(pod) {
                self.spare_unit(pod, self.now);
            }
        }
    }

    /// Evicts those of a group that goes whole whom an earlier process marked.
    fn send_the_rest(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let members = group.members.iter().map(|(_, member)| (*member, self.cluster.pod(*member)));
        // What was spared by this process is not meant.
        let is_left = |pod: &Pod| {
            let is_bound = matches!(pod.state, PodState::Bound(_));
            pod.marked && is_bound && !pod.is_leaving() && !pod.is_static && pod.spared_until == 0
        };
        let left: Vec<PodId> = members.filter(|(_, pod)| is_left(pod)).map(|(member, _)| member).collect();
        let by = Arc::new(Subject::Group(group.key.clone()));
        let eviction = Eviction { by, whole: true, sent: false, failed: None, must_go: true };
        for pod in left {
            self.cluster.change_pod(pod, |pod| pod.eviction = Some(eviction.clone()));
            self.set_timer(self.now, Timer::Evict(pod));
            self.concern(pod);
        }
    }

    /// Leaves those where they are whose eviction failed in passing and who are no longer below whom it was for. His
    /// plan cannot count on them, so this comes before the question whether it stands.
    pub(super) fn spare_the_risen(&mut self, by: &Subject) {
        let Some(priority) = self.entity(by).map(|entity| self.priority_of(entity)) else { return };
        for id in self.due_for(by) {
            if self.cluster.effective_priority(id) >= priority && !self.has_begun_to_go(id) {
                self.spare_unit(id, self.now);
            }
        }
    }

    /// Sends the evictions again that failed in passing, for somebody whose plan stands now. What it does not need, since
    /// an earlier plan was another one, stays.
    pub(super) fn evict_the_due(&mut self, by: &Arc<Subject>, nodes: &BTreeSet<NodeId>) {
        for id in self.due_for(by) {
            if !self.evictions_due.contains(&id) {
                // Its group went with another of its members.
                continue;
            }
            let unit = self.rest_of_unit(id);
            for pod in &unit {
                self.evictions_due.remove(pod);
            }
            let is_in_the_way =
                |pod: &PodId| self.cluster.pod(*pod).state.node().is_some_and(|node| nodes.contains(&node));
            if !unit.iter().any(is_in_the_way) && !self.has_begun_to_go(id) {
                self.spare_unit(id, self.now);
                continue;
            }
            self.send_eviction(&unit, by);
        }
    }

    /// The pods that are evicted together with this one, as far as they do not go yet.
    fn rest_of_unit(&self, id: PodId) -> Vec<PodId> {
        let pod = self.cluster.pod(id);
        let (Some(group), Some(eviction)) = (pod.group, pod.eviction.as_ref().filter(|one| one.whole)) else {
            return vec![id];
        };
        let is_of_it = |other: &Pod| {
            let together = other.eviction.as_ref().is_some_and(|one| one.whole && one.by == eviction.by);
            together && !other.terminating && other.state.node().is_some()
        };
        let members = self.cluster.group(group).members.iter().map(|(_, member)| *member);
        members.filter(|member| is_of_it(self.cluster.pod(*member))).collect()
    }

    fn due_for(&self, by: &Subject) -> Vec<PodId> {
        let due = self.evictions_due.iter().copied();
        due.filter(|id| self.cluster.pod_if_any(*id).is_some_and(|pod| failed_for(pod, by))).collect()
    }

    /// Leaves a pod where it is, for a while at least, and with it all of its unit: without the pod the rest would be half
    /// a unit. Its group is looked at once.
    fn spare_unit(&mut self, id: PodId, until: Millis) {
        let by = self.cluster.pod(id).eviction.as_ref().map(|eviction| eviction.by.clone());
        for other in self.rest_of_unit(id).into_iter().filter(|other| *other != id) {
            self.spare(other, self.now);
        }
        self.spare(id, until);
        self.concern(id);
        if until > self.now {
            self.set_timer(until, Timer::Spared(id));
        } else {
            self.prey_appeared(id);
        }
        if let Some(entity) = by.and_then(|by| self.entity(&by)) {
            self.queue.wake_parked(entity, self.now);
        }
    }

    fn spare(&mut self, id: PodId, until: Millis) {
        self.evictions_due.remove(&id);
        self.cluster.change_pod(id, |pod| {
            pod.eviction = None;
            pod.spared_until = until;
        });
        self.look_at_mark(id);
        self.bound_member(id);
        // No plan that counted on its going stands any more.
        if let Some(node) = self.cluster.pod(id).state.node() {
            self.plans_shaken(node);
        }
    }

    /// A mark on a pod that stays is not true, and would be taken for a unit that has begun to go.
    pub(super) fn look_at_mark(&mut self, id: PodId) {
        let pod = self.cluster.pod(id);
        if pod.marked && !pod.is_leaving() && pod.state.node().is_some() {
            self.set_timer(self.now.saturating_add(self.config.bind_retry_ms_max), Timer::Marked(id));
        }
    }

    /// The mark has had its time.
    pub(super) fn unmark(&mut self, id: PodId) {
        let stays = |pod: &&Pod| pod.marked && !pod.is_leaving() && pod.state.node().is_some();
        if let Some(pod) = self.cluster.pod_if_any(id).filter(stays) {
            let whole = pod.group.filter(|group| self.cluster.group(*group).degraded && pod.spared_until == 0);
            if let Some(group) = whole.filter(|group| self.goes_whole(*group)) {
                // It had its minimum and lost members, who are gone: an earlier process had begun.
                return self.send_the_rest(group);
            }
            let pod = pod.id.clone();
            self.outbox.push(Command::Spare { pod });
            // The write may fail; a mark that is gone is seen.
            self.set_timer(self.now.saturating_add(self.config.preemption.spare_ms), Timer::Marked(id));
        }
    }

    /// Who is tried when this one is: members of a group preempt each for itself at times, and are tried with it.
    fn entity(&self, subject: &Subject) -> Option<Entity> {
        match subject {
            Subject::Pod(pod) => {
                let id = self.cluster.pod_id(&pod.uid)?;
                Some(self.cluster.pod(id).group.map_or(Entity::Pod(id), Entity::Group))
            }
            Subject::Group(key) => self.cluster.group_id(key).map(Entity::Group),
        }
    }

    /// Whether somebody waits for those who are evicted for him.
    fn still_needs_room(&self, entity: Entity, by: &Subject) -> bool {
        let has_place =
            |pod: &PodName| self.cluster.pod_id(&pod.uid).is_some_and(|id| self.cluster.pod(id).nominated.is_some());
        let awaits = self.queue.entry(entity).is_some_and(|entry| entry.awaits.is_some());
        awaits
            && match by {
                Subject::Pod(pod) => has_place(pod),
                Subject::Group(_) => true,
            }
    }

    /// Whether a group is evicted whole or not at all.
    pub(super) fn goes_whole(&self, group: GroupId) -> bool {
        preemption::goes_whole(&self.cluster, Some(group), self.rules())
    }

    /// Whether the pod belongs to a group that goes whole, and others of it are going already.
    fn has_begun_to_go(&self, id: PodId) -> bool {
        let pod = self.cluster.pod(id);
        let (Some(group), Some(eviction)) = (pod.group, pod.eviction.as_ref().filter(|one| one.whole)) else {
            return false;
        };
        let is_going = |other: &Pod| {
            let together = other.eviction.as_ref().is_some_and(|one| one.by == eviction.by);
            other.terminating && (together || other.marked)
        };
        let mut others = self.cluster.group(group).members.iter().map(|(_, member)| self.cluster.pod(*member));
        eviction.must_go || others.any(is_going)
    }
}

/// Whether a pod is to be evicted for somebody, does not go, and no request for it is on its way.
fn failed_for(pod: &Pod, by: &Subject) -> bool {
    pod.eviction.as_ref().is_some_and(|one| *one.by == *by && !one.sent) && !pod.terminating
}
