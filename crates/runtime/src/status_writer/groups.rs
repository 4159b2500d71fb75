//! Conditions and counters in the status of group objects.
//!
//! The engine's reports change the conditions of a group at once; counters are computed from the pod records when the
//! status is written. A changed condition is written soon, counters alone at most once a second, and only what differs
//! from the object's current status.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use kube::core::ApiResource;
use muster_api::keys::GROUP;
use muster_api::keys::conditions::{
    COMPLETED, DEGRADED, DISRUPTION_TARGET, POD_GROUP_SCHEDULED, PODS_NOT_MATCHING_PRIORITY, PRIORITY_RESOLVED,
    STARTED, UNUSABLE,
};
use muster_api::keys::group_reasons::{
    INVALID, PREEMPTION_BY_SCHEDULER, SCHEDULED, UNSCHEDULABLE, UNSUPPORTED, WAITING_FOR_MEMBERS,
};
use muster_api::wire::condition::Condition;
use muster_engine::diagnosis::{Shortfall, Victims};
use muster_engine::model::group::{GroupKey, GroupPriority, GroupSpec, Policy, Subset, subset_of};
use muster_engine::{Diagnosis, Engine};

use super::backoff::backoff_ms;
use super::work_queue::WorkQueue;
use crate::actuator::WriteOutcome;
use crate::dialect::{
    Conditions, Counts, GroupError, GroupErrorKind, GroupObject, InstanceStatus, ObjectStatus, StatusPatch,
};
use crate::intake::Intake;
use crate::intake::group_index::ObjectKey;
use crate::intake::instance::Instance;
use crate::intake::pod_record::{PodRecord, Stage};

/// How long changes are batched before they are written.
const BATCH_MS: u64 = 100;
/// The minimum interval between two writes of conditions, should they flap.
const CONDITIONS_MS: u64 = 300;
/// The minimum interval between two writes of counters.
const COUNTERS_MS: u64 = 1_000;
/// The longest delay of a status that another writer keeps overwriting.
const OVERWRITTEN_MS_MAX: u64 = 300_000;
/// The reason of the condition that records the priority.
const RESOLVED: &str = "Resolved";
const NOTHING_LEFT: &str = "None of its pods has a node any more.";
/// How long a group without pods is left alone before its condition reports that.
pub(crate) const EMPTY_REPORT_MS: u64 = 5_000;

/// Which objects have to be written, and when.
#[derive(Debug, Default)]
pub(crate) struct GroupStatusQueue {
    work_queue: WorkQueue<ObjectKey>,
    /// Writes in flight, and whether the object has changed since.
    in_flight: BTreeMap<ObjectKey, bool>,
    written_ms: BTreeMap<ObjectKey, u64>,
    /// Consecutive failures, and the earliest time of the next attempt.
    failures: BTreeMap<ObjectKey, (u32, u64)>,
    /// The last status written.
    last_written: BTreeMap<ObjectKey, WrittenStatus>,
}

/// The last status written. Having to write it again means that another writer overwrote it.
#[derive(Debug, Default)]
struct WrittenStatus {
    digest: u64,
    /// The server has accepted it.
    accepted: bool,
    overwritten: u32,
}

impl GroupStatusQueue {
    /// An object has to be written: its conditions, or only its counters.
    pub(crate) fn touch(&mut self, key: &ObjectKey, conditions: bool, now_ms: u64) {
        let interval_ms = if conditions { CONDITIONS_MS } else { COUNTERS_MS };
        let due_ms = (now_ms + BATCH_MS).max(self.written_ms.get(key).map_or(0, |written_ms| written_ms + interval_ms));
        let not_before = self.failures.get(key).map_or(0, |(_, not_before)| *not_before);
        self.work_queue.put(key, due_ms.max(not_before));
    }

    /// Checks the object again at this time, if that is in the future.
    pub(crate) fn check_again(&mut self, key: &ObjectKey, at_ms: u64, now_ms: u64) {
        if at_ms > now_ms {
            self.work_queue.put(key, at_ms);
        }
    }

