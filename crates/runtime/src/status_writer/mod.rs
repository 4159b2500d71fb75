//! The status writer: turns the engine's reports into conditions of pods and events, and its state of groups into the
//! status of their objects.
//!
//! It keeps what has to be written and returns API requests when they are due; it sends nothing itself.

mod backoff;
mod events;
mod evictions;
mod group_conditions;
mod groups;
mod pods;
#[cfg(test)]
mod random_counts;
mod reason;
#[cfg(test)]
mod round_trip;
mod work_queue;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::ApiResource;
use muster_api::keys::conditions::POD_GROUP_SCHEDULED;
use muster_api::keys::group_reasons::UNSUPPORTED;
use muster_api::keys::pod_reasons::{WAITING_FOR_VICTIMS, WAITING_FOR_VOLUMES};
use muster_api::wire::condition::Condition;
use muster_clock::Clock;
use muster_engine::diagnosis::Waiting;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{PodName, RefusalKind};
use muster_engine::{Diagnosis, Engine, MemberVerdict, Report, Subject};

use crate::actuator::{ApiRequest, Outcome, WriteOutcome};
use crate::dialect::InstanceStatus;
use crate::intake::Intake;
use crate::intake::group_index::ObjectKey;
use crate::intake::instance::Instance;
use crate::intake::pod_record::{ConditionText, PodRecord};
use crate::text::{cut, first_sentence};
use events::{Action, EventDetails, EventRecorder, Regarding};
use groups::GroupStatusQueue;
use pods::{Nomination, PodStatusQueue};

/// The maximum length of a pod's condition message, in characters.
const MESSAGE_CHARS_MAX: usize = 2_000;
/// How long a new member stays without a condition before it gets the last diagnosis of its group.
const NEW_POD_REPORT_MS: u64 = 5_000;
/// For how long the `WaitingForMembers` condition of a member is postponed because more members keep arriving.
const GROWTH_MS_MAX: u64 = 60_000;
const FAILED_SCHEDULING: &str = "FailedScheduling";

/// Queues of pending status writes and events.
pub(crate) struct StatusWriter {
    clock: Clock,
    pods: PodStatusQueue,
    groups: GroupStatusQueue,
    events: EventRecorder,
    resources: Vec<Arc<ApiResource>>,
    outbox: Vec<ApiRequest>,
    /// Pods that became pending, by the time at which they must have a condition that explains why.
    newly_pending: BTreeSet<(u64, Arc<PodName>)>,
}

impl StatusWriter {
    pub(crate) fn new(clock: Clock, scheduler_name: &str, identity: &str, resources: Vec<Arc<ApiResource>>) -> Self {
        Self {
            clock,
            pods: PodStatusQueue::default(),
            groups: GroupStatusQueue::default(),
            events: EventRecorder::new(scheduler_name, identity),
            resources,
            outbox: Vec::new(),
            newly_pending: BTreeSet::new(),
        }
    }

    /// Handles a report of the engine.
    pub(crate) fn report(&mut self, report: Report, intake: &mut Intake, engine: &Engine) {
        let Report { subject, diagnosis, members } = report;
        match subject {
            // A pod that is about to get its group reference, or has it by now, needs no condition about the missing
            // reference.
            Subject::Pod(pod) if self.is_newly_held(&pod, intake) || is_outdated(&diagnosis, &pod, intake) => {}
            Subject::Pod(pod) => self.report_pod(&pod, &diagnosis, intake),
            Subject::Group(key) => self.report_group(&key, &diagnosis, &members, intake, engine),
        }
    }

    /// Whether a pod is held back for its reference and is new: `report_newly_pending` handles it later.
    fn is_newly_held(&self, pod: &PodName, intake: &Intake) -> bool {
        let record = intake.pod_record(&pod.uid).filter(|record| record.held);
        record.is_some_and(|record| self.clock.now_ms() < record.pending_since_ms + NEW_POD_REPORT_MS)
    }

    /// Clears the nomination of a pod.
    pub(crate) fn clear_nomination(&mut self, pod: &Arc<PodName>, intake: &Intake) {
        let shown = intake.pod_record(&pod.uid).and_then(|record| record.condition.as_deref());
        self.pods.nominate(pod, Nomination::Cleared, shown, self.clock.now_ms());
    }

