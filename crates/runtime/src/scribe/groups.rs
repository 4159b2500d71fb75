//! What is said of groups: conditions and counters in the status of their objects.
//!
//! The engine's reports change an instance's conditions at once; counters are counted from the cards when the status is
//! written. A new condition is written soon, counters alone at most once a second, and only what differs from what the
//! object shows.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use kube::core::ApiResource;
use muster_api::keys::GROUP;
use muster_api::keys::conditions::{
    COMPLETED, DEGRADED, DISRUPTION_TARGET, POD_GROUP_SCHEDULED, PODS_NOT_MATCHING_PRIORITY, STARTED,
};
use muster_api::keys::group_reasons::{
    INVALID, PREEMPTION_BY_SCHEDULER, SCHEDULED, UNSCHEDULABLE, UNSUPPORTED, WAITING_FOR_MEMBERS,
};
use muster_api::wire::condition::Condition;
use muster_engine::diagnosis::{Shortfall, Victims};
use muster_engine::model::group::{GroupKey, GroupPriority, GroupSpec, Policy, Subset, subset_of};
use muster_engine::{Diagnosis, Engine};

use super::agenda::Agenda;
use super::pause::pause_ms;
use crate::dialect::{Conditions, Counts, Flaw, FlawKind, GroupObject, InstanceStatus, ObjectStatus, StatusPatch};
use crate::hands::WriteOutcome;
use crate::intake::Intake;
use crate::intake::card::{Card, Stage};
use crate::intake::groups::ObjectKey;
use crate::intake::instance::Instance;

/// How long news gathers before it is written.
const GATHER_MS: u64 = 100;
/// How often conditions are written at most, should they change to and fro.
const CONDITIONS_MS: u64 = 300;
/// How often counters are written at most.
const COUNTERS_MS: u64 = 1_000;
/// How long at most something waits that others overrule.
const OVERRULED_MS_MAX: u64 = 300_000;
const NOTHING_LEFT: &str = "None of its pods stays on a node.";
/// How long a group without any pod is left alone before that is told.
pub(crate) const EMPTY_TOLD_MS: u64 = 5_000;

/// Which objects are to be written, and when.
#[derive(Debug, Default)]
pub(crate) struct GroupNotes {
    agenda: Agenda<ObjectKey>,
    /// Writes on their way, and whether there is more to say already.
    in_flight: BTreeMap<ObjectKey, bool>,
    written_ms: BTreeMap<ObjectKey, u64>,
    /// Failures in a row, and when the next try may be.
    failures: BTreeMap<ObjectKey, (u32, u64)>,
    /// What was written last, and how often in a row.
    words: BTreeMap<ObjectKey, Words>,
}

/// A status that was written. Who has to write the same again was overruled: somebody else writes the object, too.
#[derive(Debug, Default)]
struct Words {
    digest: u64,
    /// The server has taken it.
    taken: bool,
    overruled: u32,
}

impl GroupNotes {
    /// Something is new about an object: its conditions, or only its counters.
    pub(crate) fn touch(&mut self, key: &ObjectKey, conditions: bool, now_ms: u64) {
        let pause_ms = if conditions { CONDITIONS_MS } else { COUNTERS_MS };
        let due_ms = (now_ms + GATHER_MS).max(self.written_ms.get(key).map_or(0, |written_ms| written_ms + pause_ms));
        let not_before = self.failures.get(key).map_or(0, |(_, not_before)| *not_before);
        self.agenda.put(key, due_ms.max(not_before));
    }

    /// There may be something to say at this time, if that is not past.
    pub(crate) fn look_again(&mut self, key: &ObjectKey, at_ms: u64, now_ms: u64) {
        if at_ms > now_ms {
            self.agenda.put(key, at_ms);
        }
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.agenda.next_due()
    }

