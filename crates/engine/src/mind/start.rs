//! The start of a gang, from the decision to its confirmation, and its health afterwards.
//!
//! Everything is derived from the group's census and from the part that each member plays, so that `review_start` may
//! be called at any time. A start that is not confirmed has a deadline (`commit` takes it back); one that is confirmed
//! can only be opened again by a kubelet that refuses a founder. What the API said of a group's past is believed once,
//! when the group is first seen.

use super::{Engine, Timer};
use crate::cluster::group::{Attempt, Census, Stray, sum_of};
use crate::cluster::pod::{Counted, Part, Pod, Standing};
use crate::diagnosis::Diagnosis;
use crate::model::Millis;
use crate::model::group::{DegradedPolicy, History};
use crate::model::ids::{GroupId, PodId};
use crate::queue::Entity;

impl Engine {
    /// Follows the group's start: confirmed, under way, or found half done after a restart.
    pub(super) fn review_start(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let total = group.total();
        let stays = |(member, stray): (&PodId, &Stray)| {
            let pod = self.cluster.pod(*member);
            let goes = pod.terminating || pod.eviction.as_ref().is_some_and(|eviction| eviction.must_go);
            pod.state.node().is_some() && !goes && *stray != Stray::Former
        };
        if self.may_all_go(id) {
            // It may be spared yet, and be what it was.
            return;
        }
        if group.is_spent() && !group.strays.iter().any(stays) {
            // The next start is a new one, of all that is missing.
            self.forget_start(id);
            return;
        }
        if let Some(attempt) = &group.attempt {
            let (quorum, decided) = (group.no_more_than_asked(&attempt.quorum), attempt.quorum.clone());
            if group.secured_at_least(&quorum) {
                self.cluster.group_mut(id).founded = decided;
                self.start_confirmed(id, quorum);
            }
            return;
        }
        if !group.is_gang() {
            // Should it become a gang, then what was decided by then has started.
            if group.spec.is_some() && group.reached != group.quorum() {
                let group = self.cluster.group_mut(id);
                group.reached = group.quorum();
                self.settle_parts(id, Part::None);
            }
            return;
        }
        if group.spec.is_none() || group.joins_singly() {
            return;
        }
        let quorum = group.quorum();
        let found = group.reached.is_empty() && total.secured() > 0;
        if group.secured_at_least(&quorum) || (found && group.history == History::Started) {
            if found && group.history == History::New {
                // Nobody has said that it started: whoever is there has just come together.
                self.recast(id, |_| Part::Tentative);
            }
            self.start_confirmed(id, quorum);
        } else if group.history == History::StartedOtherwise && group.decisions == 0 && total.secured() > 0 {
            // For which minimum it started is not known; for no more than what is there, once all of it was seen.
            let group = self.cluster.group_mut(id);
            let there = group.rules.iter().zip(&group.census);
            group.reached = there.map(|(rule, census)| rule.min_member.min(census.secured())).collect();
        } else if total.bound > 0 && group.reached.is_empty() && !group.kept_partial {
            self.start_attempt(id, quorum);
            // It was found half done: whoever is there is part of it.
            self.recast(id, |_| Part::Tentative);
        }
    }

    /// Whether all that is placed of a group is to be evicted, and has not begun to go.
    pub(super) fn may_all_go(&self, id: GroupId) -> bool {
        let group = self.cluster.group(id);
        // Large groups come pod by pod, and are asked this for each: before a start nobody has to be looked at.
        let started = !group.reached.is_empty() || group.attempt.is_some() || group.kept_partial;
        let mut members = group.members.iter().map(|(_, member)| self.cluster.pod(*member));
        started && group.is_spent() && members.any(may_stay)
    }

