//! Evictions, from the command until the pod is gone or spared.
//!
//! An eviction that succeeded is not sent again. One that failed transiently is retried as long as the preemption plan
//! holds; a unit that is evicted as a whole and whose eviction has started is always followed to its end.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Engine, Timer};
use crate::cluster::event::ClusterEvent;
use crate::cluster::pod::{Eviction, Pod, PodState};
use crate::command::Command;
use crate::model::Millis;
use crate::model::group::GroupKey;
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::model::pod::PodName;
use crate::model::subject::Subject;
use crate::observation::DeleteOutcome;
use crate::preemption::{self, VictimUnit};
use crate::queue::Entity;

impl Engine {
    /// Evicts a unit.
    pub(super) fn evict(&mut self, unit: &VictimUnit, by: &Arc<Subject>) {
        let pods = unit.pods.iter().map(|(pod, _)| self.cluster.pod(*pod).id.clone()).collect();
        let eviction =
            Eviction { by: by.clone(), whole: unit.is_whole_group(), sent: true, failed: None, irrevocable: false };
        for (pod, _) in &unit.pods {
            self.cluster.change_pod(*pod, |pod| pod.eviction = Some(eviction.clone()));
        }
        let group = unit.group.filter(|_| unit.is_whole_group()).map(|group| {
            if self.is_evicted_whole(group) {
                self.cluster.group_mut(group).preempted_by = Some(by.clone());
            }
            self.unit_key(group, unit)
        });
        self.unschedulable.forget_plans();
        self.outbox.push(Command::Evict { pods, group, by: by.clone() });
        // All pods of a unit are of one group, which is reviewed once.
        if let Some((pod, _)) = unit.pods.first() {
            self.review_after_change(*pod);
        }
    }

    /// Forgets the preemptor of a group that was spared or is back on nodes.
    pub(super) fn review_preempted(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let pods = || group.members.iter().map(|(_, member)| self.cluster.pod(*member));
        if group.preempted_by.is_some()
            && pods().all(|pod| pod.eviction.is_none())
            && pods().any(|pod| matches!(pod.state, PodState::Bound(_)) && !pod.terminating)
        {
            self.cluster.group_mut(id).preempted_by = None;
        }
    }

    /// Handles the outcome of an eviction. Within a unit, successes are reported before failures.
    pub(super) fn evict_done(&mut self, name: &PodName, outcome: &DeleteOutcome) {
        if let Some((unit, by)) = self.gone_before_outcome.remove(&name.uid)
            && *outcome == DeleteOutcome::Deleted
        {
            self.require_whole_unit(unit, &by);
        }
        let Some(id) = self.cluster.pod_id(&name.uid) else { return };
        let pod = self.cluster.pod_mut(id);
        let Some(eviction) = &mut pod.eviction else { return };
        eviction.sent = false;
        eviction.failed = match outcome {
            DeleteOutcome::Deleted => None,
            DeleteOutcome::Transient { message } | DeleteOutcome::Refused { message } => Some(message.as_str().into()),
        };
        let is_open = eviction.whole && !eviction.irrevocable;
        let by = eviction.by.clone();
        let unit = self.unit_of(id).filter(|_| is_open).map(|unit| (unit, by));
        match outcome {
            // The watch shows that it is terminating and gone.
            DeleteOutcome::Deleted => {
                // If `irrevocable` is set already, the first success of the unit has set it for all.
                if let Some((unit, by)) = unit {
                    self.require_whole_unit(unit, &by);
                }
            }
            // A partly evicted unit is worse than an untouched one: once started, it is finished despite a refusal.
            DeleteOutcome::Refused { .. } if !self.unit_eviction_started(id) => {
                self.spare_unit(id, self.now.saturating_add(self.config.preemption.spare_ms));
            }
            DeleteOutcome::Transient { .. } | DeleteOutcome::Refused { .. } => {
                let due = self.now.saturating_add(self.config.bind_retry_ms_max);
                self.set_timer(due, Timer::RetryEviction(id));
            }
        }
    }

    /// One pod of a unit was evicted: all others of the unit must follow, even if that pod is long gone.
    fn require_whole_unit(&mut self, (group, part): (GroupId, usize), by: &Subject) {
        let members = self.cluster.group_if_any(group).into_iter().flat_map(|group| &group.members);
        let is_of_part = |member: &PodId| self.unit_of(*member).is_some_and(|(_, of)| of == part);
        for member in members.map(|(_, member)| *member).filter(is_of_part).collect::<Vec<PodId>>() {
            let other = self.cluster.pod_mut(member).eviction.as_mut();
            if let Some(other) = other.filter(|other| other.whole && *other.by == *by) {
                other.irrevocable = true;
            }
        }
        if self.cluster.group_if_any(group).is_some() {
            self.review_group(group);
        }
    }

