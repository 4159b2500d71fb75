//! The start of a gang, from the decision to its confirmation, and its health afterwards.
//!
//! Everything is derived from the member counts and the role of each member, so `review_start` may be called at any
//! time. A start that is not confirmed has a deadline, at which `binding` rolls it back; a confirmed one is only
//! reopened when a kubelet refuses a founder. The history of a group is taken from the API once, when the group is
//! first seen.

use super::{Engine, Timer};
use crate::cluster::group::{Exclusion, MemberCounts, StartAttempt, sum_of};
use crate::cluster::pod::{Counted, MemberState, Pod, StartRole};
use crate::diagnosis::Diagnosis;
use crate::model::Millis;
use crate::model::group::{DegradedPolicy, History};
use crate::model::ids::{GroupId, PodId};
use crate::queue::Entity;

impl Engine {
    /// Follows the group's start: confirmed, under way, or found incomplete after a restart.
    pub(super) fn review_start(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let total = group.total();
        let stays = |(member, exclusion): (&PodId, &Exclusion)| {
            let pod = self.cluster.pod(*member);
            let must_leave = pod.terminating || pod.eviction.as_ref().is_some_and(|eviction| eviction.must_go);
            pod.state.node().is_some() && !must_leave && *exclusion != Exclusion::Former
        };
        if self.may_be_evicted_whole(id) {
            // It may still be spared, and then nothing has changed.
            return;
        }
        if group.is_spent() && !group.strays.iter().any(stays) {
            // The next start is a new one, for everything that is missing.
            self.forget_start(id);
            return;
        }
        if let Some(attempt) = &group.attempt {
            let (quorum, decided) = (group.cap_at_minimum(&attempt.quorum), attempt.quorum.clone());
            if group.secured_at_least(&quorum) {
                self.cluster.group_mut(id).founding_minimum = decided;
                self.start_confirmed(id, quorum);
            }
            return;
        }
        if !group.is_gang() {
            // If it becomes a gang later, the members that are placed by then have started.
            if group.spec.is_some() && group.reached != group.quorum() {
                let group = self.cluster.group_mut(id);
                group.reached = group.quorum();
                self.settle_roles(id, StartRole::None);
            }
            return;
        }
        if group.spec.is_none() || group.admits_single_members() {
            return;
        }
        let quorum = group.quorum();
        let found = group.reached.is_empty() && total.secured() > 0;
        if group.secured_at_least(&quorum) || (found && group.history == History::Started) {
            if found && group.history == History::New {
                // Not recorded as started: its members have just been bound.
                self.change_roles(id, |_| StartRole::Tentative);
            }
            self.start_confirmed(id, quorum);
        } else if group.history == History::StartedUnderOtherMinimum && group.decisions == 0 && total.secured() > 0 {
            // The minimum of that start is not known, but it is not more than the members that are there.
            let group = self.cluster.group_mut(id);
            let there = group.rules.iter().zip(&group.member_counts);
            group.reached = there.map(|(rule, member_counts)| rule.min_member.min(member_counts.secured())).collect();
        } else if total.bound > 0 && group.reached.is_empty() && !group.kept_partial {
            self.start_attempt(id, quorum);
            // It was found incomplete: all present members are part of it.
            self.change_roles(id, |_| StartRole::Tentative);
        }
    }

    /// Whether all placed members are to be evicted and that has not started.
    pub(super) fn may_be_evicted_whole(&self, id: GroupId) -> bool {
        let group = self.cluster.group(id);
        // Called for each pod of a large group: before a start the members need not be examined.
        let started = !group.reached.is_empty() || group.attempt.is_some() || group.kept_partial;
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
        let group = self.cluster.group_mut(id);
        if !group.reached.is_empty() {
            group.history = History::New;
        }
        group.reached.clear();
        group.founding_minimum.clear();
        group.attempt = None;
        group.kept_partial = false;
        group.degraded = false;
        group.degraded_reported = false;
        group.degraded_eviction_at = None;
    }

    /// Begins a start; it must be confirmed by its deadline.
    pub(super) fn start_attempt(&mut self, id: GroupId, quorum: Vec<u32>) {
        let own = self.cluster.group(id).spec.as_ref().and_then(|spec| spec.schedule_timeout_ms);
        let deadline = self.now.saturating_add(own.unwrap_or(self.config.schedule_timeout_ms));
        let group = self.cluster.group_mut(id);
        group.attempt = Some(StartAttempt { quorum, deadline });
        group.history = History::New;
        self.set_timer(deadline, Timer::StartDeadline(id));
    }

    fn start_confirmed(&mut self, id: GroupId, quorum: Vec<u32>) {
        let group = self.cluster.group_mut(id);
        let minimum = sum_of(&quorum);
        group.reached = quorum;
        group.attempt = None;
        group.kept_partial = false;
        let secured = group.total().secured();
        if group.founding_minimum.is_empty() {
            group.founding_minimum.clone_from(&group.reached);
        }
        // The API may show it already: then it was only found again.
        let found = self.reports.latest(Entity::Group(id)).is_none();
        let known = group.degraded || (found && group.history == History::Started);
        self.settle_roles(id, StartRole::Founder);
        if secured >= minimum && !known {
            self.report_group(id, Diagnosis::Scheduled { minimum, secured }, Vec::new());
        }
    }