    /// Nominates a node for a pod.
    pub(crate) fn nominate(&mut self, pod: &Arc<PodName>, node: &Arc<str>, intake: &Intake) {
        let shown = intake.pod_record(&pod.uid).and_then(|record| record.condition.as_deref());
        self.pods.nominate(pod, Nomination::Node(node.clone()), shown, self.clock.now_ms());
    }

    /// Drops a nomination that was not sent yet.
    pub(crate) fn forget_nomination(&mut self, uid: &str) {
        self.pods.forget_nomination(uid);
    }

    /// Whether a nomination of the pod is waiting or in flight.
    pub(crate) fn is_nominating(&self, uid: &str) -> bool {
        self.pods.is_nominating(uid)
    }

    /// A pod has a node, is gated or is gone: drops its pending condition.
    pub(crate) fn on_no_longer_pending(&mut self, pod: &PodName) {
        self.pods.forget(&pod.uid);
    }

    /// A pod became pending. The last diagnosis from before its gates were removed applies now, and for a group member
    /// the last diagnosis of its group.
    pub(crate) fn on_pending(&mut self, pod: &Arc<PodName>, intake: &mut Intake) {
        let now_ms = self.clock.now_ms();
        self.newly_pending.insert((now_ms + NEW_POD_REPORT_MS, pod.clone()));
        let group = intake.pod_record(&pod.uid).and_then(|record| record.group.clone());
        if let Some(instance) = group.and_then(|key| intake.groups.instance_mut(&key)) {
            instance.grew_ms = now_ms;
        }
    }

    fn report_newly_pending(&mut self, intake: &Intake, engine: &Engine) {
        let now_ms = self.clock.now_ms();
        while let Some((_, pod)) = self.newly_pending.first().cloned().filter(|(due_ms, _)| *due_ms <= now_ms) {
            self.newly_pending.pop_first();
            let Some(record) = intake.pod_record(&pod.uid).filter(|record| record.is_pending()) else { continue };
            if self.pods.has_condition_for(&pod.uid) {
                continue;
            }
            if record.refused || has_own_reason(engine, &pod) {
                // The diagnosis from while the pod was gated.
                if let Some(own) = engine.explain(&Subject::Pod(pod.clone())) {
                    self.report_pod(&pod, own, intake);
                }
                continue;
            }
            let instance = record.group.as_ref().and_then(|key| Some((key, intake.groups.instance(key)?)));
            let Some((key, instance)) = instance else { continue };
            if let Some(diagnosis @ Diagnosis::Waiting(_)) = &instance.last_diagnosis
                && let Some(reason) = reason::member_reason(diagnosis, None)
            {
                if let Some(until_ms) = growing_until(instance, diagnosis, record, now_ms) {
                    self.newly_pending.insert((until_ms, pod));
                    continue;
                }
                let message = member_message(key, instance, diagnosis, intake);
                self.set_condition(&pod, diagnosis, ConditionText { reason: reason.to_owned(), message }, intake);
            }
        }
    }

    /// Emits a warning event for a pod at once.
    pub(crate) fn note(&mut self, pod: &Arc<PodName>, reason: &'static str, note: String) {
        self.emit_event(&regarding_pod(pod), &EventDetails { warning: true, reason, action: Action::Scheduling, note });
    }

    /// Queues the group objects that changed.
    pub(crate) fn groups_changed(&mut self, intake: &mut Intake, engine: &Engine) {
        let now_ms = self.clock.now_ms();
        for key in intake.groups.take_report_again() {
            let Some(instance) = intake.groups.instance(&key) else { continue };
            let object = instance.object.clone();
            if let Some(diagnosis @ Diagnosis::Waiting(Waiting::GroupMissing { .. })) = instance.last_diagnosis.clone()
            {
                self.report_to_members(&key, &diagnosis, &[], intake, engine);
            }
            self.groups.touch(&object, true, now_ms);
            self.emit_group_error_event(&key, intake);
        }
        for key in intake.groups.take_ignored_fields() {
            self.emit_ignored_field_events(&key, intake);
        }
        self.report_newly_pending(intake, engine);
        for key in intake.groups.take_touched() {
            self.groups.touch(&key, false, now_ms);
        }
    }