    /// A pod is gone whose eviction was sent: only the outstanding outcome shows whether the eviction was the cause,
    /// and so the start for its whole unit.
    pub(super) fn record_gone_before_outcome(&mut self, id: PodId) {
        let pod = self.cluster.pod(id);
        let sent = pod.eviction.as_ref().filter(|eviction| eviction.sent && eviction.whole);
        if let (Some(unit), Some(eviction)) = (self.unit_of(id), sent) {
            self.gone_before_outcome.insert(pod.id.uid.clone(), (unit, eviction.by.clone()));
        }
    }

    /// The unit that a pod is evicted with, as group and position in its tree. Without a rule for it, the whole group.
    fn unit_of(&self, id: PodId) -> Option<(GroupId, usize)> {
        let pod = self.cluster.pod(id);
        Some((pod.group?, self.cluster.unit_of(pod).unwrap_or(0)))
    }

    /// The group that a unit consists of.
    pub(super) fn unit_key(&self, id: GroupId, unit: &VictimUnit) -> GroupKey {
        let key = &self.cluster.group(id).key;
        let part = unit.pods.first().and_then(|(pod, _)| self.cluster.unit_of(self.cluster.pod(*pod)));
        part.and_then(|part| self.forest.tree(key).get(part)).unwrap_or(key).clone()
    }

    /// An eviction is due for a retry. Its preemptor is attempted first: it may have found capacity elsewhere.
    pub(super) fn retry_eviction(&mut self, id: PodId) {
        self.evictions_to_retry.remove(&id);
        let Some(pod) = self.cluster.pod_if_any(id).filter(|pod| !pod.terminating && pod.state.node().is_some()) else {
            return;
        };
        let Some(by) = pod.eviction.as_ref().filter(|one| !one.sent).map(|one| one.by.clone()) else { return };
        if self.unit_eviction_started(id) {
            // The preemptor reports the failure.
            if let Some(entity) = self.entity(&by) {
                self.queue.activate_parked(entity, self.now);
            }
            return self.send_eviction(&[id], &by);
        }
        match self.entity(&by).filter(|entity| self.still_waits_for_victims(*entity, &by)) {
            Some(entity) => {
                self.evictions_to_retry.insert(id);
                self.queue.activate_parked(entity, self.now);
                self.set_timer(self.now.saturating_add(self.config.bind_retry_ms_max), Timer::RetryEviction(id));
            }
            // No longer needed.
            None => self.spare_unit(id, self.now),
        }
    }

    /// Sends the eviction of pods of one unit again.
    fn send_eviction(&mut self, unit: &[PodId], by: &Arc<Subject>) {
        let Some(first) = unit.first().map(|pod| self.cluster.pod(*pod)) else { return };
        let whole = first.group.filter(|_| first.eviction.as_ref().is_some_and(|one| one.whole));
        let part = self.cluster.unit_of(first).unwrap_or(0);
        let group = whole.map(|group| {
            let key = &self.cluster.group(group).key;
            self.forest.tree(key).get(part).unwrap_or(key).clone()
        });
        for pod in unit {
            if let Some(eviction) = &mut self.cluster.pod_mut(*pod).eviction {
                eviction.sent = true;
            }
        }
        let pods = unit.iter().map(|pod| self.cluster.pod(*pod).id.clone()).collect();
        self.outbox.push(Command::Evict { pods, group, by: by.clone() });
    }

    /// An earlier process marked members of a group that is evicted as a whole, and some are terminating: evicts the
    /// rest.
    pub(super) fn resume_unit_eviction(&mut self, id: GroupId) {
        if !self.rules().whole_groups || !self.cluster.has_units(id) {
            return;
        }
        let members = self.cluster.group(id).members.iter().map(|(_, member)| self.cluster.pod(*member));
        let going = members.filter(|pod| pod.terminating && pod.marked);
        let parts: BTreeSet<usize> = going.filter_map(|pod| self.cluster.unit_of(pod)).collect();
        for part in parts {
            self.evict_remaining_marked(id, part);
        }
    }

