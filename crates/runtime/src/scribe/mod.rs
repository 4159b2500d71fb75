//! The scribe: what the engine says becomes conditions, counters and events.
//!
//! It keeps what is to be said and gives errands when they are due; it sends nothing itself.

mod agenda;
mod events;
mod evictions;
mod groups;
mod pause;
mod pods;
#[cfg(test)]
mod random_counts;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::ApiResource;
use muster_api::keys::conditions::POD_GROUP_SCHEDULED;
use muster_api::keys::group_reasons::UNSUPPORTED;
use muster_api::keys::pod_reasons::WAITING_FOR_VICTIMS;
use muster_api::wire::condition::Condition;
use muster_engine::diagnosis::Waiting;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{PodName, RefusalKind};
use muster_engine::{Diagnosis, Engine, MemberVerdict, Report, Subject};

use crate::clock::Clock;
use crate::dialect::InstanceStatus;
use crate::hands::{Errand, Outcome, WriteOutcome};
use crate::intake::Intake;
use crate::intake::card::{Card, Said};
use crate::intake::groups::ObjectKey;
use crate::intake::instance::Instance;
use crate::text::{cut, first_sentence};
use events::{Action, EventNotes, Happening, Regarding};
use groups::GroupNotes;
use pods::{Nomination, PodNotes};

/// The most characters of a pod's condition message.
const MESSAGE_CHARS_MAX: usize = 2_000;
/// How long a new member waits before it is told what its group has been told before.
const NEWCOMER_TOLD_MS: u64 = 5_000;
/// For how long a member that waits for others is not told so because more of them keep coming.
const GROWTH_MS_MAX: u64 = 60_000;
const FAILED_SCHEDULING: &str = "FailedScheduling";

/// The scribe.
pub(crate) struct Scribe {
    clock: Clock,
    pods: PodNotes,
    groups: GroupNotes,
    events: EventNotes,
    resources: Vec<Arc<ApiResource>>,
    outbox: Vec<Errand>,
    /// Members of groups that began to wait, by the time at which they must have been told why.
    newcomers: BTreeSet<(u64, Arc<PodName>)>,
}

impl Scribe {
    pub(crate) fn new(clock: Clock, scheduler_name: &str, identity: &str, resources: Vec<Arc<ApiResource>>) -> Self {
        Self {
            clock,
            pods: PodNotes::default(),
            groups: GroupNotes::default(),
            events: EventNotes::new(scheduler_name, identity),
            resources,
            outbox: Vec::new(),
            newcomers: BTreeSet::new(),
        }
    }

    /// The engine says how things are.
    pub(crate) fn report(&mut self, report: Report, intake: &mut Intake, engine: &Engine) {
        let Report { subject, diagnosis, members } = report;
        match subject {
            // Who is about to get its reference, or has got it by now, need not be told that it has none.
            Subject::Pod(pod) if self.is_newly_held(&pod, intake) || is_over(&diagnosis, &pod, intake) => {}
            Subject::Pod(pod) => self.report_pod(&pod, &diagnosis, intake),
            Subject::Group(key) => self.report_group(&key, &diagnosis, &members, intake, engine),
        }
    }

    /// Whether a pod is held back for its reference, and came just now: `tell_newcomers` comes back to it.
    fn is_newly_held(&self, pod: &PodName, intake: &Intake) -> bool {
        let card = intake.card(&pod.uid).filter(|card| card.held);
        card.is_some_and(|card| self.clock.now_ms() < card.asked_ms + NEWCOMER_TOLD_MS)
    }

    /// The nomination of a pod no longer stands.
    pub(crate) fn clear_nomination(&mut self, pod: &Arc<PodName>, intake: &Intake) {
        let shown = intake.card(&pod.uid).and_then(|card| card.said.as_deref());
        self.pods.nominate(pod, Nomination::Cleared, shown, self.clock.now_ms());
    }

    /// A node is kept free for a pod.
    pub(crate) fn nominate(&mut self, pod: &Arc<PodName>, node: &Arc<str>, intake: &Intake) {
        let shown = intake.card(&pod.uid).and_then(|card| card.said.as_deref());
        self.pods.nominate(pod, Nomination::Node(node.clone()), shown, self.clock.now_ms());
    }

    /// A nomination that was not sent yet is not needed any more.
    pub(crate) fn forget_nomination(&mut self, uid: &str) {
        self.pods.forget_nomination(uid);
    }