    /// The time at which the next object is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.work_queue.next_due()
    }

    /// The objects that are due.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        while let Some(key) = self.work_queue.pop_due(now_ms) {
            match self.in_flight.get_mut(&key) {
                // It is queued again when the write in flight ends.
                Some(more) => *more = true,
                None => keys.push(key),
            }
        }
        keys
    }

    /// Whether this status may be written now. A status that another writer keeps overwriting is written less and less
    /// often, so that two writers that disagree do not keep each other busy.
    pub(crate) fn may_repeat(&mut self, key: &ObjectKey, patch: &StatusPatch, now_ms: u64) -> bool {
        let mut hasher = DefaultHasher::new();
        patch.body()["status"].to_string().hash(&mut hasher);
        let digest = hasher.finish();
        let last_written = self.last_written.entry(key.clone()).or_default();
        if last_written.digest != digest {
            *last_written = WrittenStatus { digest, ..WrittenStatus::default() };
            return true;
        }
        if !last_written.accepted {
            return true;
        }
        let written_ms = self.written_ms.get(key).copied().unwrap_or(0);
        let not_before =
            written_ms + COUNTERS_MS.saturating_mul(1 << last_written.overwritten.min(16)).min(OVERWRITTEN_MS_MAX);
        if now_ms < not_before {
            self.work_queue.put(key, not_before);
            return false;
        }
        last_written.overwritten += 1;
        last_written.accepted = false;
        true
    }

    /// A write is in flight.
    pub(crate) fn sent(&mut self, key: &ObjectKey, now_ms: u64) {
        self.in_flight.insert(key.clone(), false);
        self.written_ms.insert(key.clone(), now_ms);
    }

    /// A write has ended.
    pub(crate) fn done(&mut self, key: &ObjectKey, outcome: &WriteOutcome, now_ms: u64) {
        let more = self.in_flight.remove(key).unwrap_or(false);
        match outcome {
            WriteOutcome::Written(_) => {
                self.failures.remove(key);
                if let Some(last_written) = self.last_written.get_mut(key) {
                    last_written.accepted = true;
                }
                if more {
                    self.work_queue.put(key, now_ms);
                }
            }
            WriteOutcome::Gone => self.forget(key),
            WriteOutcome::Conflict | WriteOutcome::Later { .. } | WriteOutcome::Refused(_) => {
                let (failures, not_before) = self.failures.entry(key.clone()).or_insert((0, 0));
                *failures += 1;
                *not_before = now_ms + backoff_ms(*failures).max(outcome.retry_after_ms());
                self.work_queue.remove(key);
                self.work_queue.put(key, *not_before);
            }
        }
    }

    /// The object is gone.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.work_queue.remove(key);
        self.written_ms.remove(key);
        self.failures.remove(key);
        self.last_written.remove(key);
    }
}

/// Whether the status of a group is left to another scheduler: the group belongs to it, Muster evicts none of its pods,
/// and it shows no condition of ours that would have to be kept up to date.
pub(crate) fn is_left_to_other_scheduler(intake: &Intake, key: &ObjectKey, resource: &ApiResource) -> bool {
    let shows =
        |object: &GroupObject| object.current_status.instances.values().any(|shown| !shown.conditions.is_empty());
    let is_reported = |object: &GroupObject| !object.current_status.may_be_written_by_others && shows(object);
    let mut instances = intake.groups.instances_of(key).filter_map(|group| intake.groups.instance(group));
    belongs_to_other_scheduler(intake, key, resource)
        && (resource.group == GROUP || !intake.groups.object(key).is_some_and(is_reported))
        && !instances.any(|instance| instance.preempted_by.is_some())
}

