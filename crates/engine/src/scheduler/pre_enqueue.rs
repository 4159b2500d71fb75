//! The PreEnqueue check: decides which pods and groups may be attempted, and what a waiting group reports.
//!
//! A group enters the queue when its object and a quorum of members are known that are not held back by a scheduling
//! gate or a refused field. Everything else waits with a reason that users can see. `review_group` may be
//! called after any change: it derives everything from the member counts.

use std::cmp::Reverse;

use super::report_dedup::ReportTiming;
use super::{Engine, Timer};
use crate::cluster::group::{Exclusion, Group};
use crate::cluster::pod::{MemberState, PodState};
use crate::command::{MemberVerdict, Report};
use crate::diagnosis::{Diagnosis, Waiting};
use crate::model::Millis;
use crate::model::group::Policy;
use crate::model::ids::{GroupId, PodId};
use crate::model::pod::PodRefusal;
use crate::model::subject::Subject;
use crate::queue::{Entity, QueueState, Rank};

impl Engine {
    /// Reviews a single pod: adds it to the queue or removes it.
    pub(super) fn review_pod(&mut self, id: PodId) {
        let entity = Entity::Pod(id);
        let pod = self.cluster.pod(id);
        match pod.state {
            // Scheduling gates are shown by the API already.
            PodState::Waiting if pod.ours && !pod.terminating && !pod.gated && pod.refusal().is_none() => {
                let rank = Rank {
                    priority: Reverse(pod.priority),
                    since_ms: pod.schedulable_since.unwrap_or(pod.created_ms),
                    uid: None,
                    name: pod.id.to_string().into(),
                };
                if self.queue.admit(entity, rank, &pod.id.namespace).state == QueueState::Held {
                    self.queue.requeue(entity, self.now);
                }
            }
            PodState::Assumed(_) => {}
            _ => {
                let ours = pod.ours;
                self.remove_from_queue(entity);
                if ours {
                    self.clear_nomination(id);
                }
            }
        }
    }

    /// Reviews a group: its start, its health, its state in the queue, and its reservation.
    pub(super) fn review_group(&mut self, id: GroupId) {
        let entity = Entity::Group(id);
        let family = self.family_of(id);
        let root = self.root_with_gone_parts(id);
        if self.cluster.remove_group_if_unused(id) {
            self.queue.remove(entity);
            self.reports.forget(entity);
            self.unpark_later(id);
        } else {
            self.review_known_group(id);
            self.review_parked_later(id);
        }
        self.review_reservation(id);
        if let Some(root) = root {
            self.forget_gone_parts(&root);
        }
        if let Some(family) = family {
            self.review_kept_room(&family);
        }
    }

    fn review_known_group(&mut self, id: GroupId) {
        let entity = Entity::Group(id);
        self.cluster.forget_former_definition(id);
        self.review_excluded(id);
        self.cluster.update_group_priority(id);
        self.review_volumes_of(id);
        self.review_start(id);
        self.review_health(id);
        self.review_preempted(id);
        let group = self.cluster.group(id);
        if !group.has_pending_members() {
            self.clear_nominations(id);
            self.queue.remove(entity);
            if self.binds_volumes(id) {
                self.report_volumes(entity);
            } else {
                self.reports.drop_waiting(entity);
            }
            self.cluster.group_mut(id).desired_until = None;
            self.report_settled(id);
            return;
        }
        self.start_desired_wait(id);
        let rank = self.group_rank(id);
        let known = self.queue.entry(entity).map(|entry| entry.rank.priority);
        let repair_not_before = repair_not_before(self.cluster.group(id));
        self.queue.admit(entity, rank.clone(), &self.cluster.group(id).key.namespace);
        self.queue.delay(entity, repair_not_before, self.now);
        if let Some(waiting) = self.pre_enqueue(id) {
            self.queue.move_to(entity, QueueState::Held);
            self.clear_nominations(id);
            self.report_group(id, Diagnosis::Waiting(waiting), Vec::new());
            return;
        }
        self.reports.drop_waiting(entity);
        let group = self.cluster.group(id);
        let needs = group.needs();
        if group.lifecycle.attempt().is_some() && group.total().assumed > 0 && group.is_start_placed() {
            // The start under way is completed first; later members wait for it.
            self.queue.move_to(entity, QueueState::Held);
            self.clear_nominations(id);
            return;
        }
        let changes = group.changes != group.changes_when_parked
            || needs != group.needs_when_parked
            || known != Some(rank.priority);
        match self.queue.entry(entity).map(|entry| &entry.state) {
            Some(QueueState::Held) => self.queue.requeue(entity, self.now),
            Some(QueueState::Parked { .. }) if changes => self.queue.requeue(entity, self.now),
            _ => {}
        }
    }