    /// Whether a nomination of the pod is still to be written.
    pub(crate) fn is_nominating(&self, uid: &str) -> bool {
        self.pods.is_nominating(uid)
    }

    /// A pod no longer waits, or is gone.
    pub(crate) fn settled(&mut self, pod: &PodName) {
        self.pods.forget(&pod.uid);
    }

    /// A pod begins to wait. What was said of it behind its gates holds now; for a member of a group, what was said of
    /// the group before it came holds too.
    pub(crate) fn newcomer(&mut self, pod: &Arc<PodName>, intake: &mut Intake) {
        let now_ms = self.clock.now_ms();
        self.newcomers.insert((now_ms + NEWCOMER_TOLD_MS, pod.clone()));
        let group = intake.card(&pod.uid).and_then(|card| card.group.clone());
        if let Some(instance) = group.and_then(|key| intake.groups.instance_mut(&key)) {
            instance.grew_ms = now_ms;
        }
    }

    fn tell_newcomers(&mut self, intake: &Intake, engine: &Engine) {
        let now_ms = self.clock.now_ms();
        while let Some((_, pod)) = self.newcomers.first().cloned().filter(|(due_ms, _)| *due_ms <= now_ms) {
            self.newcomers.pop_first();
            let Some(card) = intake.card(&pod.uid).filter(|card| card.waits()) else { continue };
            if self.pods.has_word_for(&pod.uid) {
                continue;
            }
            if card.refused || is_left_out(engine, &pod) {
                // What was said of it while its gates hid that.
                if let Some(own) = engine.explain(&Subject::Pod(pod.clone())) {
                    self.report_pod(&pod, own, intake);
                }
                continue;
            }
            let instance = card.group.as_ref().and_then(|key| Some((key, intake.groups.instance(key)?)));
            let Some((key, instance)) = instance else { continue };
            if let Some(told @ Diagnosis::Waiting(_)) = &instance.told
                && let Some(reason) = words::member_reason(told, None)
            {
                if let Some(until_ms) = grows_until(instance, told, card, now_ms) {
                    self.newcomers.insert((until_ms, pod));
                    continue;
                }
                let message = member_message(key, instance, told, intake);
                self.say(&pod, told, Said { reason: reason.to_owned(), message }, intake);
            }
        }
    }

    /// Users are to be told something of a pod at once.
    pub(crate) fn note(&mut self, pod: &Arc<PodName>, reason: &'static str, note: String) {
        self.tell(&regarding_pod(pod), &Happening { warning: true, reason, action: Action::Scheduling, note });
    }

    /// Looks at what changed in the books of groups.
    pub(crate) fn groups_changed(&mut self, intake: &mut Intake, engine: &Engine) {
        let now_ms = self.clock.now_ms();
        for key in intake.groups.take_retell() {
            let Some(instance) = intake.groups.instance(&key) else { continue };
            let object = instance.object.clone();
            if let Some(told @ Diagnosis::Waiting(Waiting::GroupMissing { .. })) = instance.told.clone() {
                self.tell_members(&key, &told, &[], intake, engine);
            }
            self.groups.touch(&object, true, now_ms);
            self.tell_flaw(&key, intake);
        }
        for key in intake.groups.take_unheeded() {
            self.tell_unheeded(&key, intake);
        }
        self.tell_newcomers(intake, engine);
        for key in intake.groups.take_touched() {
            self.groups.touch(&key, false, now_ms);
        }
    }

    /// What is due to be written, but no more than there is room for: what waits here costs no memory for its text.
    pub(crate) fn take_due(&mut self, room: usize, intake: &mut Intake, engine: &Engine) -> Vec<Errand> {
        let (now_ms, now) = (self.clock.now_ms(), self.clock.now());
        if room == 0 {
            return Vec::new();
        }
        let mut errands: Vec<Errand> = self.group_writes(now_ms, now, intake, engine);
        let events = self.outbox.len().min(room);
        errands.extend(self.outbox.drain(..events));
        errands.extend(self.pods.take_due(now_ms, now, room.saturating_sub(errands.len()), intake));
        errands
    }