/// Whether a group belongs to another scheduler: that scheduler reads its kind too, no pod of ours ever named it, and
/// it shows none of our conditions from when one did. For our own kinds these are the groups that only pods of others
/// name: another instance of Muster may write their status, and two writers would overwrite each other forever.
pub(crate) fn belongs_to_other_scheduler(intake: &Intake, key: &ObjectKey, resource: &ApiResource) -> bool {
    if resource.group == GROUP {
        let instances = || intake.groups.instances_of(key).filter_map(|group| intake.groups.instance(group));
        let concerns_us = |instance: &Instance| instance.was_ours || instance.preempted_by.is_some();
        return instances().any(|instance| !instance.members.is_empty()) && !instances().any(concerns_us);
    }
    let is_not_disruption = |one: &Condition| one.kind != DISRUPTION_TARGET;
    let shows = |object: &GroupObject| {
        object.current_status.instances.values().flat_map(|shown| &shown.conditions).any(is_not_disruption)
    };
    let is_reported = |object: &GroupObject| !object.current_status.may_be_written_by_others && shows(object);
    let mut instances = intake.groups.instances_of(key).filter_map(|group| intake.groups.instance(group));
    !intake.groups.object(key).is_some_and(is_reported) && !instances.any(|instance| instance.was_ours)
}

/// Keeps only the `DisruptionTarget` condition: the rest is written by the group's own scheduler.
pub(crate) fn retain_disruption_target(status: &mut ObjectStatus) {
    for instance in &mut status.instances {
        instance.conditions.retain(|one| one.kind == DISRUPTION_TARGET);
    }
}

/// Updates the conditions of a group from a report of the engine.
pub(crate) fn report(instance: &mut Instance, diagnosis: &Diagnosis, generation: i64, now: Timestamp) {
    let mut conditions = Conditions::from(&instance.conditions, now, generation);
    let text = diagnosis.to_string();
    match diagnosis {
        Diagnosis::Scheduled { minimum, .. } => {
            instance.given_up = false;
            conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, &text);
            if *minimum > 0 {
                conditions.set_started(*minimum);
            }
            conditions.unset(DEGRADED, SCHEDULED, &text);
        }
        Diagnosis::Healthy { .. } => {
            conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, &text);
            conditions.unset(DEGRADED, "Healthy", &text);
        }
        Diagnosis::Degraded { evicted, .. } => {
            conditions.set(DEGRADED, true, "BelowMinimum", &text);
            if *evicted > 0 {
                instance.given_up = true;
                conditions.set(POD_GROUP_SCHEDULED, false, WAITING_FOR_MEMBERS, &text);
                conditions.unset(STARTED, "StartsAnew", "What is left of it is deleted.");
            }
        }
        Diagnosis::BindFailed { .. } => {}
        Diagnosis::Waiting(_)
        | Diagnosis::WaitingForVictims(_)
        | Diagnosis::PodUnschedulable { .. }
        | Diagnosis::GroupUnschedulable(_)
        | Diagnosis::TimedOut { .. } => {
            let reason = diagnosis.group_reason();
            // Members that wait for an object that can be used do not change that the group has started.
            if !(instance.error.is_some() && conditions.is_true(STARTED)) {
                conditions.set(POD_GROUP_SCHEDULED, reason == SCHEDULED, reason, &text);
            }
            if matches!(
                diagnosis,
                Diagnosis::GroupUnschedulable(Shortfall { started: false, .. })
                    | Diagnosis::WaitingForVictims(Victims { started: false, .. })
            ) {
                conditions.unset(STARTED, "StartsAnew", "Nothing is left of the earlier start.");
            }
        }
    }
    instance.conditions = conditions.into_list();
}

/// The status that an object has to show. Updates the conditions of its groups from what can be counted.
pub(crate) fn status(
    intake: &mut Intake,
    engine: &Engine,
    key: &ObjectKey,
    now_ms: u64,
    now: Timestamp,
) -> Option<ObjectStatus> {
    let object = intake.groups.object(key)?.clone();
    let groups: Vec<_> = intake.groups.instances_of(key).cloned().collect();
    let mut instances = Vec::new();
    for group in groups {
        let Some(instance) = intake.groups.instance(&group) else { continue };
        let view = EngineView::of(engine, &group);
        let mut shown = instance_status(intake, instance, &object, &view, now_ms, now);
        let held = instance.members.iter().filter_map(|uid| intake.pod_record(uid)).any(holds_node);
        if let Some(instance) = intake.groups.instance_mut(&group) {
            if held && !view.is_evicted {
                instance.preempted_by = None;
            }
            let mut conditions = Conditions::from(&shown.conditions, now, object.generation);
            set_unusable(&mut conditions, instance.error.as_ref().filter(|_| held));
            instance.conditions = conditions.clone().into_list();
            if let Some(error) = instance.error.as_ref().filter(|_| !held) {
                // While it lasts, the error hides the condition that would apply otherwise.
                set_error(&mut conditions, error);
            }
            shown.conditions = conditions.into_list();
        }
        instances.push(shown);
    }
    let conditions = if object.is_group { Vec::new() } else { overall(&object, &instances, now_ms, now) };
    Some(ObjectStatus { observed_generation: object.generation, conditions, instances })
}