    /// The objects that are due.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        while let Some(key) = self.agenda.pop_due(now_ms) {
            match self.in_flight.get_mut(&key) {
                // It is looked at again when the write that is on its way comes back.
                Some(more) => *more = true,
                None => keys.push(key),
            }
        }
        keys
    }

    /// Whether this may be written now. What others overrule again and again is written ever more seldom, so that two who
    /// do not agree do not keep each other busy.
    pub(crate) fn may_repeat(&mut self, key: &ObjectKey, patch: &StatusPatch, now_ms: u64) -> bool {
        let mut hasher = DefaultHasher::new();
        patch.body()["status"].to_string().hash(&mut hasher);
        let digest = hasher.finish();
        let words = self.words.entry(key.clone()).or_default();
        if words.digest != digest {
            *words = Words { digest, ..Words::default() };
            return true;
        }
        if !words.taken {
            return true;
        }
        let written_ms = self.written_ms.get(key).copied().unwrap_or(0);
        let not_before = written_ms + COUNTERS_MS.saturating_mul(1 << words.overruled.min(16)).min(OVERRULED_MS_MAX);
        if now_ms < not_before {
            self.agenda.put(key, not_before);
            return false;
        }
        words.overruled += 1;
        words.taken = false;
        true
    }

    /// A write is on its way.
    pub(crate) fn sent(&mut self, key: &ObjectKey, now_ms: u64) {
        self.in_flight.insert(key.clone(), false);
        self.written_ms.insert(key.clone(), now_ms);
    }

    /// A write came to its end.
    pub(crate) fn done(&mut self, key: &ObjectKey, outcome: &WriteOutcome, now_ms: u64) {
        let more = self.in_flight.remove(key).unwrap_or(false);
        match outcome {
            WriteOutcome::Written(_) => {
                self.failures.remove(key);
                if let Some(words) = self.words.get_mut(key) {
                    words.taken = true;
                }
                if more {
                    self.agenda.put(key, now_ms);
                }
            }
            WriteOutcome::Gone => self.forget(key),
            WriteOutcome::Conflict | WriteOutcome::Later { .. } | WriteOutcome::Refused(_) => {
                let (failures, not_before) = self.failures.entry(key.clone()).or_insert((0, 0));
                *failures += 1;
                *not_before = now_ms + pause_ms(*failures).max(outcome.asked_pause_ms());
                self.agenda.remove(key);
                self.agenda.put(key, *not_before);
            }
        }
    }

    /// The object is gone.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.agenda.remove(key);
        self.written_ms.remove(key);
        self.failures.remove(key);
        self.words.remove(key);
    }
}

/// Whether a group is for other schedulers to speak of: it is theirs, we evict nobody of it, and it shows no word of
/// ours that would have to be kept true.
pub(crate) fn is_left_to_others(intake: &Intake, key: &ObjectKey, resource: &ApiResource) -> bool {
    let shows = |object: &GroupObject| object.shown.instances.values().any(|shown| !shown.conditions.is_empty());
    let says = |object: &GroupObject| !object.shown.may_be_of_others && shows(object);
    let mut instances = intake.groups.instances_of(key).filter_map(|group| intake.groups.instance(group));
    is_of_others(intake, key, resource)
        && (resource.group == GROUP || !intake.groups.object(key).is_some_and(says))
        && !instances.any(|instance| instance.preempted_by.is_some())
}

/// Whether a group belongs to other schedulers: they read its kind too, no pod of ours ever named it, and it shows nothing
/// that we said of it when one did. Of our own kinds these are the groups that only pods of others name: another Muster
/// may speak of them, and two who speak of one group would take back each other's words for ever.
pub(crate) fn is_of_others(intake: &Intake, key: &ObjectKey, resource: &ApiResource) -> bool {
    if resource.group == GROUP {
        let instances = || intake.groups.instances_of(key).filter_map(|group| intake.groups.instance(group));
        let concerns_us = |instance: &Instance| instance.was_ours || instance.preempted_by.is_some();
        return instances().any(|instance| !instance.members.is_empty()) && !instances().any(concerns_us);
    }
    let tells = |one: &Condition| one.kind != DISRUPTION_TARGET;
    let shows = |object: &GroupObject| object.shown.instances.values().flat_map(|shown| &shown.conditions).any(tells);
    let says = |object: &GroupObject| !object.shown.may_be_of_others && shows(object);
    let mut instances = intake.groups.instances_of(key).filter_map(|group| intake.groups.instance(group));
    !intake.groups.object(key).is_some_and(says) && !instances.any(|instance| instance.was_ours)
}

/// Leaves nothing but the word that the group is being evicted: the rest is for its own scheduler to say.
pub(crate) fn say_only_of_disruption(status: &mut ObjectStatus) {
    for instance in &mut status.instances {
        instance.conditions.retain(|one| one.kind == DISRUPTION_TARGET);
    }
}

/// Enters what the engine says of a group into its conditions.
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
            conditions.set(POD_GROUP_SCHEDULED, reason == SCHEDULED, reason, &text);
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