    fn group_rank(&self, id: GroupId) -> Rank {
        let group = self.cluster.group(id);
        let queue_position = group.definition.last().and_then(|spec| spec.queue_position.as_ref());
        // The creation time of the oldest waiting member: leftovers keep their position, new members get their own.
        let oldest = || group.waiting.first().or(group.members.first()).map_or(0, |(created_ms, _)| *created_ms);
        Rank {
            priority: Reverse(self.cluster.group_priority(id)),
            since_ms: queue_position.map_or_else(oldest, |queue_position| queue_position.created_ms),
            uid: queue_position.map(|queue_position| Reverse(queue_position.uid.clone())),
            name: group.key.to_string().into(),
        }
    }

    /// What the group has to wait for before it is attempted.
    pub(crate) fn pre_enqueue(&self, id: GroupId) -> Option<Waiting> {
        let group = self.cluster.group(id);
        let Some(spec) = group.definition.current() else {
            return Some(Waiting::GroupMissing { group: group.key.to_string(), pods: group.members.len() as u32 });
        };
        if let Some(parent) = &spec.parent {
            return self.problem_of(&spec.key).or_else(|| Some(Waiting::Parent { parent: parent.to_string() }));
        }
        if group.is_gang() && self.may_be_evicted_whole(id) {
            // A member that joined now would be left alone.
            return Some(Waiting::Leaving);
        }
        if let Some(refused) = group.refused.first().filter(|_| group.waits_for_held_back_members()) {
            return self.refusal_reason(*refused, group.refused.len() as u32);
        }
        if !group.admits_single_members()
            && let Some(missing) = self.missing_members(group)
        {
            return Some(missing);
        }
        if let Some(gated) = group.gated.first().filter(|_| group.waits_for_held_back_members()) {
            let example = self.cluster.pod(*gated).id.to_string();
            return Some(Waiting::Gates { gated: group.gated.len() as u32, example });
        }
        if !group.has_ready_part() {
            // What has started of a tree goes on; the rest lacks members, or waits for some that are held back.
            let gates = || {
                let example = self.cluster.pod(*group.gated.first()?).id.to_string();
                Some(Waiting::Gates { gated: group.gated.len() as u32, example })
            };
            let refused = || self.refusal_reason(*group.refused.first()?, group.refused.len() as u32);
            return self.missing_members(group).or_else(refused).or_else(gates);
        }
        if let (Policy::Basic { desired_count: Some(desired) }, Some(until)) = (&spec.policy, group.desired_until) {
            let have = group.total().present();
            if have < *desired && self.now < until {
                return Some(Waiting::DesiredCount { have, desired: *desired });
            }
        }
        None
    }

    /// What the group lacks for its minimum: members of a subset, or groups of a tree.
    fn missing_members(&self, group: &Group) -> Option<Waiting> {
        if let Some((name, have, need)) = group.group_without_children() {
            return Some(Waiting::Groups { group: name.to_owned(), have, need });
        }
        let (rule, have) = group.incomplete_subset()?;
        let mut waiting = group.waiting.iter().map(|(_, member)| self.cluster.pod(*member));
        Some(Waiting::Members {
            subset: rule.name.clone(),
            have,
            need: rule.min_member,
            stateful_set: waiting.find_map(|pod| pod.stateful_set.as_deref().map(str::to_owned)),
        })
    }