fn instance_status(
    intake: &Intake,
    instance: &Instance,
    object: &GroupObject,
    view: &EngineView<'_>,
    now_ms: u64,
    now: Timestamp,
) -> InstanceStatus {
    let policy = view.spec.map(|spec| &spec.policy);
    let rules = view.spec.map(GroupSpec::rules).unwrap_or_default();
    let open = view.spec.is_some_and(|spec| spec.open);
    let records: Vec<(&str, &PodRecord)> =
        instance.members.iter().filter_map(|uid| Some((&**uid, intake.pod_record(uid)?))).collect();
    let mut subsets: Vec<(String, Counts)> = rules.iter().map(|rule| (rule.name.clone(), Counts::default())).collect();
    let mut counts = Counts::default();
    for (uid, record) in &records {
        count(&mut counts, instance, uid, record);
        if let Some(index) = subset_of(&rules, open, &record.subset) {
            count(&mut subsets[index].1, instance, uid, record);
        }
    }
    let mut conditions = Conditions::from(&instance.conditions, now, object.generation);
    if view.whole {
        conditions.unset(DEGRADED, "Healthy", "The group has what it needs.");
    }
    if instance.error.is_none() {
        let basic = matches!(policy, Some(Policy::Basic { .. }));
        let members = subsets.iter().map(|(_, counts)| counts.total).sum();
        derive(&mut conditions, instance, object, (&counts, members), &rules, basic, now_ms);
    }
    let parsed = object.groups.iter().flatten().find(|(name, _)| *name == instance.group);
    // On native groups `spec.priority` is that record.
    let by_server = parsed.is_some_and(|(_, group)| group.priority.number_by_server().is_some());
    if let Some(resolved) = object.priorities.get(&instance.group).filter(|_| !by_server) {
        conditions.set(PRIORITY_RESOLVED, true, RESOLVED, &resolved.message());
    }
    set_mismatch(&mut conditions, view, &records);
    set_disruption(&mut conditions, instance, view, &records);
    // A group whose pods were deleted because it had lost members has not completed.
    if !instance.given_up {
        set_completed(&mut conditions, &records);
    }
    let is_gang = rules.iter().any(|rule| rule.min_member > 0);
    let has_minimum = is_gang && has_minimum(&rules, open, &records);
    let tells_start = instance.error.is_none() && !conditions.is_true(STARTED);
    // The engine does not repeat its report when a group that was gone starts again as before.
    if view.start_is_open {
        conditions.unset(STARTED, "StartsAnew", "The start failed: the group needs its minimum again.");
    } else if tells_start && has_minimum {
        let minimum = minimum_of(&rules);
        let scheduled = u32::try_from(counts.scheduled).unwrap_or(u32::MAX);
        let text = Diagnosis::Scheduled { minimum, scheduled }.to_string();
        conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, &text);
        conditions.set_started(minimum);
    } else if tells_start && view.reached > 0 {
        // It has lost members since.
        conditions.set_started(view.reached);
    }
    if let Some(decided_ms) = view.decided_ms {
        conditions.set_started_decided_ms(decided_ms);
    }
    if view.reached == 0 && nothing_left(&records, is_gang && !has_minimum) {
        conditions.unset(STARTED, "NothingLeft", NOTHING_LEFT);
        conditions.unset(DEGRADED, "NothingLeft", NOTHING_LEFT);
    }
    InstanceStatus {
        group: instance.group.clone(),
        replica: instance.replica.clone(),
        minimum: minimum_of(&rules),
        policy: match policy {
            Some(Policy::Gang { .. }) => "Gang",
            Some(Policy::Basic { .. }) => "Basic",
            Some(Policy::Subsets(_)) => "Subsets",
            None => "",
        },
        counts,
        subsets,
        conditions: conditions.into_list(),
    }
}