/// The status that an object is to show. Brings the conditions of its groups up to date by what can be counted.
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
        let known = Known::of(engine, &group);
        let mut shown = instance_status(intake, instance, &object, known, now_ms, now);
        let held = instance.members.iter().filter_map(|uid| intake.card(uid)).any(holds_place);
        if let Some(instance) = intake.groups.instance_mut(&group) {
            if held && !known.is_evicted {
                instance.preempted_by = None;
            }
            instance.conditions.clone_from(&shown.conditions);
            if let Some(flaw) = &instance.flaw {
                // It hides what holds otherwise, as long as it lasts.
                let mut conditions = Conditions::from(&shown.conditions, now, object.generation);
                set_flaw(&mut conditions, flaw);
                shown.conditions = conditions.into_list();
            }
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
    known: Known,
    now_ms: u64,
    now: Timestamp,
) -> InstanceStatus {
    let policy = instance.sent.as_ref().map(|spec| &spec.policy);
    let rules = instance.sent.as_ref().map(GroupSpec::rules).unwrap_or_default();
    let open = instance.sent.as_ref().is_some_and(|spec| spec.open);
    let cards: Vec<(&str, &Card)> =
        instance.members.iter().filter_map(|uid| Some((&**uid, intake.card(uid)?))).collect();
    let mut subsets: Vec<(String, Counts)> = rules.iter().map(|rule| (rule.name.clone(), Counts::default())).collect();
    let mut counts = Counts::default();
    for (uid, card) in &cards {
        count(&mut counts, instance, uid, card);
        if let Some(index) = subset_of(&rules, open, &card.subset) {
            count(&mut subsets[index].1, instance, uid, card);
        }
    }
    let mut conditions = Conditions::from(&instance.conditions, now, object.generation);
    if known.whole {
        conditions.unset(DEGRADED, "Healthy", "The group has what it needs.");
    }
    if instance.flaw.is_none() {
        let basic = matches!(policy, Some(Policy::Basic { .. }));
        let members = subsets.iter().map(|(_, counts)| counts.total).sum();
        derive(&mut conditions, instance, object, (&counts, members), basic, now_ms);
    }
    set_mismatch(&mut conditions, instance, &cards);
    set_disruption(&mut conditions, instance, known, &cards);
    // What was deleted because others were lost has not come to its end.
    if !instance.given_up {
        set_completed(&mut conditions, &cards);
    }
    let is_gang = rules.iter().any(|rule| rule.min_member > 0);
    let has_minimum = is_gang && has_minimum(&rules, open, &cards);
    let tells_start = instance.flaw.is_none() && !conditions.is_true(STARTED);
    // The engine does not repeat itself when a group that was gone starts again as before.
    if known.start_is_open {
        conditions.unset(STARTED, "StartsAnew", "The start did not hold: the group needs its minimum again.");
    } else if tells_start && has_minimum {
        let minimum = minimum_of(&rules);
        let secured = u32::try_from(counts.scheduled).unwrap_or(u32::MAX);
        let text = Diagnosis::Scheduled { minimum, secured }.to_string();
        conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, &text);
        conditions.set_started(minimum);
    } else if tells_start && known.reached > 0 {
        // It has lost members since.
        conditions.set_started(known.reached);
    }
    if known.reached == 0 && nothing_left(&cards, is_gang && !has_minimum) {
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

fn count(counts: &mut Counts, instance: &Instance, uid: &str, card: &Card) {
    counts.total += 1;
    counts.scheduled += i64::from(matches!(card.stage, Stage::Bound | Stage::Running | Stage::Succeeded));
    counts.running += i64::from(card.stage == Stage::Running);
    counts.succeeded += i64::from(card.stage == Stage::Succeeded);
    counts.failed += i64::from(card.stage == Stage::Failed);
    let waits = card.waits();
    counts.would_fit += i64::from(waits && instance.would_fit.contains(uid));
    counts.no_room += i64::from(waits && instance.no_room.contains(uid));
}

/// Whether a gang has all that it needs.
fn has_minimum(rules: &[Subset], open: bool, cards: &[(&str, &Card)]) -> bool {
    let held = |index| {
        let of_it = cards.iter().filter(|(_, card)| subset_of(rules, open, &card.subset) == Some(index));
        of_it.filter(|(_, card)| card.ours && holds_place(card)).count()
    };
    rules.iter().enumerate().all(|(index, rule)| held(index) >= rule.min_member as usize)
}

/// Whether nothing is left of a start. Who finished well is nothing where more than those are needed. The engine hears of
/// binds before the watches show them: what it says comes first.
fn nothing_left(cards: &[(&str, &Card)], needs_more: bool) -> bool {
    let stays = |card: &Card| holds_place(card) && !(needs_more && card.stage == Stage::Succeeded);
    !cards.iter().any(|(_, card)| card.ours && stays(card))
}

fn holds_place(card: &Card) -> bool {
    match card.stage {
        Stage::Bound | Stage::Running => !card.terminating,
        Stage::Succeeded => true,
        Stage::Waiting | Stage::Failed => false,
    }
}

/// What the engine knows of a group's health, beyond what it said.
#[derive(Clone, Copy, Default)]
struct Known {
    /// It does not miss members: a loss that was told by an earlier process may have healed unseen.
    whole: bool,
    /// Its start is not confirmed, or no longer is.
    start_is_open: bool,
    /// The minimum with which it has started as a gang, or zero.
    reached: u32,
    /// Members of it are evicted for others.
    is_evicted: bool,
}

impl Known {
    fn of(engine: &Engine, key: &GroupKey) -> Self {
        let cluster = engine.cluster();
        let group = cluster.group_id(key).map(|id| cluster.group(id)).filter(|group| group.spec.is_some());
        group.map_or_else(Self::default, |group| Self {
            whole: !group.degraded && !group.reached.is_empty(),
            start_is_open: group.start_is_open(),
            reached: if group.is_gang() { group.reached.iter().sum() } else { 0 },
            is_evicted: group.members.iter().any(|(_, member)| cluster.pod(*member).eviction.is_some()),
        })
    }
}

/// A group that goes whole says so from when the first of it goes until it stays after all, or is back on nodes. What is
/// only ordered may be refused, or fail.
fn set_disruption(conditions: &mut Conditions, instance: &Instance, known: Known, cards: &[(&str, &Card)]) {
    let goes = known.is_evicted && cards.iter().any(|(_, card)| card.terminating && card.stage != Stage::Waiting);
    let stays = !goes && cards.iter().any(|(_, card)| holds_place(card));
    match &instance.preempted_by {
        Some(by) if !stays => {
            conditions.set(DISRUPTION_TARGET, true, PREEMPTION_BY_SCHEDULER, &format!("Preempted by {by}."));
        }
        _ if stays => conditions.unset(DISRUPTION_TARGET, "NotEvicted", "It is not being evicted."),
        _ => {}
    }
}

fn set_flaw(conditions: &mut Conditions, flaw: &Flaw) {
    conditions.set(POD_GROUP_SCHEDULED, false, flaw_reason(flaw.kind), &flaw.message);
}

/// The word for what is wrong with an object.
pub(crate) fn flaw_reason(kind: FlawKind) -> &'static str {
    match kind {
        FlawKind::Invalid => INVALID,
        FlawKind::Unsupported => UNSUPPORTED,
    }
}