    /// The preemptor is gone: spares victims whose eviction has neither started nor is in flight.
    pub(super) fn cancel_evictions_for(&mut self, subject: &Subject) {
        let stay: Vec<PodId> =
            self.cluster.leaving().filter(|id| awaits_retry_for(self.cluster.pod(*id), subject)).collect();
        for pod in stay {
            // Sparing one pod spares its unit.
            if self.cluster.pod(pod).eviction.is_some() && !self.unit_eviction_started(pod) {
                self.spare_unit(pod, self.now);
            }
        }
    }

    /// Evicts the remaining members that an earlier process marked, of a group that is evicted as a whole.
    fn evict_remaining_marked(&mut self, id: GroupId, part: usize) {
        let group = self.cluster.group(id);
        let members = group.members.iter().map(|(_, member)| (*member, self.cluster.pod(*member)));
        // Pods that this process spared stay.
        let is_left = |pod: &Pod| {
            let is_bound = matches!(pod.state, PodState::Bound(_));
            let is_of_part = self.cluster.unit_of(pod) == Some(part);
            pod.marked && is_of_part && is_bound && !pod.is_leaving() && !pod.is_static && pod.not_preempted_before == 0
        };
        let left: Vec<PodId> = members.filter(|(_, pod)| is_left(pod)).map(|(member, _)| member).collect();
        let by = Arc::new(Subject::Group(group.key.clone()));
        let eviction = Eviction { by, whole: true, sent: false, failed: None, irrevocable: true };
        for pod in left {
            self.cluster.change_pod(pod, |pod| pod.eviction = Some(eviction.clone()));
            self.set_timer(self.now, Timer::RetryEviction(pod));
            self.review_after_change(pod);
        }
    }

    /// Spares pods whose eviction failed transiently and whose priority is no longer below that of the preemptor. The
    /// plan cannot count on them, so this runs before the plan is checked.
    pub(super) fn cancel_evictions_not_below(&mut self, by: &Subject) {
        let Some(priority) = self.entity(by).map(|entity| self.priority_of(entity)) else { return };
        for id in self.evictions_to_retry_for(by) {
            if self.cluster.victim_priority(id) >= priority && !self.unit_eviction_started(id) {
                self.spare_unit(id, self.now);
            }
        }
    }

    /// Sends the transiently failed evictions again, for a preemptor whose plan holds. Pods that only an earlier plan
    /// needed are spared.
    pub(super) fn resend_evictions(&mut self, by: &Arc<Subject>, nodes: &BTreeSet<NodeId>) {
        for id in self.evictions_to_retry_for(by) {
            if !self.evictions_to_retry.contains(&id) {
                // It was handled with another member of its group.
                continue;
            }
            let unit = self.remaining_unit(id);
            for pod in &unit {
                self.evictions_to_retry.remove(pod);
            }
            let is_in_the_way =
                |pod: &PodId| self.cluster.pod(*pod).state.node().is_some_and(|node| nodes.contains(&node));
            if !unit.iter().any(is_in_the_way) && !self.unit_eviction_started(id) {
                self.spare_unit(id, self.now);
                continue;
            }
            self.send_eviction(&unit, by);
        }
    }

    /// The pods of the same unit that are not terminating yet.
    fn remaining_unit(&self, id: PodId) -> Vec<PodId> {
        let pod = self.cluster.pod(id);
        let (Some(group), Some(eviction)) = (pod.group, pod.eviction.as_ref().filter(|one| one.whole)) else {
            return vec![id];
        };
        let part = self.cluster.unit_of(pod);
        let is_in_unit = |other: &Pod| {
            let together = self.cluster.unit_of(other) == part
                && other.eviction.as_ref().is_some_and(|one| one.whole && one.by == eviction.by);
            together && !other.terminating && other.state.node().is_some()
        };
        let members = self.cluster.group(group).members.iter().map(|(_, member)| *member);
        members.filter(|member| is_in_unit(self.cluster.pod(*member))).collect()
    }

    fn evictions_to_retry_for(&self, by: &Subject) -> Vec<PodId> {
        let due = self.evictions_to_retry.iter().copied();
        due.filter(|id| self.cluster.pod_if_any(*id).is_some_and(|pod| awaits_retry_for(pod, by))).collect()
    }