    fn group_writes(&mut self, now_ms: u64, now: Timestamp, intake: &mut Intake, engine: &Engine) -> Vec<Errand> {
        let mut errands = Vec::new();
        for key in self.groups.take_due(now_ms) {
            let resource = self.resources[key.dialect].clone();
            if groups::is_left_to_others(intake, &key, &resource) {
                continue;
            }
            let Some(mut status) = groups::status(intake, engine, &key, now_ms, now) else {
                self.groups.forget(&key);
                continue;
            };
            if groups::is_of_others(intake, &key, &resource) {
                groups::say_only_of_disruption(&mut status);
            }
            let Some(object) = intake.groups.object(&key) else { continue };
            // An empty group is only worth a word when it stays empty.
            let silent = |one: &InstanceStatus| {
                one.counts.total == 0 || Condition::find(&one.conditions, POD_GROUP_SCHEDULED).is_none()
            };
            if status.instances.is_empty() || status.instances.iter().any(silent) {
                self.groups.look_again(&key, object.created_ms + groups::EMPTY_TOLD_MS, now_ms);
            }
            let Some(patch) = intake.groups.dialects[key.dialect].write(object, &status) else { continue };
            if !self.groups.may_repeat(&key, &patch, now_ms) {
                continue;
            }
            self.groups.sent(&key, now_ms);
            errands.push(Errand::GroupStatus { object: key, resource, patch });
        }
        errands
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        if !self.outbox.is_empty() {
            return Some(self.clock.now_ms());
        }
        let newcomer = self.newcomers.first().map(|(due_ms, _)| *due_ms);
        newcomer.into_iter().chain(self.pods.next_due()).chain(self.groups.next_due()).min()
    }

    /// A write came to its end.
    pub(crate) fn done(&mut self, outcome: &Outcome) {
        let now_ms = self.clock.now_ms();
        match outcome {
            Outcome::PodStatus { pod, outcome } => {
                complain("pod status", &pod.to_string(), outcome);
                self.pods.done(pod, outcome, now_ms);
            }
            Outcome::GroupStatus { object, outcome } => {
                complain("group status", &format!("{}/{}", object.namespace, object.name), outcome);
                self.groups.done(object, outcome, now_ms);
            }
            Outcome::Event { key, outcome } => {
                complain("event", "", outcome);
                self.events.done(*key, outcome);
            }
            Outcome::Bind { .. } | Outcome::TakeBack { .. } | Outcome::Evict { .. } | Outcome::Spare => {}
        }
    }

    fn report_pod(&mut self, pod: &Arc<PodName>, diagnosis: &Diagnosis, intake: &Intake) {
        let said = Said {
            reason: words::pod_reason(diagnosis).to_owned(),
            message: cut(&diagnosis.to_string(), MESSAGE_CHARS_MAX),
        };
        self.say(pod, diagnosis, said, intake);
    }

    fn report_group(
        &mut self,
        key: &GroupKey,
        diagnosis: &Diagnosis,
        members: &[(Arc<PodName>, MemberVerdict)],
        intake: &mut Intake,
        engine: &Engine,
    ) {
        let (now_ms, now) = (self.clock.now_ms(), self.clock.now());
        let Some(instance) = intake.groups.instance(key) else { return };
        let object_key = instance.object.clone();
        let generation = intake.groups.object(&object_key).map_or(0, |object| object.generation);
        let was = instance.told.as_ref().map(Diagnosis::group_reason);
        let told = instance.told.as_ref().map(Diagnosis::to_string);
        let Some(instance) = intake.groups.instance_mut(key) else { return };
        instance.told = Some(diagnosis.clone());
        let uids = |wanted: &[MemberVerdict]| {
            let of_verdict = members.iter().filter(|(_, verdict)| wanted.contains(verdict));
            of_verdict.map(|(pod, _)| Arc::<str>::from(pod.uid.as_str())).collect()
        };
        // That members were lost, or a bind failed, says nothing of those who wait.
        let of_waiting =
            !matches!(diagnosis, Diagnosis::Degraded { .. } | Diagnosis::Healthy { .. } | Diagnosis::BindFailed { .. });
        if of_waiting {
            instance.would_fit = uids(&[MemberVerdict::WouldFit]);
            instance.no_room = uids(&[MemberVerdict::NoRoom, MemberVerdict::InVain]);
        }
        groups::report(instance, diagnosis, generation, now);
        // Other words for the same reason are as frequent as what happens to pods, and wait as counters do.
        self.groups.touch(&object_key, was != Some(diagnosis.group_reason()), now_ms);
        self.tell_members(key, diagnosis, members, intake, engine);
        // Other victims than before are news.
        let whom = |text: &str| first_sentence(text).to_owned();
        let other_victims = matches!(diagnosis, Diagnosis::WaitingForVictims(_))
            && told.as_deref().map(whom) != Some(whom(&diagnosis.to_string()));
        let is_healed = matches!(diagnosis, Diagnosis::Healthy { .. });
        if was != Some(diagnosis.group_reason()) || other_victims || is_healed {
            self.tell_group(&object_key, key, diagnosis, intake);
        }
    }

