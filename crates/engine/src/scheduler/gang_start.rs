//! The start of a gang, from the decision to its confirmation, and its health afterwards.
//!
//! Everything is derived from the member counts and the role of each member, so `review_start` may be called at any
//! time. A start that is not confirmed has a deadline, at which `binding` rolls it back; a confirmed one is only
//! reopened when a kubelet rejects a founder. What is recorded of a start is taken from the API once, when the group is
//! first seen; `found_members` decides what members belong to that were bound before.

use super::{Engine, Timer};
use crate::cluster::group::{Exclusion, MemberCounts, sum_of};
use crate::cluster::lifecycle::{Cause, Loss, StartAttempt};
use crate::cluster::pod::{Counted, MemberState, Pod, StartRole};
use crate::diagnosis::Diagnosis;
use crate::model::Millis;
use crate::model::group::DegradedPolicy;
use crate::model::ids::{GroupId, PodId};
use crate::queue::Entity;

impl Engine {
    /// Follows the group's start: confirmed, under way, or found incomplete after a restart.
    pub(super) fn review_start(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let total = group.total();
        let stays = |(member, exclusion): (&PodId, &Exclusion)| {
            let pod = self.cluster.pod(*member);
            let must_leave = pod.terminating || pod.eviction.as_ref().is_some_and(|eviction| eviction.irrevocable);
            pod.state.node().is_some() && !must_leave && *exclusion != Exclusion::Former
        };
        if self.may_be_evicted_whole(id) {
            // It may still be spared, and then nothing has changed.
            return;
        }
        let others_stay = || group.excluded.iter().any(stays);
        if group.is_spent() && !others_stay() {
            // The next start is a new one, for everything that is missing.
            self.forget_start(id);
            return;
        }
        if let Some(attempt) = group.lifecycle.attempt() {
            let quorum = group.cap_at_minimum(&attempt.quorum);
            if group.is_start_complete(&quorum) {
                self.start_confirmed(id, quorum);
            }
            return;
        }
        let quorum = group.quorum();
        if !group.is_gang() {
            // If it becomes a gang later, the members that are placed by then have started.
            if group.definition.current().is_some() && group.lifecycle.reached() != quorum {
                let cause = Cause::WithoutMinimum { minimum: quorum, now: self.now };
                self.cluster.group_mut(id).lifecycle.apply(cause);
                self.settle_roles(id, StartRole::None);
            }
            return;
        }
        if group.definition.current().is_none() {
            return;
        }
        if total.scheduled() > 0 || others_stay() {
            self.find_recorded_start(id);
        }
        let group = self.cluster.group(id);
        if group.admits_single_members() {
            return;
        }
        if group.is_start_complete(&quorum) {
            self.start_confirmed(id, quorum);
        } else if !self.guess_recorded_start(id) && total.bound > 0 && self.cluster.group(id).lifecycle.is_pending() {
            self.cluster.group_mut(id).lifecycle.apply(Cause::FoundBound);
        }
    }

    /// Whether all placed members are to be evicted and that has not started.
    pub(super) fn may_be_evicted_whole(&self, id: GroupId) -> bool {
        let group = self.cluster.group(id);
        // Called for each pod of a large group: before a start the members need not be examined.
        let started = !group.lifecycle.is_pending();
        let mut members = group.members.iter().map(|(_, member)| self.cluster.pod(*member));
        started && group.is_spent() && members.any(eviction_not_started)
    }

    /// Also counts, by subset, members whose eviction is ordered and has not started: they are not lost yet.
    fn count_evictions_not_started(&self, id: GroupId, there: &mut [u32]) {
        let group = self.cluster.group(id);
        let members = group.members.iter().map(|(_, member)| self.cluster.pod(*member));
        for pod in members.filter(|pod| eviction_not_started(pod)) {
            if let Ok(subset) = group.subset_of(pod, None) {
                there[subset] += 1;
            }
        }
    }

    /// Forgets the start: the next one is new.
    pub(super) fn forget_start(&mut self, id: GroupId) {
        self.reports.drop_degraded(Entity::Group(id));
        self.cluster.group_mut(id).lifecycle.apply(Cause::Ended);
    }

    /// Begins a start; it must be confirmed by its deadline.
    pub(super) fn start_attempt(&mut self, id: GroupId, quorum: Vec<u32>) {
        let attempt = self.new_attempt(id, quorum);
        self.cluster.group_mut(id).lifecycle.apply(Cause::Placed(attempt));
    }