/// What follows from the counters where the engine has nothing to say.
fn derive(
    conditions: &mut Conditions,
    instance: &Instance,
    object: &GroupObject,
    (counts, members): (&Counts, i64),
    basic: bool,
    now_ms: u64,
) {
    let told = instance.told.as_ref();
    if conditions.get(POD_GROUP_SCHEDULED).is_none() && conditions.is_true(STARTED) {
        conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, "The group has had its minimum.");
    }
    if basic && counts.scheduled > 0 {
        let text = match told {
            Some(
                diagnosis
                @ (Diagnosis::GroupUnschedulable(_) | Diagnosis::WaitingForVictims(_) | Diagnosis::Waiting(_)),
            ) => diagnosis.to_string(),
            _ => Diagnosis::Scheduled { minimum: 0, secured: u32::try_from(counts.scheduled).unwrap_or(0) }.to_string(),
        };
        // A basic group has its place as soon as one of its pods has.
        conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, &text);
    } else if let Some(diagnosis @ Diagnosis::GroupUnschedulable(_)) = told.filter(|_| basic && counts.total > 0) {
        conditions.set(POD_GROUP_SCHEDULED, false, UNSCHEDULABLE, &diagnosis.to_string());
    }
    // What was said of pods that are all gone is not true any more, unless they had finished. Pods that the group has no
    // subset for are no members.
    let nobody = counts.total == 0 || (members == 0 && conditions.get(POD_GROUP_SCHEDULED).is_none());
    if nobody && !conditions.is_true(COMPLETED) && now_ms >= object.created_ms + EMPTY_TOLD_MS {
        let rules = instance.sent.as_ref().map(GroupSpec::rules).unwrap_or_default();
        let minimum = minimum_of(&rules);
        let text = match minimum {
            0 => "Waiting for members: none is there.".to_owned(),
            _ => format!("Waiting for members: 0 of {minimum} are there."),
        };
        conditions.set(POD_GROUP_SCHEDULED, false, WAITING_FOR_MEMBERS, &text);
    }
}