    /// Tells the waiting members of a group why they wait.
    fn tell_members(
        &mut self,
        key: &GroupKey,
        diagnosis: &Diagnosis,
        members: &[(Arc<PodName>, MemberVerdict)],
        intake: &Intake,
        engine: &Engine,
    ) {
        let Some(instance) = intake.groups.instance(key) else { return };
        let message = member_message(key, instance, diagnosis, intake);
        let now_ms = self.clock.now_ms();
        let say = |scribe: &mut Self, pod: &Arc<PodName>, verdict| {
            if let Some(reason) = words::member_reason(diagnosis, verdict) {
                let own = words::without_place(diagnosis, verdict);
                let message = own.map_or_else(|| message.clone(), |own| format!("{key}: {own}"));
                scribe.say(pod, diagnosis, Said { reason: reason.to_owned(), message }, intake);
            }
        };
        for (pod, verdict) in members {
            say(self, pod, Some(*verdict));
        }
        if !members.is_empty() {
            return;
        }
        let waiting = instance.members.iter().filter_map(|uid| intake.card(uid)).filter(|card| card.waits());
        // A pod that is refused, or left out of its group, has its own reason.
        for card in waiting.filter(|card| !card.refused && !is_left_out(engine, &card.id)) {
            let silent = card.said.is_none() && !self.pods.has_word_for(&card.id.uid);
            match grows_until(instance, diagnosis, card, now_ms).filter(|_| silent) {
                Some(until_ms) => _ = self.newcomers.insert((until_ms, card.id.clone())),
                None => say(self, &card.id, None),
            }
        }
    }

    fn say(&mut self, pod: &Arc<PodName>, diagnosis: &Diagnosis, said: Said, intake: &Intake) {
        let Some(card) = intake.card(&pod.uid).filter(|card| card.waits()) else { return };
        let note = said.message.clone();
        // Whoever has a place that is being made free has not failed; and he preempts only if somebody goes for it.
        let (warning, reason, action) = match (said.reason.as_str(), diagnosis) {
            (WAITING_FOR_VICTIMS, Diagnosis::WaitingForVictims(victims)) if victims.evicted > 0 => {
                (false, words::PREEMPTING, Action::Preempting)
            }
            (WAITING_FOR_VICTIMS, _) => (false, words::WAITING, Action::Scheduling),
            _ => (true, FAILED_SCHEDULING, Action::Scheduling),
        };
        if self.pods.say(pod, said, card.said.as_deref(), self.clock.now_ms()) {
            self.tell(&regarding_pod(pod), &Happening { warning, reason, action, note });
        }
    }

    fn tell_group(&mut self, object_key: &ObjectKey, key: &GroupKey, diagnosis: &Diagnosis, intake: &Intake) {
        let is_flawed = intake.groups.instance(key).is_some_and(|instance| instance.flaw.is_some())
            || intake.groups.object(object_key).is_some_and(|object| object.groups.is_err());
        if is_flawed && matches!(diagnosis, Diagnosis::Waiting(Waiting::GroupMissing { .. })) {
            // The object is there, and its condition and its pods tell what is wrong with it.
            return;
        }
        let (reason, warning) = words::group_event(diagnosis);
        let Some((regarding, is_group)) = self.regarding_group(object_key, intake) else { return };
        let note = if is_group { diagnosis.to_string() } else { format!("{key}: {diagnosis}") };
        let action = if reason == words::PREEMPTING { Action::Preempting } else { Action::Scheduling };
        self.tell(&regarding, &Happening { warning, reason, action, note });
    }

    /// Tells on the object what is wrong with it, for kinds whose status has no room for that, too.
    fn tell_flaw(&mut self, key: &GroupKey, intake: &Intake) {
        let Some(instance) = intake.groups.instance(key) else { return };
        let Some(flaw) = &instance.flaw else { return };
        let (reason, note) = (groups::flaw_reason(flaw.kind), flaw.message.clone());
        if groups::is_left_to_others(intake, &instance.object, &self.resources[instance.object.dialect]) {
            return;
        }
        if let Some((regarding, _)) = self.regarding_group(&instance.object, intake) {
            self.tell(&regarding, &Happening { warning: true, reason, action: Action::Scheduling, note });
        }
    }