fn minimum_of(rules: &[Subset]) -> u32 {
    rules.iter().fold(0, |sum: u32, rule| sum.saturating_add(rule.min_member))
}

fn count(counts: &mut Counts, instance: &Instance, uid: &str, record: &PodRecord) {
    counts.total += 1;
    counts.scheduled += i64::from(matches!(record.stage, Stage::Bound | Stage::Running | Stage::Succeeded));
    counts.running += i64::from(record.stage == Stage::Running);
    counts.succeeded += i64::from(record.stage == Stage::Succeeded);
    counts.failed += i64::from(record.stage == Stage::Failed);
    let is_pending = record.is_pending();
    counts.would_fit += i64::from(is_pending && instance.would_fit.contains(uid));
    counts.no_room += i64::from(is_pending && instance.no_room.contains(uid));
}

/// Whether a gang has its minimum.
fn has_minimum(rules: &[Subset], open: bool, records: &[(&str, &PodRecord)]) -> bool {
    let held = |index| {
        let of_it = records.iter().filter(|(_, record)| subset_of(rules, open, &record.subset) == Some(index));
        of_it.filter(|(_, record)| record.ours && holds_node(record)).count()
    };
    rules.iter().enumerate().all(|(index, rule)| held(index) >= rule.min_member as usize)
}

/// Whether nothing is left of a start. Succeeded pods do not count if more than those are needed. The engine learns of
/// binds before the watches show them, so its state takes precedence.
fn nothing_left(records: &[(&str, &PodRecord)], needs_more: bool) -> bool {
    let stays = |record: &PodRecord| holds_node(record) && !(needs_more && record.stage == Stage::Succeeded);
    !records.iter().any(|(_, record)| record.ours && stays(record))
}

fn holds_node(record: &PodRecord) -> bool {
    match record.stage {
        Stage::Bound | Stage::Running => !record.terminating,
        Stage::Succeeded => true,
        Stage::Pending | Stage::Failed => false,
    }
}

/// The engine's view of a group, beyond its last report.
#[derive(Clone, Copy, Default)]
struct EngineView<'e> {
    /// The last object that could be used.
    spec: Option<&'e GroupSpec>,
    /// It lacks no members: a loss reported by an earlier process may have been repaired unnoticed.
    whole: bool,
    /// Its start is not confirmed, or no longer is.
    start_is_open: bool,
    /// The minimum with which it has started as a gang, or zero.
    reached: u32,
    /// When the confirmed start was decided.
    decided_ms: Option<u64>,
    /// Some of its members are being preempted.
    is_evicted: bool,
}

impl<'e> EngineView<'e> {
    fn of(engine: &'e Engine, key: &GroupKey) -> Self {
        let group = engine.group_view(key).filter(|group| group.last_spec().is_some());
        group.map_or_else(Self::default, |group| Self {
            spec: group.last_spec(),
            whole: !group.is_degraded() && !group.reached().is_empty(),
            start_is_open: group.start_is_open(),
            reached: if group.is_gang() { group.reached().iter().sum() } else { 0 },
            decided_ms: group.start_decided_ms(),
            is_evicted: group.members().any(|member| member.is_evicted()),
        })
    }
}

/// Sets `DisruptionTarget` from when the first pod of the group is being deleted until the group stays after all or is
/// back on nodes. An eviction that was only requested may still be rejected or fail.
fn set_disruption(
    conditions: &mut Conditions,
    instance: &Instance,
    view: &EngineView<'_>,
    records: &[(&str, &PodRecord)],
) {
    let is_going =
        view.is_evicted && records.iter().any(|(_, record)| record.terminating && record.stage != Stage::Pending);
    let stays = !is_going && records.iter().any(|(_, record)| holds_node(record));
    match &instance.preempted_by {
        Some(by) if !stays => {
            conditions.set(DISRUPTION_TARGET, true, PREEMPTION_BY_SCHEDULER, &format!("Preempted by {by}."));
        }
        _ if stays => conditions.unset(DISRUPTION_TARGET, "NotEvicted", "It is not being evicted."),
        _ => {}
    }
}