    /// Counts those too, by subset, whose eviction is ordered and has not begun: they are not lost yet.
    fn count_who_may_stay(&self, id: GroupId, there: &mut [u32]) {
        let group = self.cluster.group(id);
        let members = group.members.iter().map(|(_, member)| self.cluster.pod(*member));
        for pod in members.filter(|pod| may_stay(pod)) {
            if let Ok(subset) = group.subset_of(pod, None) {
                there[subset] += 1;
            }
        }
    }

    /// Whatever was reached is over: the next start is a new one.
    pub(super) fn forget_start(&mut self, id: GroupId) {
        self.voice.take_back_degraded(Entity::Group(id));
        let group = self.cluster.group_mut(id);
        if !group.reached.is_empty() {
            group.history = History::New;
        }
        group.reached.clear();
        group.founded.clear();
        group.attempt = None;
        group.kept_partial = false;
        group.degraded = false;
        group.loss_told = false;
        group.given_up_at = None;
    }

    /// Begins to follow a start; it has until its deadline to be confirmed.
    pub(super) fn start_attempt(&mut self, id: GroupId, quorum: Vec<u32>) {
        let own = self.cluster.group(id).spec.as_ref().and_then(|spec| spec.schedule_timeout_ms);
        let deadline = self.now.saturating_add(own.unwrap_or(self.config.schedule_timeout_ms));
        let group = self.cluster.group_mut(id);
        group.attempt = Some(Attempt { quorum, deadline });
        group.history = History::New;
        self.set_timer(deadline, Timer::Deadline(id));
    }

    fn start_confirmed(&mut self, id: GroupId, quorum: Vec<u32>) {
        let group = self.cluster.group_mut(id);
        let minimum = sum_of(&quorum);
        group.reached = quorum;
        group.attempt = None;
        group.kept_partial = false;
        let secured = group.total().secured();
        if group.founded.is_empty() {
            group.founded.clone_from(&group.reached);
        }
        // The API may say so already: then this engine has only found it again.
        let found = self.voice.latest(Entity::Group(id)).is_none();
        let known = group.degraded || (found && group.history == History::Started);
        self.settle_parts(id, Part::Founder);
        if secured >= minimum && !known {
            self.say_group(id, Diagnosis::Scheduled { minimum, secured }, Vec::new());
        }
    }

    /// The start is open again for all who came with it or after it; what was there before it is not part of it.
    pub(super) fn reopen_start(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        if group.attempt.is_none() && group.secured_at_least(&group.no_more_than_asked(&group.founded)) {
            // There are enough for what it was decided for: a loss, but no start that failed.
            return;
        }
        self.recast(id, |part| match part {
            Part::Founder | Part::Joined => Part::Tentative,
            other => other,
        });
        let group = self.cluster.group_mut(id);
        // It has to come together for the minimum that it was decided for, or for the higher one that is under way.
        let mut quorum = group.founded.clone();
        group.reached = vec![0; group.rules.len()];
        if let Some(attempt) = &group.attempt {
            quorum = quorum.iter().zip(&attempt.quorum).map(|(reached, decided)| *reached.max(decided)).collect();
        }
        self.start_attempt(id, quorum);
    }

    /// Nothing of the group is tentative any more.
    fn settle_parts(&mut self, id: GroupId, settled: Part) {
        self.recast(id, |part| if part == Part::Tentative { settled } else { part });
    }

    /// Gives members of ours other parts.
    fn recast(&mut self, id: GroupId, change: impl Fn(Part) -> Part) {
        for (_, member) in self.cluster.group(id).members.clone() {
            let pod = self.cluster.pod_mut(member);
            if pod.ours {
                pod.part = change(pod.part);
            }
        }
    }

    /// Nobody of the group waits any more: if it was last said that somebody does, that is put right.
    pub(super) fn say_settled(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let total = group.total();
        let settled = group.spec.is_some() && group.joins_singly() && !group.degraded && !group.kept_partial;
        if settled && total.assumed == 0 && total.bound > 0 && self.voice.says_it_waits(Entity::Group(id)) {
            let (minimum, secured) = (sum_of(&group.quorum()), total.secured());
            self.say_group(id, Diagnosis::Scheduled { minimum, secured }, Vec::new());
        }
    }