    /// Reopens the start for its founders and all later members; members from before the start are not part of it.
    pub(super) fn reopen_start(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        if group.attempt.is_none() && group.secured_at_least(&group.cap_at_minimum(&group.founding_minimum)) {
            // Enough members for the minimum are left: a loss, but not a failed start.
            return;
        }
        self.change_roles(id, |role| match role {
            StartRole::Founder | StartRole::Joined => StartRole::Tentative,
            other => other,
        });
        let group = self.cluster.group_mut(id);
        // The minimum is the one it was decided for, or a higher one of the start under way.
        let mut quorum = group.founding_minimum.clone();
        group.reached = vec![0; group.rules.len()];
        if let Some(attempt) = &group.attempt {
            quorum = quorum.iter().zip(&attempt.quorum).map(|(reached, decided)| *reached.max(decided)).collect();
        }
        self.start_attempt(id, quorum);
    }

    /// Gives all tentative members their final role.
    fn settle_roles(&mut self, id: GroupId, settled: StartRole) {
        self.change_roles(id, |role| if role == StartRole::Tentative { settled } else { role });
    }

    /// Changes the roles of the members that this scheduler placed.
    fn change_roles(&mut self, id: GroupId, change: impl Fn(StartRole) -> StartRole) {
        for (_, member) in self.cluster.group(id).members.clone() {
            let pod = self.cluster.pod_mut(member);
            if pod.ours {
                pod.start_role = change(pod.start_role);
            }
        }
    }

    /// No member waits any more: replaces a last report about waiting members.
    pub(super) fn report_settled(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let total = group.total();
        let settled = group.spec.is_some() && group.admits_single_members() && !group.degraded && !group.kept_partial;
        if settled && total.assumed == 0 && total.bound > 0 && self.reports.last_reported_waiting(Entity::Group(id)) {
            let (minimum, secured) = (sum_of(&group.quorum()), total.secured());
            self.report_group(id, Diagnosis::Scheduled { minimum, secured }, Vec::new());
        }
    }

    /// Reports when a started gang falls below its minimum, and when it has it again.
    pub(super) fn review_health(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        if group.attempt.is_some() || group.reached.is_empty() {
            return;
        }
        let quorum: Vec<u32> =
            group.rules.iter().zip(&group.reached).map(|(rule, reached)| rule.min_member.min(*reached)).collect();
        let mut there: Vec<u32> = group.member_counts.iter().map(MemberCounts::secured).collect();
        if !group.secured_at_least(&quorum) {
            self.count_evictions_not_started(id, &mut there);
        }
        let below = there.iter().zip(&quorum).any(|(there, minimum)| there < minimum);
        let (minimum, secured) = (sum_of(&quorum), there.iter().sum());
        self.schedule_degraded_eviction(id, below);
        let group = self.cluster.group(id);
        if below == group.degraded && (!below || secured == group.secured_when_reported) {
            return;
        }
        let group = self.cluster.group_mut(id);
        (group.degraded, group.secured_when_reported) = (below, secured);
        if below {
            self.report_group(id, Diagnosis::Degraded { minimum, secured, evicted: 0 }, Vec::new());
        } else {
            // A gang that recovered before `Degraded` was reported gets no report, nor does a later growth of the loss.
            self.reports.drop_degraded(Entity::Group(id));
            if std::mem::take(&mut self.cluster.group_mut(id).degraded_reported) {
                self.report_group(id, Diagnosis::Healthy { minimum, secured }, Vec::new());
            }
        }
    }
}

impl Engine {
    /// Starts the grace period of a degraded gang whose policy is `Evict`, or ends it.
    fn schedule_degraded_eviction(&mut self, id: GroupId, below: bool) {
        let group = self.cluster.group(id);
        let policy = group.spec.as_ref().map(|spec| spec.degraded_policy);
        let evicts = below && policy == Some(DegradedPolicy::Evict);
        let planned = group.degraded_eviction_at.is_some();
        if evicts && !planned {
            let due = self.now.saturating_add(self.config.report_waiting_after_ms);
            self.cluster.group_mut(id).degraded_eviction_at = Some(due);
            self.set_timer(due, Timer::EvictDegraded(id));
        } else if planned && !evicts {
            self.cluster.group_mut(id).degraded_eviction_at = None;
        }
    }

    /// A degraded gang has not replaced its members in time: evicts the rest, so that it starts as a whole again. This
    /// includes members that no controller recreates: the policy is explicit.
    pub(super) fn evict_degraded(&mut self, id: GroupId, due: Millis) {
        if self.cluster.group_if_any(id).is_none_or(|group| group.degraded_eviction_at != Some(due)) {
            return;
        }
        self.cluster.group_mut(id).degraded_eviction_at = None;
        let group = self.cluster.group(id);
        if !group.degraded {
            return;
        }
        let minimum = u32::try_from(group.min_total()).unwrap_or(u32::MAX);
        let secured = group.total().secured();
        let members: Vec<PodId> = group.members.iter().map(|(_, member)| *member).collect();
        let is_bound = |pod: &Pod| matches!(pod.counted, Counted::In { member_state: MemberState::Bound, .. });
        let left: Vec<PodId> = members.into_iter().filter(|member| is_bound(self.cluster.pod(*member))).collect();
        for member in &left {
            self.roll_back(*member);
        }
        let group = self.cluster.group_mut(id);
        group.history = History::New;
        group.reached.clear();
        group.founding_minimum.clear();
        group.degraded = false;
        self.report_group(id, Diagnosis::Degraded { minimum, secured, evicted: left.len() as u32 }, Vec::new());
        self.review_group(id);
    }
}

/// Whether a pod's eviction is ordered and has not started, so that it may be spared.
fn eviction_not_started(pod: &Pod) -> bool {
    let ordered = pod.eviction.as_ref().is_some_and(|eviction| !eviction.must_go);
    pod.ours && ordered && !pod.terminating && pod.state.node().is_some()
}