/// Reports the error of an object of which no member has a node.
fn set_error(conditions: &mut Conditions, error: &GroupError) {
    conditions.set(POD_GROUP_SCHEDULED, false, error_reason(error.kind), &error.message);
}

/// Reports the error of an object of which members have nodes. What it said before holds for those: the error concerns
/// only members that wait.
fn set_unusable(conditions: &mut Conditions, error: Option<&GroupError>) {
    match error {
        Some(error) => conditions.set(UNUSABLE, true, error_reason(error.kind), &error.message),
        None => conditions.unset(UNUSABLE, "Usable", "The object can be used, or no member has a node."),
    }
}

/// The condition reason for an error.
pub(crate) fn error_reason(kind: GroupErrorKind) -> &'static str {
    match kind {
        GroupErrorKind::Invalid => INVALID,
        GroupErrorKind::Unsupported => UNSUPPORTED,
    }
}

/// Derives conditions from the counters where the engine reports nothing.
fn derive(
    conditions: &mut Conditions,
    instance: &Instance,
    object: &GroupObject,
    (counts, members): (&Counts, i64),
    rules: &[Subset],
    basic: bool,
    now_ms: u64,
) {
    let last = instance.last_diagnosis.as_ref();
    if conditions.get(POD_GROUP_SCHEDULED).is_none() && conditions.is_true(STARTED) {
        conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, "The group has had its minimum.");
    }
    if basic && counts.scheduled > 0 {
        let text = match last {
            Some(
                diagnosis
                @ (Diagnosis::GroupUnschedulable(_) | Diagnosis::WaitingForVictims(_) | Diagnosis::Waiting(_)),
            ) => diagnosis.to_string(),
            _ => {
                Diagnosis::Scheduled { minimum: 0, scheduled: u32::try_from(counts.scheduled).unwrap_or(0) }.to_string()
            }
        };
        // A basic group is scheduled as soon as one of its pods is.
        conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, &text);
    } else if let Some(diagnosis @ Diagnosis::GroupUnschedulable(_)) = last.filter(|_| basic && counts.total > 0) {
        conditions.set(POD_GROUP_SCHEDULED, false, UNSCHEDULABLE, &diagnosis.to_string());
    }
    // A diagnosis about pods that are all gone is outdated, unless they had finished. Pods without a matching subset
    // are no members.
    let no_members = counts.total == 0 || (members == 0 && conditions.get(POD_GROUP_SCHEDULED).is_none());
    if no_members && !conditions.is_true(COMPLETED) && now_ms >= object.created_ms + EMPTY_REPORT_MS {
        let minimum = minimum_of(rules);
        let text = match minimum {
            0 => "Waiting for members: none is there.".to_owned(),
            _ => format!("Waiting for members: 0 of {minimum} are there."),
        };
        conditions.set(POD_GROUP_SCHEDULED, false, WAITING_FOR_MEMBERS, &text);
    }
}

fn set_mismatch(conditions: &mut Conditions, view: &EngineView<'_>, records: &[(&str, &PodRecord)]) {
    let Some(GroupPriority::Own(own)) = view.spec.map(|spec| spec.priority) else {
        return conditions.unset(PODS_NOT_MATCHING_PRIORITY, "Matching", "The members' priorities count.");
    };
    let differing: Vec<&&PodRecord> =
        records.iter().map(|(_, record)| record).filter(|record| record.priority != own).collect();
    match differing.first() {
        None => conditions.unset(PODS_NOT_MATCHING_PRIORITY, "Matching", "All pods have the group's priority."),
        Some(record) => {
            let text = format!(
                "{} pods have another priority than the group's {own}, which takes precedence; pod {} has {}.",
                differing.len(),
                record.id,
                record.priority
            );
            conditions.set(PODS_NOT_MATCHING_PRIORITY, true, "PriorityDiffers", &text);
        }
    }
}

