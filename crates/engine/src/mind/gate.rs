//! Who may be tried: the gate in front of the queue, and the group's way from waiting to started.
//!
//! A group enters when its object and a quorum of members are known and none of them is held back by scheduling
//! gates. Whatever does not enter waits with a reason that users can see. `review_group` may be called at any time,
//! after any change: it derives everything from the group's census.

use std::cmp::Reverse;

use super::voice::Said;
use super::{Engine, Timer};
use crate::cluster::group::{Attempt, Group, Stray, sum_of};
use crate::cluster::pod::{Part, PodState};
use crate::command::{Command, MemberVerdict, Report, Subject};
use crate::diagnosis::{Diagnosis, Waiting, amount_text};
use crate::model::Millis;
use crate::model::group::{History, Policy};
use crate::model::ids::{GroupId, PodId};
use crate::queue::{Entity, Place, Rank};

impl Engine {
    /// Looks at a single pod: in the queue, on its way, or out.
    pub(super) fn review_pod(&mut self, id: PodId) {
        let entity = Entity::Pod(id);
        let pod = self.cluster.pod(id);
        match pod.state {
            // Scheduling gates are the pod's own and are shown by the API already.
            PodState::Waiting if pod.ours && !pod.terminating && !pod.gated => {
                let rank =
                    Rank { priority: Reverse(pod.priority), asked_ms: pod.created_ms, name: pod.id.to_string().into() };
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
        let gated_alone = group.joins_singly() || group.attempt.is_some();
        if group.waiting.is_empty() && (gated_alone || group.gated.is_empty()) {
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
        // The time of the oldest member that waits: leftovers keep their turn, newcomers get their own.
        let oldest = group.waiting.first().map(|(created_ms, _)| *created_ms);
        let asked_ms = oldest.or(group.members.first().map(|(created_ms, _)| *created_ms)).unwrap_or(0);
        Rank { priority: Reverse(self.cluster.group_priority(id)), asked_ms, name: group.key.to_string().into() }
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
        if !group.joins_singly()
            && let Some((rule, census)) =
                group.rules.iter().zip(&group.census).find(|(rule, census)| census.present() < rule.min_member)
        {
            return Some(Waiting::Members { subset: rule.name.clone(), have: census.present(), need: rule.min_member });
        }
        // A start that is under way, and members that join one by one, do not wait for newcomers.
        if let Some(gated) = group.gated.first().filter(|_| group.attempt.is_none() && !group.joins_singly()) {
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
        }
    }

    /// Follows the group's start: confirmed, under way, or found half done after a restart.
    fn review_start(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let total = group.total();
        let placed = |member: &PodId| self.cluster.pod(*member).state.node().is_some();
        if total.held() == 0 && !group.strays.keys().any(placed) {
            // Nothing of it is left: the next start is a new one.
            self.voice.take_back_degraded(Entity::Group(id));
            let group = self.cluster.group_mut(id);
            if !group.reached.is_empty() {
                group.history = History::New;
            }
            group.reached.clear();
            group.attempt = None;
            group.kept_partial = false;
            group.degraded = false;
            return;
        }
        if let Some(attempt) = &group.attempt {
            let quorum = group.attempt_quorum(attempt);
            if group.secured_at_least(&quorum) {
                self.cluster.group_mut(id).founded.clone_from(&quorum);
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
            self.start_confirmed(id, quorum);
        } else if group.history == History::StartedOtherwise && group.decisions == 0 && total.secured() > 0 {
            // For which minimum it started is not known; for no more than what is there, once all of it was seen.
            let group = self.cluster.group_mut(id);
            let there = group.rules.iter().zip(&group.census);
            group.reached = there.map(|(rule, census)| rule.min_member.min(census.secured())).collect();
        } else if total.bound > 0 && group.reached.is_empty() && !group.kept_partial {
            self.start_attempt(id, quorum);
            self.all_are_tentative(id);
        }
    }

    /// A start that was found half done: whoever is there is part of it.
    fn all_are_tentative(&mut self, id: GroupId) {
        for (_, member) in self.cluster.group(id).members.clone() {
            self.cluster.pod_mut(member).part = Part::Tentative;
        }
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
        // The API may say so already: then this engine has only found it again.
        if group.founded.is_empty() {
            group.founded.clone_from(&group.reached);
        }
        let found = self.voice.latest(Entity::Group(id)).is_none();
        let known =
            group.degraded || (found && group.spec.as_ref().is_some_and(|spec| spec.history == History::Started));
        self.settle_parts(id, Part::Founder);
        if secured >= minimum && !known {
            self.say_group(id, Diagnosis::Scheduled { minimum, secured }, Vec::new());
        }
    }

    /// The start is open again for all who came with it or after it; what was there before it is not part of it.
    pub(super) fn reopen_start(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        if group.attempt.is_none() && group.secured_at_least(&group.founded) {
            // There are enough for what it was decided for: a loss, but no start that failed.
            return;
        }
        for (_, member) in self.cluster.group(id).members.clone() {
            let pod = self.cluster.pod_mut(member);
            if matches!(pod.part, Part::Founder | Part::Joined) {
                pod.part = Part::Tentative;
            }
        }
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
    fn settle_parts(&mut self, id: GroupId, part: Part) {
        for (_, member) in self.cluster.group(id).members.clone() {
            let pod = self.cluster.pod_mut(member);
            if pod.part == Part::Tentative {
                pod.part = part;
            }
        }
    }

    /// Nobody of the group waits any more: if it was last said that somebody does, that is put right.
    fn say_settled(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        let total = group.total();
        let settled = group.spec.is_some() && group.joins_singly() && !group.degraded && !group.kept_partial;
        if settled && total.assumed == 0 && total.bound > 0 && self.voice.says_it_waits(Entity::Group(id)) {
            let (minimum, secured) = (sum_of(&group.quorum()), total.secured());
            self.say_group(id, Diagnosis::Scheduled { minimum, secured }, Vec::new());
        }
    }

    /// Says when a gang that had started falls below its minimum, and when it is whole again.
    fn review_health(&mut self, id: GroupId) {
        let group = self.cluster.group(id);
        if group.attempt.is_some() || group.reached.is_empty() {
            return;
        }
        let quorum: Vec<u32> =
            group.rules.iter().zip(&group.reached).map(|(rule, reached)| rule.min_member.min(*reached)).collect();
        let below = !group.secured_at_least(&quorum);
        let (minimum, secured) = (sum_of(&quorum), group.total().secured());
        if below == group.degraded {
            return;
        }
        self.cluster.group_mut(id).degraded = below;
        if below {
            self.say_group(id, Diagnosis::Degraded { minimum, secured }, Vec::new());
        } else if !self.voice.take_back_degraded(Entity::Group(id)) {
            self.say_group(id, Diagnosis::Healthy { minimum, secured }, Vec::new());
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
        if pod.state != PodState::Waiting || !pod.ours {
            return None;
        }
        let key = group.key.to_string();
        Some(match group.strays.get(&member)? {
            Stray::UnknownSubset => Waiting::UnknownSubset { subset: pod.subset.to_string(), group: key },
            Stray::OtherPriority { shared } => {
                Waiting::OtherPriority { own: pod.priority, shared: *shared, group: key }
            }
        })
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
    if let Some((name, amount)) = spec.min_resources.iter().next() {
        return Some(("minResources".to_owned(), format!("{name}: {}", amount_text(name, *amount))));
    }
    let parent = spec.parent.as_ref()?;
    Some(("parent".to_owned(), parent.to_string()))
}