    fn new_attempt(&mut self, id: GroupId, quorum: Vec<u32>) -> StartAttempt {
        let group = self.cluster.group(id);
        let own = group.definition.last().and_then(|spec| spec.schedule_timeout_ms);
        let timeout_ms = own.unwrap_or(self.config.schedule_timeout_ms);
        // Of two starts the later one has the greater time, also if the clock of an earlier process was ahead.
        let decided_ms = group.lifecycle.decided_ms().map_or(self.now, |before| self.now.max(before.saturating_add(1)));
        let deadline = self.now.saturating_add(timeout_ms);
        self.set_timer(deadline, Timer::StartDeadline(id));
        StartAttempt { quorum, decided_ms, timeout_ms, deadline }
    }

    /// How long the start under way may take, or the next one.
    pub(super) fn schedule_timeout_ms(&self, id: GroupId) -> Millis {
        let group = self.cluster.group(id);
        let under_way = group.lifecycle.attempt().map(|attempt| attempt.timeout_ms);
        let own = || group.definition.last().and_then(|spec| spec.schedule_timeout_ms);
        under_way.or_else(own).unwrap_or(self.config.schedule_timeout_ms)
    }

    pub(super) fn start_confirmed(&mut self, id: GroupId, quorum: Vec<u32>) {
        let group = self.cluster.group_mut(id);
        let quorum = group.with_started_subsets(quorum);
        let (minimum, scheduled) = (sum_of(&quorum), group.total().scheduled());
        let known = group.lifecycle.loss().is_some();
        group.lifecycle.apply(Cause::Confirmed { minimum: quorum, now: self.now });
        self.settle_roles(id, StartRole::Founder);
        if scheduled >= minimum && !known {
            self.report_group(id, Diagnosis::Scheduled { minimum, scheduled }, Vec::new());
        }
    }

    /// Reopens the start for its founders, unless it has gone on since: then the rejection is a loss.
    pub(super) fn reopen_start(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        // The minimum is the one it was decided for, or a higher one of the start under way.
        let decided = group.lifecycle.confirmed().map_or(&[][..], |confirmed| &confirmed.decided);
        let under_way = group.lifecycle.attempt().map_or(&[][..], |attempt| &attempt.quorum);
        let minimum = |at: usize| decided.get(at).max(under_way.get(at)).copied().unwrap_or(u32::MAX);
        let quorum: Vec<u32> = (0..group.rules.len()).map(minimum).collect();
        if under_way.is_empty() && group.scheduled_at_least(&group.cap_at_minimum(decided)) {
            // Enough members for the minimum are left: a loss, but not a failed start.
            return;
        }
        let goes_on = |pod: &Pod| {
            let joined = pod.start_role == StartRole::Joined && pod.state.node().is_some();
            !pod.is_leaving() && (joined || self.has_run_long(id, pod))
        };
        let mut members = group.members.iter().filter(|(_, member)| !group.is_former(*member));
        if members.any(|(_, member)| goes_on(self.cluster.pod(*member))) {
            return;
        }
        self.change_roles(id, |pod| match pod.start_role {
            StartRole::Founder => StartRole::Tentative,
            role => role,
        });
        let attempt = self.new_attempt(id, quorum);
        self.cluster.group_mut(id).lifecycle.apply(Cause::FounderRejected(attempt));
        self.limit_deadline_by_members(id);
    }

    /// Gives all tentative members their final role. One that is leaving is not counted, so it founded nothing.
    pub(super) fn settle_roles(&mut self, id: GroupId, settled: StartRole) {
        self.change_roles(id, |pod| match pod.start_role {
            StartRole::Tentative if pod.is_leaving() => StartRole::None,
            StartRole::Tentative => settled,
            role => role,
        });
    }

    /// Changes the roles of the members that this scheduler placed.
    pub(super) fn change_roles(&mut self, id: GroupId, change: impl Fn(&Pod) -> StartRole) {
        for (_, member) in self.cluster.group(id).members.clone() {
            let pod = self.cluster.pod_mut(member);
            if pod.ours {
                pod.start_role = change(pod);
            }
        }
    }

    /// No member waits any more: replaces a last report about waiting members.
    pub(super) fn report_settled(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let total = group.total();
        let healthy = group.lifecycle.loss().is_none() && !group.lifecycle.is_partially_bound();
        let settled = group.definition.current().is_some() && group.admits_single_members() && healthy;
        if settled && total.assumed == 0 && total.bound > 0 && self.reports.last_reported_waiting(Entity::Group(id)) {
            let (minimum, scheduled) = (sum_of(&group.quorum()), total.scheduled());
            self.report_group(id, Diagnosis::Scheduled { minimum, scheduled }, Vec::new());
        }
    }