/// While pods are being deleted that did not succeed, the result is open: the deletion may have made them fail. A group
/// that has completed stays so when its pods are cleaned up.
fn set_completed(conditions: &mut Conditions, records: &[(&str, &PodRecord)]) {
    let count = |stage: Stage| records.iter().filter(|(_, record)| record.stage == stage).count();
    let (succeeded, failed) = (count(Stage::Succeeded), count(Stage::Failed));
    if records.is_empty() || records.iter().any(|(_, record)| record.terminating && record.stage != Stage::Succeeded) {
        return;
    }
    if succeeded + failed == records.len() {
        let text = format!("All pods have finished: {succeeded} succeeded, {failed} failed.");
        conditions.set(COMPLETED, true, "PodsFinished", &text);
    } else {
        conditions.unset(COMPLETED, "PodsLeft", "There are pods that have not finished.");
    }
}

/// The conditions of an object that defines several groups.
fn overall(object: &GroupObject, instances: &[InstanceStatus], now_ms: u64, now: Timestamp) -> Vec<Condition> {
    let mut conditions = Conditions::from(&object.current_status.conditions, now, object.generation);
    let scheduled = |one: &InstanceStatus| Condition::find(&one.conditions, POD_GROUP_SCHEDULED).cloned();
    let worst = instances.iter().find(|one| !scheduled(one).is_some_and(|condition| condition.is_true()));
    let runs = |one: &InstanceStatus| Condition::find(&one.conditions, UNUSABLE).is_some_and(Condition::is_true);
    let held = instances.iter().any(runs);
    set_unusable(&mut conditions, object.groups.as_ref().err().filter(|_| held));
    if let Err(error) = &object.groups {
        if !held {
            set_error(&mut conditions, error);
        }
    } else if instances.is_empty() {
        if now_ms >= object.created_ms + EMPTY_REPORT_MS {
            let text = "Waiting for members: no pod names a group of this object.";
            conditions.set(POD_GROUP_SCHEDULED, false, WAITING_FOR_MEMBERS, text);
        }
    } else if let Some(worst) = worst {
        let name =
            if worst.replica.is_empty() { worst.group.clone() } else { format!("{}[{}]", worst.group, worst.replica) };
        if let Some(condition) = scheduled(worst) {
            let text = format!("{name}: {}", condition.message);
            conditions.set(POD_GROUP_SCHEDULED, false, &condition.reason, &text);
        }
    } else {
        let text = format!("All groups are scheduled: {}.", instances.len());
        conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, &text);
    }
    let degraded = |one: &&InstanceStatus| Condition::find(&one.conditions, DEGRADED).is_some_and(Condition::is_true);
    match instances.iter().filter(degraded).count() {
        0 => conditions.unset(DEGRADED, "Healthy", "No group is below its minimum."),
        count => conditions.set(DEGRADED, true, "BelowMinimum", &format!("Groups below their minimum: {count}.")),
    }
    conditions.into_list()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_that_is_always_overwritten_is_written_less_and_less_often() {
        let key = ObjectKey { dialect: 0, namespace: "ml".to_owned(), name: "g".to_owned() };
        let patch = |phase: &str| StatusPatch::Merge(json!({"status": {"phase": phase}}));
        let (mut queue, mut writes) = (GroupStatusQueue::default(), Vec::new());
        // Another writer changes the phase as soon as ours is there.
        for now_ms in (0..600_000).step_by(100) {
            if queue.may_repeat(&key, &patch("Pending"), now_ms) {
                queue.sent(&key, now_ms);
                queue.done(&key, &WriteOutcome::Written(None), now_ms);
                writes.push(now_ms);
            }
        }
        assert_eq!(writes[..4], [0, 1_000, 3_000, 7_000]);
        assert!(writes.len() < 12, "{writes:?}");
        // A new status is written at once, and so is one that failed.
        assert!(queue.may_repeat(&key, &patch("Running"), 600_000));
        queue.sent(&key, 600_000);
        queue.done(&key, &WriteOutcome::Conflict, 600_000);
        assert!(queue.may_repeat(&key, &patch("Running"), 600_200));
    }
}