    /// Tells on the object what it asks for that changes nothing here.
    fn tell_unheeded(&mut self, key: &ObjectKey, intake: &Intake) {
        let Some(object) = intake.groups.object(key) else { return };
        if groups::is_left_to_others(intake, key, &self.resources[key.dialect]) {
            // It is told when a pod of ours comes.
            return;
        }
        let notes = object.unheeded.clone();
        let Some((regarding, _)) = self.regarding_group(key, intake) else { return };
        for note in notes {
            self.tell(&regarding, &Happening { warning: true, reason: UNSUPPORTED, action: Action::Scheduling, note });
        }
    }

    /// The object of a group as events name it, and whether it is the group itself.
    fn regarding_group(&self, key: &ObjectKey, intake: &Intake) -> Option<(Regarding, bool)> {
        let object = intake.groups.object(key)?;
        let resource = &self.resources[key.dialect];
        let regarding = Regarding {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid.clone(),
        };
        Some((regarding, object.is_group))
    }

    fn tell(&mut self, regarding: &Regarding, happening: &Happening) {
        let errand = self.events.tell(regarding, happening, self.clock.now_ms(), self.clock.now());
        self.outbox.extend(errand);
    }
}

/// Whether the engine leaves the pod out of its group.
fn is_left_out(engine: &Engine, pod: &PodName) -> bool {
    let cluster = engine.cluster();
    let Some(id) = cluster.pod_id(&pod.uid) else { return false };
    cluster.pod(id).group.is_some_and(|group| cluster.group(group).strays.contains_key(&id))
}

/// Until when it is of no use to tell a member that others are missing: they are coming, and each makes what was said of
/// all the others wrong. A large gang that is being made would cost a write for each of its pods.
fn grows_until(instance: &Instance, diagnosis: &Diagnosis, card: &Card, now_ms: u64) -> Option<u64> {
    let lacks_members = matches!(diagnosis, Diagnosis::Waiting(Waiting::Members { .. }));
    let until_ms = (instance.grew_ms + NEWCOMER_TOLD_MS).min(card.asked_ms + GROWTH_MS_MAX);
    (lacks_members && until_ms > now_ms).then_some(until_ms)
}

/// What members are told of their group.
fn member_message(key: &GroupKey, instance: &Instance, diagnosis: &Diagnosis, intake: &Intake) -> String {
    let message = match (&instance.flaw, diagnosis) {
        (None, Diagnosis::Waiting(Waiting::GroupMissing { .. }))
            if !intake.groups.is_served(instance.object.dialect) =>
        {
            let resource = intake.groups.dialects[instance.object.dialect].resource();
            let (plural, version) = (resource.plural, resource.api_version);
            format!("{key}: {diagnosis} The cluster does not serve {plural} of {version}.")
        }
        (None, Diagnosis::Waiting(Waiting::GroupMissing { .. })) => {
            format!("{key}: {diagnosis} Its kind is {}.", key.origin)
        }
        (Some(flaw), Diagnosis::Waiting(Waiting::GroupMissing { .. })) => {
            format!("{} {key} cannot be used: {}", key.origin, flaw.message)
        }
        _ => format!("{key}: {diagnosis}"),
    };
    cut(&message, MESSAGE_CHARS_MAX)
}

/// Whether a pod was refused for what it does not say any more.
fn is_over(diagnosis: &Diagnosis, pod: &PodName, intake: &Intake) -> bool {
    let refused = matches!(diagnosis, Diagnosis::Waiting(Waiting::PodRefused { kind: RefusalKind::Reference, .. }));
    refused && intake.card(&pod.uid).is_some_and(|card| !card.refused)
}

fn regarding_pod(pod: &PodName) -> Regarding {
    Regarding {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
    }
}

fn complain(what: &str, whose: &str, outcome: &WriteOutcome) {
    match outcome {
        WriteOutcome::Written(_) | WriteOutcome::Gone | WriteOutcome::Conflict => {}
        WriteOutcome::Later { message, .. } => tracing::debug!(what, whose, message, "a write will be tried again"),
        WriteOutcome::Refused(message) => tracing::warn!(what, whose, message, "a write was refused"),
    }
}