    /// The requests that are due, limited by the free slots, so that the text of later writes is not built yet.
    pub(crate) fn take_due(&mut self, room: usize, intake: &mut Intake, engine: &Engine) -> Vec<ApiRequest> {
        let (now_ms, now) = (self.clock.now_ms(), self.clock.now());
        if room == 0 {
            return Vec::new();
        }
        let mut requests: Vec<ApiRequest> = self.group_writes(now_ms, now, intake, engine);
        let events = self.outbox.len().min(room);
        requests.extend(self.outbox.drain(..events));
        requests.extend(self.pods.take_due(now_ms, now, room.saturating_sub(requests.len()), intake));
        requests
    }

    fn group_writes(&mut self, now_ms: u64, now: Timestamp, intake: &mut Intake, engine: &Engine) -> Vec<ApiRequest> {
        let mut requests = Vec::new();
        for key in self.groups.take_due(now_ms) {
            let resource = self.resources[key.dialect].clone();
            if groups::is_left_to_other_scheduler(intake, &key, &resource) {
                continue;
            }
            let Some(mut status) = group_conditions::status(intake, engine, &key, now_ms, now) else {
                self.groups.forget(&key);
                continue;
            };
            if groups::belongs_to_other_scheduler(intake, &key, &resource) {
                groups::retain_disruption_target(&mut status);
            }
            let Some(object) = intake.groups.object(&key) else { continue };
            // An empty group gets a condition only if it stays empty.
            let has_no_condition = |one: &InstanceStatus| {
                one.counts.total == 0 || Condition::find(&one.conditions, POD_GROUP_SCHEDULED).is_none()
            };
            if status.instances.is_empty() || status.instances.iter().any(has_no_condition) {
                self.groups.check_again(&key, object.created_ms + group_conditions::EMPTY_REPORT_MS, now_ms);
            }
            let Some(patch) = intake.groups.dialects[key.dialect].write(object, &status) else { continue };
            if !self.groups.may_repeat(&key, &patch, now_ms) {
                continue;
            }
            self.groups.sent(&key, now_ms);
            requests.push(ApiRequest::GroupStatus { object: key, resource, patch });
        }
        requests
    }

