//! The scribe: what the engine says becomes conditions, counters and events.
//!
//! It keeps what is to be said and gives errands when they are due; it sends nothing itself.

mod events;
mod groups;
mod pause;
mod pods;
mod words;

use std::sync::Arc;

use kube::core::ApiResource;
use muster_engine::diagnosis::Waiting;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::PodName;
use muster_engine::{Diagnosis, Engine, MemberVerdict, Report, Subject};

use crate::clock::Clock;
use crate::hands::{Errand, Outcome, WriteOutcome};
use crate::intake::Intake;
use crate::intake::card::Said;
use crate::intake::groups::ObjectKey;
use events::{EventNotes, Happening, Regarding};
use groups::GroupNotes;
use pods::PodNotes;

/// The most characters of a pod's condition message.
const MESSAGE_CHARS_MAX: usize = 2_000;
const FAILED_SCHEDULING: &str = "FailedScheduling";

/// The scribe.
pub(crate) struct Scribe {
    clock: Clock,
    pods: PodNotes,
    groups: GroupNotes,
    events: EventNotes,
    resources: Vec<Arc<ApiResource>>,
    outbox: Vec<Errand>,
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
        }
    }

    /// The engine says how things are.
    pub(crate) fn report(&mut self, report: Report, intake: &mut Intake, engine: &Engine) {
        let Report { subject, diagnosis, members } = report;
        match subject {
            Subject::Pod(pod) => self.report_pod(&pod, &diagnosis, intake),
            Subject::Group(key) => self.report_group(&key, &diagnosis, &members, intake, engine),
        }
    }

    /// The nomination of a pod no longer stands.
    pub(crate) fn clear_nomination(&mut self, pod: &Arc<PodName>, intake: &Intake) {
        let shown = intake.card(&pod.uid).and_then(|card| card.said.as_deref());
        self.pods.clear_nomination(pod, shown, self.clock.now_ms());
    }

    /// A pod no longer waits, or is gone.
    pub(crate) fn settled(&mut self, pod: &PodName) {
        self.pods.forget(&pod.uid);
    }

    /// Users are to be told something of a pod at once.
    pub(crate) fn note(&mut self, pod: &Arc<PodName>, reason: &'static str, note: String) {
        self.tell(&regarding_pod(pod), &Happening { warning: true, reason, note });
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
        }
        for key in intake.groups.take_touched() {
            self.groups.touch(&key, false, now_ms);
        }
    }

    /// What is due to be written.
    pub(crate) fn take_due(&mut self, intake: &mut Intake) -> Vec<Errand> {
        let (now_ms, now) = (self.clock.now_ms(), self.clock.now());
        let mut errands = std::mem::take(&mut self.outbox);
        errands.extend(self.pods.take_due(now_ms, now, intake));
        for key in self.groups.take_due(now_ms) {
            let Some(status) = groups::status(intake, &key, now_ms, now) else {
                self.groups.forget(&key);
                continue;
            };
            let Some(object) = intake.groups.object(&key) else { continue };
            if status.instances.iter().all(|one| one.counts.total == 0) {
                self.groups.look_again(&key, object.created_ms + groups::EMPTY_TOLD_MS, now_ms);
            }
            let Some(patch) = intake.groups.dialects[key.dialect].write(object, &status) else { continue };
            self.groups.sent(&key, now_ms);
            let resource = self.resources[key.dialect].clone();
            errands.push(Errand::GroupStatus { object: key, resource, patch });
        }
        errands
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        if !self.outbox.is_empty() {
            return Some(self.clock.now_ms());
        }
        self.pods.next_due().into_iter().chain(self.groups.next_due()).min()
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
            Outcome::Bind { .. } | Outcome::TakeBack { .. } => {}
        }
    }

    fn report_pod(&mut self, pod: &Arc<PodName>, diagnosis: &Diagnosis, intake: &Intake) {
        let said = Said { reason: words::pod_reason(diagnosis).to_owned(), message: cut(&diagnosis.to_string()) };
        self.say(pod, said, intake);
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
        let Some(instance) = intake.groups.instance_mut(key) else { return };
        instance.told = Some(diagnosis.clone());
        let uids = |wanted: MemberVerdict| {
            let of_verdict = members.iter().filter(move |(_, verdict)| *verdict == wanted);
            of_verdict.map(|(pod, _)| Arc::<str>::from(pod.uid.as_str())).collect()
        };
        instance.would_fit = uids(MemberVerdict::WouldFit);
        instance.no_room = uids(MemberVerdict::NoRoom);
        groups::report(instance, diagnosis, generation, now);
        self.groups.touch(&object_key, true, now_ms);
        self.tell_members(key, diagnosis, members, intake, engine);
        if was != Some(diagnosis.group_reason()) {
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
        let message = match (&instance.flaw, diagnosis) {
            (Some(flaw), Diagnosis::Waiting(Waiting::GroupMissing { .. })) => {
                format!("{} {key} cannot be used: {}", key.origin, flaw.message)
            }
            _ => format!("{key}: {diagnosis}"),
        };
        let message = cut(&message);
        let mut say = |pod: &Arc<PodName>, verdict| {
            if let Some(reason) = words::member_reason(diagnosis, verdict) {
                self.say(pod, Said { reason: reason.to_owned(), message: message.clone() }, intake);
            }
        };
        if !members.is_empty() {
            for (pod, verdict) in members {
                say(pod, Some(*verdict));
            }
            return;
        }
        let waiting = instance.members.iter().filter_map(|uid| intake.card(uid)).filter(|card| card.waits());
        // A pod that is refused, or left out of its group, has its own reason.
        for card in waiting.filter(|card| !card.refused && !is_left_out(engine, &card.id)) {
            say(&card.id, None);
        }
    }

    fn say(&mut self, pod: &Arc<PodName>, said: Said, intake: &Intake) {
        let Some(card) = intake.card(&pod.uid).filter(|card| card.waits()) else { return };
        let note = said.message.clone();
        if self.pods.say(pod, said, card.said.as_deref(), self.clock.now_ms()) {
            self.tell(&regarding_pod(pod), &Happening { warning: true, reason: FAILED_SCHEDULING, note });
        }
    }

    fn tell_group(&mut self, object_key: &ObjectKey, key: &GroupKey, diagnosis: &Diagnosis, intake: &Intake) {
        let (reason, warning) = words::group_event(diagnosis);
        let Some(object) = intake.groups.object(object_key) else { return };
        let resource = &self.resources[object_key.dialect];
        let regarding = Regarding {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid.clone(),
        };
        let note = if object.is_group { diagnosis.to_string() } else { format!("{key}: {diagnosis}") };
        self.tell(&regarding, &Happening { warning, reason, note });
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

fn regarding_pod(pod: &PodName) -> Regarding {
    Regarding {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
    }
}

fn cut(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_CHARS_MAX) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}…", &message[..end]),
    }
}

fn complain(what: &str, whose: &str, outcome: &WriteOutcome) {
    match outcome {
        WriteOutcome::Written(_) | WriteOutcome::Gone | WriteOutcome::Conflict => {}
        WriteOutcome::Later { message, .. } => tracing::debug!(what, whose, message, "a write will be tried again"),
        WriteOutcome::Refused(message) => tracing::warn!(what, whose, message, "a write was refused"),
    }
}