    fn start_desired_wait(&mut self, id: GroupId) {
        let until = self.now.saturating_add(self.config.desired_wait_ms);
        let group = self.cluster.group_mut(id);
        let desired = matches!(
            group.definition.current().map(|spec| &spec.policy),
            Some(Policy::Basic { desired_count: Some(_) })
        );
        if desired && group.desired_until.is_none() && group.total().placed() == 0 {
            group.desired_until = Some(until);
            self.set_timer(until, Timer::DesiredCount(id));
        }
    }

    pub(super) fn desired_wait_over(&mut self, id: GroupId, due: Millis) {
        if self.cluster.group_if_any(id).is_some_and(|group| group.desired_until == Some(due)) {
            self.review_group(id);
        }
    }

    /// Reports why members are excluded from their group; drops that report for members that are included again.
    fn review_excluded(&mut self, id: GroupId) {
        for member in std::mem::take(&mut self.cluster.group_mut(id).exclusions_changed) {
            match self.exclusion_reason(id, member) {
                Some(waiting) => {
                    self.clear_nomination(member);
                    self.report_pod(member, Diagnosis::Waiting(waiting));
                }
                None => self.reports.drop_waiting(Entity::Pod(member)),
            }
        }
    }

    fn exclusion_reason(&self, id: GroupId, member: PodId) -> Option<Waiting> {
        let (pod, group) = (self.cluster.pod(member), self.cluster.group(id));
        // For a refused pod, the refusal is reported instead.
        if pod.state != PodState::Waiting || !pod.ours || pod.refusal().is_some() {
            return None;
        }
        let key = group.key.to_string();
        Some(match group.excluded.get(&member)? {
            Exclusion::UnknownSubset => Waiting::UnknownSubset { subset: pod.subset.to_string(), group: key },
            Exclusion::OtherPriority { shared } => {
                Waiting::OtherPriority { own: pod.priority, shared: *shared, group: key }
            }
            Exclusion::Former => Waiting::Former { group: key },
        })
    }

    /// Reports why a pod is refused, also for members: the group reports it only before its start. Drops the report
    /// when the pod is no longer refused.
    pub(super) fn review_refusal(&mut self, id: PodId) {
        let entity = Entity::Pod(id);
        if self.cluster.pod(id).member_state() == MemberState::Refused {
            self.clear_nomination(id);
            if let Some(waiting) = self.refusal_reason(id, 1) {
                self.report_pod(id, Diagnosis::Waiting(waiting));
            }
        } else if matches!(self.reports.latest(entity), Some(Diagnosis::Waiting(Waiting::PodRefused { .. }))) {
            self.reports.forget(entity);
        }
    }

    fn refusal_reason(&self, example: PodId, pods: u32) -> Option<Waiting> {
        let pod = self.cluster.pod(example);
        let PodRefusal { kind, field, value, reason } = pod.refusal()?.as_ref().clone();
        Some(Waiting::PodRefused { pod: pod.id.to_string(), kind, field, value, reason, pods })
    }

    pub(super) fn report_pod(&mut self, id: PodId, diagnosis: Diagnosis) {
        let subject = Subject::Pod(self.cluster.pod(id).id.clone());
        self.report(Entity::Pod(id), Report { subject, diagnosis, members: Vec::new() });
    }

    pub(super) fn report_group(
        &mut self,
        id: GroupId,
        diagnosis: Diagnosis,
        members: Vec<(std::sync::Arc<crate::model::pod::PodName>, MemberVerdict)>,
    ) {
        let subject = Subject::Group(self.cluster.group(id).key.clone());
        self.report(Entity::Group(id), Report { subject, diagnosis, members });
    }

    fn report(&mut self, entity: Entity, report: Report) {
        match self.reports.submit(entity, self.now, report) {
            ReportTiming::Now(report) => self.send_report(*report),
            ReportTiming::Later(due) => self.set_timer(due, Timer::Report(entity)),
            ReportTiming::Nothing => {}
        }
    }
}

/// When members whose bind was refused may be placed again.
fn repair_not_before(group: &Group) -> Millis {
    if group.consecutive_refusals > 1 { group.repair_not_before } else { 0 }
}