    /// The time at which the next request is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        if !self.outbox.is_empty() {
            return Some(self.clock.now_ms());
        }
        let next_pending = self.newly_pending.first().map(|(due_ms, _)| *due_ms);
        next_pending.into_iter().chain(self.pods.next_due()).chain(self.groups.next_due()).min()
    }

    /// A write has ended.
    pub(crate) fn done(&mut self, outcome: &Outcome) {
        let now_ms = self.clock.now_ms();
        match outcome {
            Outcome::PodStatus { pod, outcome } => {
                log_failure("pod status", &pod.to_string(), outcome);
                self.pods.done(pod, outcome, now_ms);
            }
            Outcome::GroupStatus { object, outcome } => {
                log_failure("group status", &format!("{}/{}", object.namespace, object.name), outcome);
                self.groups.done(object, outcome, now_ms);
            }
            Outcome::Event { key, outcome } => {
                log_failure("event", "", outcome);
                self.events.done(*key, outcome);
            }
            Outcome::Bind { .. }
            | Outcome::StorageWrite { .. }
            | Outcome::Rollback { .. }
            | Outcome::Evict { .. }
            | Outcome::ClearDisruptionTarget => {}
        }
    }

    fn report_pod(&mut self, pod: &Arc<PodName>, diagnosis: &Diagnosis, intake: &Intake) {
        let condition = ConditionText {
            reason: reason::pod_reason(diagnosis).to_owned(),
            message: cut(&diagnosis.to_string(), MESSAGE_CHARS_MAX),
        };
        self.set_condition(pod, diagnosis, condition, intake);
    }

    fn report_group(
        &mut self,
        key: &GroupKey,
        diagnosis: &Diagnosis,
        members: &[(Arc<PodName>, MemberVerdict)],
        intake: &mut Intake,
        engine: &Engine,
    ) {
        let now_ms = self.clock.now_ms();
        let Some(instance) = intake.groups.instance(key) else { return };
        let object_key = instance.object.clone();
        let previous_reason = instance.last_diagnosis.as_ref().map(Diagnosis::group_reason);
        let previous_text = instance.last_diagnosis.as_ref().map(Diagnosis::to_string);
        let Some(instance) = intake.groups.instance_mut(key) else { return };
        instance.last_diagnosis = Some(diagnosis.clone());
        // A new message with the same reason is as frequent as pod changes, so it waits as long as counters do.
        self.groups.touch(&object_key, previous_reason != Some(diagnosis.group_reason()), now_ms);
        self.report_to_members(key, diagnosis, members, intake, engine);
        // A change of the victims is worth an event.
        let victims = |text: &str| first_sentence(text).to_owned();
        let other_victims = matches!(diagnosis, Diagnosis::WaitingForVictims(_))
            && previous_text.as_deref().map(victims) != Some(victims(&diagnosis.to_string()));
        let is_healed = matches!(diagnosis, Diagnosis::Healthy { .. });
        if previous_reason != Some(diagnosis.group_reason()) || other_victims || is_healed {
            self.emit_group_event(&object_key, key, diagnosis, intake);
        }
    }

    /// Sets the condition of the pending members of a group.
    fn report_to_members(
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
        let set_condition = |writer: &mut Self, pod: &Arc<PodName>, verdict| {
            if let Some(reason) = reason::member_reason(diagnosis, verdict) {
                let own = reason::outside_of_plan(diagnosis, verdict);
                let message = own.map_or_else(|| message.clone(), |own| format!("{key}: {own}"));
                writer.set_condition(pod, diagnosis, ConditionText { reason: reason.to_owned(), message }, intake);
            }
        };
        for (pod, verdict) in members {
            set_condition(self, pod, Some(*verdict));
        }
        if !members.is_empty() {
            return;
        }
        let waiting =
            instance.members.iter().filter_map(|uid| intake.pod_record(uid)).filter(|record| record.is_pending());
        for record in waiting.filter(|record| !record.refused && !has_own_reason(engine, &record.id)) {
            let has_no_condition = record.condition.is_none() && !self.pods.has_condition_for(&record.id.uid);
            match growing_until(instance, diagnosis, record, now_ms).filter(|_| has_no_condition) {
                Some(until_ms) => _ = self.newly_pending.insert((until_ms, record.id.clone())),
                None => set_condition(self, &record.id, None),
            }
        }
    }

    fn set_condition(&mut self, pod: &Arc<PodName>, diagnosis: &Diagnosis, condition: ConditionText, intake: &Intake) {
        let Some(record) = intake.pod_record(&pod.uid).filter(|record| record.is_pending()) else { return };
        let note = condition.message.clone();
        // A nominated pod has not failed; and it is "Preempting" only if pods are evicted for it.
        let (warning, reason, action) = match (condition.reason.as_str(), diagnosis) {
            (WAITING_FOR_VICTIMS, Diagnosis::WaitingForVictims(victims)) if victims.evicted > 0 => {
                (false, reason::PREEMPTING, Action::Preempting)
            }
            (WAITING_FOR_VICTIMS, _) | (WAITING_FOR_VOLUMES, Diagnosis::Waiting(Waiting::Volumes { .. })) => {
                (false, reason::WAITING, Action::Scheduling)
            }
            _ => (true, FAILED_SCHEDULING, Action::Scheduling),
        };
        if self.pods.set_condition(pod, condition, record.condition.as_deref(), self.clock.now_ms()) {
            self.emit_event(&regarding_pod(pod), &EventDetails { warning, reason, action, note });
        }
    }

    fn emit_group_event(&mut self, object_key: &ObjectKey, key: &GroupKey, diagnosis: &Diagnosis, intake: &Intake) {
        let has_error = intake.groups.instance(key).is_some_and(|instance| instance.error.is_some())
            || intake.groups.object(object_key).is_some_and(|object| object.groups.is_err());
        if has_error && matches!(diagnosis, Diagnosis::Waiting(Waiting::GroupMissing { .. })) {
            // The object exists; its condition and its pods already explain what is wrong with it.
            return;
        }
        let (reason, warning) = reason::group_event(diagnosis);
        let Some((regarding, is_group)) = self.regarding_group(object_key, intake) else { return };
        let note = if is_group { diagnosis.to_string() } else { format!("{key}: {diagnosis}") };
        let action = if reason == reason::PREEMPTING { Action::Preempting } else { Action::Scheduling };
        self.emit_event(&regarding, &EventDetails { warning, reason, action, note });
    }

    /// Emits an event about an unusable object, also for kinds whose status has no field for that.
    fn emit_group_error_event(&mut self, key: &GroupKey, intake: &Intake) {
        let Some(instance) = intake.groups.instance(key) else { return };
        let Some(error) = &instance.error else { return };
        let (reason, note) = (group_conditions::error_reason(error.kind), error.message.clone());
        if groups::is_left_to_other_scheduler(intake, &instance.object, &self.resources[instance.object.dialect]) {
            return;
        }
        if let Some((regarding, _)) = self.regarding_group(&instance.object, intake) {
            self.emit_event(&regarding, &EventDetails { warning: true, reason, action: Action::Scheduling, note });
        }
    }

    /// Emits events about fields of the object that Muster ignores.
    fn emit_ignored_field_events(&mut self, key: &ObjectKey, intake: &Intake) {
        let Some(object) = intake.groups.object(key) else { return };
        if groups::is_left_to_other_scheduler(intake, key, &self.resources[key.dialect]) {
            // The event is emitted once a pod of ours joins.
            return;
        }
        let notes = object.ignored_fields.clone();
        let Some((regarding, _)) = self.regarding_group(key, intake) else { return };
        for note in notes {
            self.emit_event(
                &regarding,
                &EventDetails { warning: true, reason: UNSUPPORTED, action: Action::Scheduling, note },
            );
        }
    }

    /// The reference to a group's object in events, and whether the object is the group itself.
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

    fn emit_event(&mut self, regarding: &Regarding, details: &EventDetails) {
        let request = self.events.record(regarding, details, self.clock.now_ms(), self.clock.now());
        self.outbox.extend(request);
    }
}