    /// Reports when a started gang falls below its minimum, and when it has it again.
    pub(super) fn review_health(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let Some(confirmed) = group.lifecycle.confirmed() else { return };
        let (before, starts) = (confirmed.loss, group.lifecycle.attempt().is_some());
        // During a further start a loss can only turn out to be none: not all members had been found.
        if starts && before.is_none_or(|loss| loss.reported) {
            return;
        }
        let quorum = group.cap_at_minimum(&confirmed.minimum);
        let mut there: Vec<u32> = group.member_counts.iter().map(MemberCounts::scheduled).collect();
        if !group.scheduled_at_least(&quorum) {
            self.count_evictions_not_started(id, &mut there);
        }
        let below = there.iter().zip(&quorum).any(|(there, minimum)| there < minimum);
        if starts && below {
            return;
        }
        let (minimum, scheduled) = (sum_of(&quorum), there.iter().sum());
        let known = before.unwrap_or(Loss { scheduled, reported: false, eviction_at: None });
        self.set_loss(id, below.then_some(Loss { scheduled, ..known }));
        if below && before.is_none_or(|before| before.scheduled != scheduled) {
            self.report_group(id, Diagnosis::Degraded { minimum, scheduled, evicted: 0 }, Vec::new());
        }
        if let (false, Some(before)) = (below, before) {
            // A gang that recovered before `Degraded` was reported gets no report, nor does a later growth of the loss.
            self.reports.drop_degraded(Entity::Group(id));
            if before.reported {
                self.report_group(id, Diagnosis::Healthy { minimum, scheduled }, Vec::new());
            }
        }
    }

    /// Records what was lost. Starts the grace period of a degraded gang whose policy is `Evict`, or ends it.
    fn set_loss(&mut self, id: GroupId, mut loss: Option<Loss>) {
        // Without an object it could not start again.
        let policy = self.cluster.group(id).definition.current().map(|spec| spec.degraded_policy);
        if let Some(loss) = &mut loss {
            let planned = loss.eviction_at.filter(|_| policy == Some(DegradedPolicy::Evict));
            if policy == Some(DegradedPolicy::Evict) && planned.is_none() {
                let due = self.now.saturating_add(self.config.report_waiting_after_ms);
                loss.eviction_at = Some(due);
                self.set_timer(due, Timer::EvictDegraded(id));
            } else {
                loss.eviction_at = planned;
            }
        }
        if loss.is_none() {
            self.moves.remove(&id);
        }
        if let Some(confirmed) = self.cluster.group_mut(id).lifecycle.confirmed_mut() {
            confirmed.loss = loss;
        }
    }

    /// A degraded gang has not replaced its members in time: evicts the rest, so that it starts as a whole again. This
    /// includes members that no controller recreates: the policy is explicit.
    pub(super) fn evict_degraded(&mut self, id: GroupId, due: Millis) {
        let Some(group) = self.cluster.group_if_any(id) else { return };
        if group.lifecycle.loss().is_none_or(|loss| loss.eviction_at != Some(due)) {
            return;
        }
        self.give_up_members(id);
    }

    /// Deletes all members, so that the group starts as a whole again.
    pub(super) fn give_up_members(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let minimum = u32::try_from(group.min_total()).unwrap_or(u32::MAX);
        let scheduled = group.total().scheduled();
        let members: Vec<PodId> = group.members.iter().map(|(_, member)| *member).collect();
        let is_bound = |pod: &Pod| matches!(pod.counted, Counted::In { member_state: MemberState::Bound, .. });
        let left: Vec<PodId> = members.into_iter().filter(|member| is_bound(self.cluster.pod(*member))).collect();
        for member in &left {
            self.roll_back(*member);
        }
        self.cluster.group_mut(id).lifecycle.apply(Cause::GivenUp);
        self.report_group(id, Diagnosis::Degraded { minimum, scheduled, evicted: left.len() as u32 }, Vec::new());
        self.review_group(id);
    }
}

/// Whether a pod's eviction is ordered and has not started, so that it may be spared.
fn eviction_not_started(pod: &Pod) -> bool {
    let ordered = pod.eviction.as_ref().is_some_and(|eviction| !eviction.irrevocable);
    pod.ours && ordered && !pod.terminating && pod.state.node().is_some()
}