fn set_mismatch(conditions: &mut Conditions, instance: &Instance, cards: &[(&str, &Card)]) {
    let Some(GroupPriority::Own(own)) = instance.sent.as_ref().map(|spec| spec.priority) else {
        return conditions.unset(PODS_NOT_MATCHING_PRIORITY, "Matching", "The members' priorities count.");
    };
    let differing: Vec<&&Card> = cards.iter().map(|(_, card)| card).filter(|card| card.priority != own).collect();
    match differing.first() {
        None => conditions.unset(PODS_NOT_MATCHING_PRIORITY, "Matching", "All pods have the group's priority."),
        Some(card) => {
            let text = format!(
                "{} pods have another priority than the group's {own}, which counts; pod {} has {}.",
                differing.len(),
                card.id,
                card.priority
            );
            conditions.set(PODS_NOT_MATCHING_PRIORITY, true, "PriorityDiffers", &text);
        }
    }
}

/// As long as pods are being deleted that did not end well nothing is known: they may have been made to end. What
/// finished before stays finished when its pods are cleaned up.
fn set_completed(conditions: &mut Conditions, cards: &[(&str, &Card)]) {
    let count = |stage: Stage| cards.iter().filter(|(_, card)| card.stage == stage).count();
    let (well, badly) = (count(Stage::Succeeded), count(Stage::Failed));
    if cards.is_empty() || cards.iter().any(|(_, card)| card.terminating && card.stage != Stage::Succeeded) {
        return;
    }
    if well + badly == cards.len() {
        let text = format!("All pods have finished: {well} well, {badly} badly.");
        conditions.set(COMPLETED, true, "PodsFinished", &text);
    } else {
        conditions.unset(COMPLETED, "PodsLeft", "There are pods that have not finished.");
    }
}

/// The conditions of an object that defines several groups.
fn overall(object: &GroupObject, instances: &[InstanceStatus], now_ms: u64, now: Timestamp) -> Vec<Condition> {
    let mut conditions = Conditions::from(&object.shown.conditions, now, object.generation);
    let scheduled = |one: &InstanceStatus| Condition::find(&one.conditions, POD_GROUP_SCHEDULED).cloned();
    let worst = instances.iter().find(|one| !scheduled(one).is_some_and(|condition| condition.is_true()));
    if let Err(flaw) = &object.groups {
        set_flaw(&mut conditions, flaw);
    } else if instances.is_empty() {
        if now_ms >= object.created_ms + EMPTY_TOLD_MS {
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
        let text = format!("All groups have their place: {}.", instances.len());
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
    fn who_is_overruled_again_and_again_writes_ever_more_seldom() {
        let key = ObjectKey { dialect: 0, namespace: "ml".to_owned(), name: "g".to_owned() };
        let patch = |phase: &str| StatusPatch::Merge(json!({"status": {"phase": phase}}));
        let (mut notes, mut writes) = (GroupNotes::default(), Vec::new());
        // Somebody else writes another phase as soon as ours is there.
        for now_ms in (0..600_000).step_by(100) {
            if notes.may_repeat(&key, &patch("Pending"), now_ms) {
                notes.sent(&key, now_ms);
                notes.done(&key, &WriteOutcome::Written(None), now_ms);
                writes.push(now_ms);
            }
        }
        assert_eq!(writes[..4], [0, 1_000, 3_000, 7_000]);
        assert!(writes.len() < 12, "{writes:?}");
        // What is new is written at once, and so is what failed.
        assert!(notes.may_repeat(&key, &patch("Running"), 600_000));
        notes.sent(&key, 600_000);
        notes.done(&key, &WriteOutcome::Conflict, 600_000);
        assert!(notes.may_repeat(&key, &patch("Running"), 600_200));
    }
}