    /// Says when a gang that had started falls below its minimum, and when it is whole again.
    pub(super) fn review_health(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        if group.attempt.is_some() || group.reached.is_empty() {
            return;
        }
        let quorum: Vec<u32> =
            group.rules.iter().zip(&group.reached).map(|(rule, reached)| rule.min_member.min(*reached)).collect();
        let mut there: Vec<u32> = group.census.iter().map(Census::secured).collect();
        if !group.secured_at_least(&quorum) {
            self.count_who_may_stay(id, &mut there);
        }
        let below = there.iter().zip(&quorum).any(|(there, minimum)| there < minimum);
        let (minimum, secured) = (sum_of(&quorum), there.iter().sum());
        self.plan_to_give_up(id, below);
        let group = self.cluster.group(id);
        if below == group.degraded && (!below || secured == group.secured_when_told) {
            return;
        }
        let group = self.cluster.group_mut(id);
        (group.degraded, group.secured_when_told) = (below, secured);
        if below {
            self.say_group(id, Diagnosis::Degraded { minimum, secured, evicted: 0 }, Vec::new());
        } else {
            // A loss that passed before anybody was told of it is no news; nor is that it grew, after it was told.
            self.voice.take_back_degraded(Entity::Group(id));
            if std::mem::take(&mut self.cluster.group_mut(id).loss_told) {
                self.say_group(id, Diagnosis::Healthy { minimum, secured }, Vec::new());
            }
        }
    }
}

impl Engine {
    /// A gang that lost members has a while to replace them, if its policy is to be given up then.
    fn plan_to_give_up(&mut self, id: GroupId, below: bool) {
        let group = self.cluster.group(id);
        let policy = group.spec.as_ref().map(|spec| spec.degraded_policy);
        let wanted = below && policy == Some(DegradedPolicy::Evict);
        let planned = group.given_up_at.is_some();
        if wanted && !planned {
            let due = self.now.saturating_add(self.config.report_waiting_after_ms);
            self.cluster.group_mut(id).given_up_at = Some(due);
            self.set_timer(due, Timer::GivenUp(id));
        } else if planned && !wanted {
            self.cluster.group_mut(id).given_up_at = None;
        }
    }

    /// A gang that lost members had its time to replace them. If its policy says so, what is left of it goes, so that it
    /// starts as a whole again. Those go too whom no controller would make anew: that is what was asked for.
    pub(super) fn give_up_degraded(&mut self, id: GroupId, due: Millis) {
        if self.cluster.group_if_any(id).is_none_or(|group| group.given_up_at != Some(due)) {
            return;
        }
        self.cluster.group_mut(id).given_up_at = None;
        let group = self.cluster.group(id);
        if !group.degraded {
            return;
        }
        let minimum = u32::try_from(group.min_total()).unwrap_or(u32::MAX);
        let secured = group.total().secured();
        let members: Vec<PodId> = group.members.iter().map(|(_, member)| *member).collect();
        let stands = |pod: &Pod| matches!(pod.counted, Counted::In { standing: Standing::Bound, .. });
        let left: Vec<PodId> = members.into_iter().filter(|member| stands(self.cluster.pod(*member))).collect();
        for member in &left {
            self.take_back(*member);
        }
        let group = self.cluster.group_mut(id);
        group.history = History::New;
        group.reached.clear();
        group.founded.clear();
        group.degraded = false;
        self.say_group(id, Diagnosis::Degraded { minimum, secured, evicted: left.len() as u32 }, Vec::new());
        self.review_group(id);
    }
}

/// Whether a pod of ours is to be evicted and may be spared yet.
fn may_stay(pod: &Pod) -> bool {
    let ordered = pod.eviction.as_ref().is_some_and(|eviction| !eviction.must_go);
    pod.ours && ordered && !pod.terminating && pod.state.node().is_some()
}
