//! Stamps: what a bind writes on a member of a group, and what this process concludes from it about members that were
//! bound before.
//!
//! Kubernetes cannot unbind, so a start that was interrupted can only be rolled back by deleting its pods, and a pod
//! that
//! does its work must never be deleted for that. The status of a group may be lost with its object or not be written
//! yet. So every bind carries a stamp: the group's object, the start, and whether that was confirmed already. Only
//! members
//! with a stamp of this very object and of a start that was never confirmed can be rolled back, and of those only pods
//! that have not run for longer than a start may take. If the object is gone, the stamps also tell what it said.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Engine, Timer};
use crate::cluster::group::{Definition, sum_of};
use crate::cluster::lifecycle::Cause;
use crate::cluster::pod::{Pod, PodState, StartRole};
use crate::model::Millis;
use crate::model::group::{GroupPriority, GroupSpec, Policy, RecordedStart, Subset};
use crate::model::ids::{GroupId, PodId};
use crate::model::pod::StartStamp;

/// The API shows in whole seconds when a pod was started.
const STARTED_MS_PRECISION: Millis = 1_000;

/// Since when a pod has run, at the earliest since its bind was decided: the clock of its node may be slow.
fn running_since(pod: &Pod) -> Option<Millis> {
    let bound_ms = pod.start.as_ref().map_or(0, |stamp| stamp.decided_ms);
    pod.started_ms.filter(|_| pod.ran).map(|started_ms| started_ms.max(bound_ms))
}

impl Engine {
    /// The stamp for members that are placed now: of the start under way, unless they join what has started.
    pub(super) fn start_stamp(&self, id: GroupId, joined: bool) -> Option<StartStamp> {
        let group = self.cluster.group(id);
        let spec = group.definition.current().filter(|spec| !spec.uid.is_empty())?;
        // Members that join a part of a tree that has started are not of a start of another part.
        let confirmed = group.lifecycle.confirmed().filter(|_| joined);
        let decided_ms = confirmed.map_or_else(|| group.lifecycle.decided_ms(), |confirmed| confirmed.decided_ms);
        Some(StartStamp {
            group_uid: spec.uid.clone(),
            decided_ms: decided_ms.unwrap_or(self.now),
            confirmed: joined || group.lifecycle.attempt().is_none(),
            minimum: u32::try_from(group.min_total()).unwrap_or(u32::MAX),
            disruption_mode: spec.disruption_mode,
            priority: self.cluster.group_priority(id),
        })
    }

    /// Whether a member was bound for another object of the group's name.
    pub(super) fn is_of_former_object(&self, id: GroupId, pod: &Pod) -> bool {
        let current = self.cluster.group(id).definition.current();
        pod.start.as_ref().zip(current).is_some_and(|(stamp, spec)| stamp.group_uid != spec.uid)
    }

    /// The object of a group was seen for the first time: decides about members that were seen before it.
    pub(super) fn adopt_members(&mut self, id: GroupId) {
        let members: Vec<PodId> = self.cluster.group(id).members.iter().map(|(_, member)| *member).collect();
        for member in members {
            if matches!(self.cluster.pod(member).state, PodState::Bound(_)) {
                self.adopt(member);
            }
        }
    }

    /// A member is bound that this process has not placed.
    pub(super) fn adopt(&mut self, id: PodId) {
        let pod = self.cluster.pod(id);
        let (Some(group_id), Some(stamp)) = (pod.group.filter(|_| pod.ours), pod.start.clone()) else { return };
        let group = self.cluster.group(group_id);
        if !group.definition.was_seen() {
            self.use_stamped_definition(group_id, &stamp);
            return;
        }
        let own = group.definition.current().is_some_and(|spec| spec.uid == stamp.group_uid);
        if !own || !group.is_gang() || group.is_former(id) {
            return;
        }
        // Without its time, a record may be about another start.
        let is_known = group.lifecycle.decided_ms().is_some_and(|until| stamp.decided_ms <= until);
        let is_confirmed = group.lifecycle.has_confirmed(stamp.decided_ms);
        let has_run_long = self.has_run_long(group_id, pod);
        if stamp.confirmed || (is_confirmed && is_known) {
            let group = self.cluster.group_mut(group_id);
            group.latest_stamp = group.latest_stamp.max(Some((stamp.decided_ms, stamp.minimum)));
        }
        if stamp.confirmed {
            self.cluster.pod_mut(id).start_role = StartRole::Joined;
            self.start_was_confirmed(group_id, &stamp);
        } else if is_confirmed {
            self.cluster.pod_mut(id).start_role = StartRole::Founder;
        } else if !has_run_long {
            self.cluster.pod_mut(id).start_role = StartRole::Tentative;
            self.follow_up_found_start(id, group_id, stamp.decided_ms);
        }
    }