/// Whether the engine rejects the pod, for example because of a claim, or leaves it out of its group.
fn has_own_reason(engine: &Engine, pod: &PodName) -> bool {
    engine.pod_view(&pod.uid).is_some_and(|pod| pod.is_excluded() || pod.refusal().is_some())
}

/// Until when the condition about missing members is postponed: more are arriving, and each of them would change the
/// message of all others. While a large gang is being created that would cost a write per pod.
fn growing_until(instance: &Instance, diagnosis: &Diagnosis, record: &PodRecord, now_ms: u64) -> Option<u64> {
    let lacks_members = matches!(diagnosis, Diagnosis::Waiting(Waiting::Members { .. }));
    let until_ms = (instance.grew_ms + NEW_POD_REPORT_MS).min(record.pending_since_ms + GROWTH_MS_MAX);
    (lacks_members && until_ms > now_ms).then_some(until_ms)
}

/// The condition message of a group's members.
fn member_message(key: &GroupKey, instance: &Instance, diagnosis: &Diagnosis, intake: &Intake) -> String {
    let message = match (&instance.error, diagnosis) {
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
        (Some(error), Diagnosis::Waiting(Waiting::GroupMissing { .. })) => {
            format!("{} {key} cannot be used: {}", key.origin, error.message)
        }
        _ => format!("{key}: {diagnosis}"),
    };
    cut(&message, MESSAGE_CHARS_MAX)
}

/// Whether the diagnosis is about a group reference that has been fixed since.
fn is_outdated(diagnosis: &Diagnosis, pod: &PodName, intake: &Intake) -> bool {
    let refused = matches!(diagnosis, Diagnosis::Waiting(Waiting::PodRefused { kind: RefusalKind::Reference, .. }));
    refused && intake.pod_record(&pod.uid).is_some_and(|record| !record.refused)
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

fn log_failure(what: &str, object: &str, outcome: &WriteOutcome) {
    match outcome {
        WriteOutcome::Written(_) | WriteOutcome::Gone | WriteOutcome::Conflict => {}
        WriteOutcome::Later { message, .. } => {
            tracing::debug!(what, object, message, "a write failed and will be retried");
        }
        WriteOutcome::Refused(message) => tracing::warn!(what, object, message, "a write was refused"),
    }
}