    /// Spares a pod at least until a time, and with it its whole unit, which would otherwise be evicted in part. Its
    /// group is reviewed once.
    fn spare_unit(&mut self, id: PodId, until: Millis) {
        let by = self.cluster.pod(id).eviction.as_ref().map(|eviction| eviction.by.clone());
        for other in self.remaining_unit(id).into_iter().filter(|other| *other != id) {
            self.spare(other, self.now);
        }
        self.spare(id, until);
        self.review_after_change(id);
        if until > self.now {
            self.set_timer(until, Timer::SpareEnd(id));
        } else {
            self.cluster.record(ClusterEvent::PodPreemptible(id));
        }
        self.handle_events();
        if let Some(entity) = by.and_then(|by| self.entity(&by)) {
            self.queue.activate_parked(entity, self.now);
        }
    }

    fn spare(&mut self, id: PodId, until: Millis) {
        self.evictions_to_retry.remove(&id);
        self.cluster.cancel_eviction(id, until);
        self.schedule_unmark(id);
        self.on_member_bound(id);
    }

    /// Schedules the removal of the mark from a pod that stays: it would be mistaken for a unit whose eviction has
    /// started.
    pub(super) fn schedule_unmark(&mut self, id: PodId) {
        let pod = self.cluster.pod(id);
        if pod.marked && !pod.is_leaving() && pod.state.node().is_some() {
            self.set_timer(self.now.saturating_add(self.config.bind_retry_ms_max), Timer::Unmark(id));
        }
    }

    /// Removes the mark from a pod that stays.
    pub(super) fn unmark(&mut self, id: PodId) {
        let stays = |pod: &&Pod| pod.marked && !pod.is_leaving() && pod.state.node().is_some();
        if let Some(pod) = self.cluster.pod_if_any(id).filter(stays) {
            let whole = pod
                .group
                .filter(|group| self.cluster.group(*group).lifecycle.loss().is_some() && pod.not_preempted_before == 0);
            let part = self.cluster.unit_of(pod).filter(|_| self.rules().whole_groups);
            if let Some((group, part)) = whole.zip(part) {
                // It had its minimum and lost members: an earlier process had started to evict it.
                return self.evict_remaining_marked(group, part);
            }
            let pod = pod.id.clone();
            self.outbox.push(Command::ClearDisruptionMark { pod });
            // The write may fail; the watch shows when the mark is gone.
            self.set_timer(self.now.saturating_add(self.config.preemption.spare_ms), Timer::Unmark(id));
        }
    }

    /// The entity to activate for a preemptor: a member that preempts for itself is attempted with its group.
    fn entity(&self, subject: &Subject) -> Option<Entity> {
        match subject {
            Subject::Pod(pod) => {
                let id = self.cluster.pod_id(&pod.uid)?;
                Some(self.cluster.pod(id).group.map_or(Entity::Pod(id), Entity::Group))
            }
            Subject::Group(key) => self.cluster.group_id(key).map(Entity::Group),
        }
    }

    /// Whether a preemptor still waits for its victims.
    fn still_waits_for_victims(&self, entity: Entity, by: &Subject) -> bool {
        let has_place =
            |pod: &PodName| self.cluster.pod_id(&pod.uid).is_some_and(|id| self.cluster.pod(id).nominated.is_some());
        let awaited_victims = self.queue.entry(entity).is_some_and(|entry| entry.awaited_victims.is_some());
        awaited_victims
            && match by {
                Subject::Pod(pod) => has_place(pod),
                Subject::Group(_) => true,
            }
    }

    /// Whether a group is evicted as a whole or not at all.
    pub(super) fn is_evicted_whole(&self, group: GroupId) -> bool {
        preemption::is_evicted_whole(&self.cluster, Some(group), self.rules())
    }

    /// Whether the pod's group is evicted as a whole and that has started.
    fn unit_eviction_started(&self, id: PodId) -> bool {
        let pod = self.cluster.pod(id);
        let (Some(group), Some(eviction)) = (pod.group, pod.eviction.as_ref().filter(|one| one.whole)) else {
            return false;
        };
        let part = self.cluster.unit_of(pod);
        let is_going = |other: &Pod| {
            let together = self.cluster.unit_of(other) == part;
            let by_same = other.eviction.as_ref().is_some_and(|one| one.by == eviction.by);
            other.terminating && together && (by_same || other.marked)
        };
        let mut others = self.cluster.group(group).members.iter().map(|(_, member)| self.cluster.pod(*member));
        eviction.irrevocable || others.any(is_going)
    }
}

/// Whether a pod is to be evicted for this preemptor, is not terminating, and no eviction is in flight.
fn awaits_retry_for(pod: &Pod, by: &Subject) -> bool {
    pod.eviction.as_ref().is_some_and(|one| *one.by == *by && !one.sent) && !pod.terminating
}