    /// A member joined after its start was confirmed: so were the others of that start.
    fn start_was_confirmed(&mut self, id: GroupId, stamp: &StartStamp) {
        let group = self.cluster.group_mut(id);
        if group.lifecycle.has_confirmed(stamp.decided_ms) {
            return;
        }
        group.lifecycle.apply(Cause::FoundConfirmed { decided_ms: stamp.decided_ms });
        let members = self.cluster.group(id).members.iter().map(|(_, member)| *member);
        let is_tentative = |member: &PodId| self.cluster.pod(*member).start_role == StartRole::Tentative;
        let tentative: Vec<PodId> = members.filter(is_tentative).collect();
        self.review_start(id);
        for member in tentative {
            self.cluster.pod_mut(member).start_role = StartRole::None;
            self.adopt(member);
        }
    }

    /// A member of a start that was never confirmed was found: it has to be confirmed, or is rolled back.
    fn follow_up_found_start(&mut self, member: PodId, id: GroupId, decided_ms: Millis) {
        let under_way = self.cluster.group(id).lifecycle.attempt().map(|attempt| attempt.decided_ms);
        if under_way.is_none() {
            // What is recorded is about an earlier start, whose members stay.
            self.find_recorded_start(id);
            let group = self.cluster.group_mut(id);
            let quorum = group.quorum_to_confirm();
            if matches!(group.lifecycle.recorded(), RecordedStart::Confirmed { .. }) {
                let minimum = vec![0; quorum.len()];
                group.lifecycle.apply(Cause::FoundStarted { minimum, guessed: true });
            }
            self.start_attempt(id, quorum);
        }
        let Some(attempt) = self.cluster.group_mut(id).lifecycle.attempt_mut() else { return };
        attempt.decided_ms = under_way.map_or(decided_ms, |other| other.max(decided_ms));
        self.limit_deadline(id, member);
    }

    /// Members of a start were found that the API has recorded: the group has started with the minimum of that start.
    pub(super) fn find_recorded_start(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let minimum = match group.lifecycle.recorded() {
            RecordedStart::Confirmed { minimum: Some(minimum), .. } => {
                let of = |rule: &Subset| minimum.iter().find(|known| known.name == rule.name);
                Some(group.rules.iter().map(|rule| of(rule).map_or(0, |known| known.min_member)).collect())
            }
            _ => None,
        };
        let stamped = || self.stamped_minimum(id).map(|minimum| Cause::FoundStarted { minimum, guessed: true });
        let found = minimum.map(|minimum| Cause::FoundStarted { minimum, guessed: false }).or_else(stamped);
        if let Some(cause) = found {
            self.cluster.group_mut(id).lifecycle.apply(cause);
        }
    }

    /// The minimum of the recorded start is not known, but it is not more than the members that are there. Returns
    /// whether there is such a start.
    pub(super) fn guess_recorded_start(&mut self, id: GroupId) -> bool {
        let group = self.cluster.group(id);
        if !group.lifecycle.is_minimum_unknown() || group.decisions > 0 || group.total().scheduled() == 0 {
            return false;
        }
        if self.stamped_minimum(id).is_some() {
            return true;
        }
        let there = group.rules.iter().zip(&group.member_counts);
        let minimum = there.map(|(rule, member_counts)| rule.min_member.min(member_counts.scheduled())).collect();
        self.cluster.group_mut(id).lifecycle.apply(Cause::FoundStarted { minimum, guessed: true });
        true
    }

    /// The minimum of a recorded start where only the members know it: the one that those of the latest start are
    /// stamped
    /// with.
    fn stamped_minimum(&self, id: GroupId) -> Option<Vec<u32>> {
        let group = self.cluster.group(id);
        if !group.lifecycle.is_minimum_unknown() || group.decisions > 0 {
            return None;
        }
        let (_, minimum) = group.latest_stamp?;
        match group.rules.len() {
            // Enough members for the present minimum may have been found before.
            1 => Some(vec![minimum.max(sum_of(group.lifecycle.reached()))]),
            _ => (group.min_total() == u64::from(minimum)).then(|| group.quorum()),
        }
    }

    /// Everything has been listed: what is recorded of starts of which no member was found does not count.
    pub(super) fn forget_starts_without_members(&mut self) {
        let belongs = |pod: &Pod| {
            let is_placed = matches!(pod.state, PodState::Bound(_)) && !pod.is_leaving();
            pod.ours && is_placed && pod.start_role != StartRole::Tentative
        };
        let starts = self.cluster.groups().filter(|(_, group)| {
            let has_former = group.lifecycle.attempt().is_some() && group.lifecycle.confirmed().is_some();
            let mut members = group.members.iter().filter(|(_, member)| !group.is_former(*member));
            has_former && !members.any(|(_, member)| belongs(self.cluster.pod(*member)))
        });
        for id in starts.map(|(id, _)| id).collect::<Vec<_>>() {
            self.cluster.group_mut(id).lifecycle.apply(Cause::FormerNotFound);
            self.review_group(id);
        }
    }

    /// Limits the deadline of a start by all members that it may roll back.
    pub(super) fn limit_deadline_by_members(&mut self, id: GroupId) {
        for (_, member) in self.cluster.group(id).members.clone() {
            self.limit_deadline(id, member);
        }
    }

    /// A start is rolled back before one of its members has run for longer than a start may take.
    pub(super) fn limit_deadline(&mut self, id: GroupId, member: PodId) {
        let pod = self.cluster.pod(member);
        // One that is rolled back belongs to the start before.
        if pod.start_role != StartRole::Tentative || pod.is_leaving() {
            return;
        }
        let Some(since) = running_since(self.cluster.pod(member)) else { return };
        let latest = since.saturating_add(self.schedule_timeout_ms(id));
        let Some(attempt) = self.cluster.group_mut(id).lifecycle.attempt_mut() else { return };
        if latest < attempt.deadline {
            attempt.deadline = latest;
            self.set_timer(latest, Timer::StartDeadline(id));
        }
    }

    /// The members of the start under way stay.
    pub(super) fn keep_start(&mut self, id: GroupId) {
        self.settle_roles(id, StartRole::None);
        self.cluster.group_mut(id).lifecycle.apply(Cause::StartKept);
    }

    /// Another object of the same name defines the group now. A start of the former one is not rolled back.
    pub(super) fn keep_members_of_replaced_object(&mut self, id: GroupId) {
        self.change_roles(id, |_| StartRole::None);
        self.cluster.group_mut(id).lifecycle.apply(Cause::StartKept);
    }

    /// Whether a member has run for longer than a start of its group may take.
    pub(super) fn has_run_long(&self, id: GroupId, pod: &Pod) -> bool {
        let limit_ms = self.schedule_timeout_ms(id).saturating_add(STARTED_MS_PRECISION);
        let runs = pod.ours && matches!(pod.state, PodState::Bound(_));
        running_since(pod).is_some_and(|since| runs && self.now.saturating_sub(since) > limit_ms)
    }

    /// Uses what a stamp says about an object that was not seen: it may be gone, or cannot be used.
    fn use_stamped_definition(&mut self, id: GroupId, stamp: &Arc<StartStamp>) {
        let group = self.cluster.group(id);
        let policy = match stamp.minimum {
            0 => Policy::Basic { desired_count: None },
            min_count => Policy::Gang { min_count },
        };
        let spec = GroupSpec {
            priority: GroupPriority::Own(stamp.priority),
            disruption_mode: stamp.disruption_mode,
            // Which subsets it had is not known.
            open: true,
            uid: stamp.group_uid.clone(),
            ..GroupSpec::with_policy(group.key.clone(), policy)
        };
        // Of different stamps, the one of the latest start counts, and of those the lowest priority.
        let known = match &group.definition {
            Definition::Stamped { decided_ms, .. } => Some((*decided_ms, Reverse(group.priority(false, || None)))),
            _ => None,
        };
        if known.is_none_or(|known| known < (stamp.decided_ms, Reverse(stamp.priority))) {
            self.cluster.set_stamped_definition(id, spec, stamp.decided_ms);
            self.resume_unit_eviction(id);
        }
    }
}
