//! The status of a group object, from what the engine says about its groups.
//!
//! Every condition is a function of the engine's [`GroupStatus`], of what is wrong with the object, and of the
//! condition
//! that is shown: that one stays where the engine says nothing.

use jiff::Timestamp;
use muster_api::keys::conditions::{
    COMPLETED, DEGRADED, DISRUPTION_TARGET, POD_GROUP_SCHEDULED, PODS_NOT_MATCHING_PRIORITY, PRIORITY_RESOLVED,
    STARTED, UNUSABLE,
};
use muster_api::keys::group_reasons::{INVALID, PREEMPTION_BY_SCHEDULER, SCHEDULED, UNSUPPORTED, WAITING_FOR_MEMBERS};
use muster_api::wire::condition::Condition;
use muster_engine::model::group::{GroupSpec, Policy, total_minimum};
use muster_engine::status::{Completion, EvictionStatus, GroupStatus, Health, ScheduledStatus};
use muster_engine::{Diagnosis, Engine};

use crate::dialect::{
    Conditions, GroupError, GroupErrorKind, GroupObject, InstanceStatus, ObjectStatus, recorded_start,
};
use crate::intake::Intake;
use crate::intake::group_index::ObjectKey;
use crate::intake::instance::Instance;

/// The reason of the condition that records the priority.
const RESOLVED: &str = "Resolved";
/// How long a group without pods is left alone before its condition reports that.
pub(crate) const EMPTY_REPORT_MS: u64 = 5_000;

/// The status that an object has to show. Updates the conditions that are kept of its groups.
pub(crate) fn status(
    intake: &mut Intake,
    engine: &Engine,
    key: &ObjectKey,
    now_ms: u64,
    now: Timestamp,
) -> Option<ObjectStatus> {
    let object = intake.groups.object(key)?.clone();
    let groups: Vec<_> = intake.groups.instances_of(key).cloned().collect();
    let is_old = now_ms >= object.created_ms + EMPTY_REPORT_MS;
    let mut instances = Vec::new();
    for group in groups {
        let Some(instance) = intake.groups.instance_mut(&group) else { continue };
        let status = engine.group_status(&group);
        let mut conditions = Conditions::from(&instance.conditions, now, object.generation);
        update(&mut conditions, instance, &object, &status, is_old);
        instance.was_evicted &= status.eviction != Some(EvictionStatus::NotEvicted);
        instance.conditions = conditions.clone().into_list();
        if let Some(error) = instance.error.as_ref().filter(|_| !status.has_nodes) {
            // While it lasts, the error hides the condition that would apply otherwise.
            set_error(&mut conditions, error);
        }
        instances.push(shown(instance, status, conditions));
    }
    let conditions = if object.is_group { Vec::new() } else { overall(&object, &instances, is_old, now) };
    Some(ObjectStatus { observed_generation: object.generation, conditions, instances })
}

fn shown(instance: &Instance, status: GroupStatus<'_>, conditions: Conditions) -> InstanceStatus {
    InstanceStatus {
        group: instance.group.clone(),
        replica: instance.replica.clone(),
        minimum: minimum(&status),
        policy: match status.spec.map(|spec| &spec.policy) {
            Some(Policy::Gang { .. }) => "Gang",
            Some(Policy::Basic { .. }) => "Basic",
            Some(Policy::Subsets(_)) => "Subsets",
            Some(Policy::Groups { .. } | Policy::Tree(_)) => "Groups",
            None => "",
        },
        counts: status.counts,
        subsets: status.subsets,
        conditions: conditions.into_list(),
    }
}

/// The minimum of a group in total.
fn minimum(status: &GroupStatus<'_>) -> u32 {
    total_minimum(&status.spec.map(GroupSpec::rules).unwrap_or_default())
}

/// Updates the conditions of a group.
fn update(
    conditions: &mut Conditions,
    instance: &Instance,
    object: &GroupObject,
    status: &GroupStatus<'_>,
    is_old: bool,
) {
    set_completed(conditions, status);
    set_scheduled(conditions, instance, status, is_old);
    recorded_start::write(conditions, &status.start);
    set_degraded(conditions, status);
    let parsed = object.groups.iter().flatten().find(|(name, _)| *name == instance.group);
    // On native groups `spec.priority` is that record.
    let by_server = parsed.is_some_and(|(_, group)| group.priority.number_by_server().is_some());
    if let Some(resolved) = object.priorities.get(&instance.group).filter(|_| !by_server) {
        conditions.set(PRIORITY_RESOLVED, true, RESOLVED, &resolved.message());
    }
    set_mismatch(conditions, status);
    match &status.eviction {
        None => {}
        Some(EvictionStatus::NotEvicted | EvictionStatus::Ordered) => {
            conditions.unset(DISRUPTION_TARGET, "NotEvicted", "It is not being evicted.");
        }
        Some(EvictionStatus::Evicted { by }) => {
            conditions.set(DISRUPTION_TARGET, true, PREEMPTION_BY_SCHEDULER, &format!("Preempted by {by}."));
        }
    }
    set_unusable(conditions, instance.error.as_ref().filter(|_| status.has_nodes));
}

fn set_scheduled(conditions: &mut Conditions, instance: &Instance, status: &GroupStatus<'_>, is_old: bool) {
    // Members that wait for an object that can be used do not change that the group has started.
    if instance.error.is_some() && conditions.is_true(STARTED) {
        return;
    }
    let scheduled = || {
        let scheduled = u32::try_from(status.counts.scheduled).unwrap_or(u32::MAX);
        Diagnosis::Scheduled { minimum: minimum(status), scheduled }.to_string()
    };
    match &status.scheduled {
        // A diagnosis about pods that are all gone is outdated, unless they had finished.
        ScheduledStatus::NoMembers if is_old && instance.error.is_none() && !conditions.is_true(COMPLETED) => {
            let text = match minimum(status) {
                0 => "Waiting for members: none is there.".to_owned(),
                minimum => format!("Waiting for members: 0 of {minimum} are there."),
            };
            conditions.set(POD_GROUP_SCHEDULED, false, WAITING_FOR_MEMBERS, &text);
        }
        ScheduledStatus::Scheduled => conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, &scheduled()),
        ScheduledStatus::ScheduledPartly(diagnosis) => {
            conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, &diagnosis.to_string());
        }
        ScheduledStatus::Reported(diagnosis) => {
            let reason = match diagnosis {
                // Its rest is deleted; the members of the next start have yet to come.
                Diagnosis::Degraded { .. } => WAITING_FOR_MEMBERS,
                _ => diagnosis.group_reason(),
            };
            conditions.set(POD_GROUP_SCHEDULED, reason == SCHEDULED, reason, &diagnosis.to_string());
        }
        ScheduledStatus::OfTree(diagnosis) => {
            let reason = diagnosis.group_reason();
            conditions.set(POD_GROUP_SCHEDULED, reason == SCHEDULED, reason, &diagnosis.to_string());
        }
        ScheduledStatus::Incomplete(diagnosis) => {
            conditions.set(POD_GROUP_SCHEDULED, false, diagnosis.group_reason(), &diagnosis.to_string());
        }
        ScheduledStatus::Started if !conditions.is_true(POD_GROUP_SCHEDULED) => {
            conditions.set(POD_GROUP_SCHEDULED, true, SCHEDULED, &scheduled());
        }
        ScheduledStatus::NoMembers | ScheduledStatus::Started | ScheduledStatus::Unchanged => {}
    }
}

fn set_degraded(conditions: &mut Conditions, status: &GroupStatus<'_>) {
    match &status.health {
        Some(Health::Degraded(diagnosis)) => conditions.set(DEGRADED, true, "BelowMinimum", &diagnosis.to_string()),
        Some(Health::Healthy) => conditions.unset(DEGRADED, "Healthy", "The group has what it needs."),
        Some(Health::NothingLeft) => conditions.unset(DEGRADED, "NothingLeft", recorded_start::NOTHING_LEFT),
        None => {}
    }
}

/// A group that has completed stays so when its pods are cleaned up.
fn set_completed(conditions: &mut Conditions, status: &GroupStatus<'_>) {
    let counts = &status.counts;
    match status.completion {
        None => {}
        Some(Completion::NotFinished) => {
            conditions.unset(COMPLETED, "PodsLeft", "There are pods that have not finished.");
        }
        Some(Completion::Finished) => {
            let text = format!("All pods have finished: {} succeeded, {} failed.", counts.succeeded, counts.failed);
            conditions.set(COMPLETED, true, "PodsFinished", &text);
        }
    }
}

fn set_mismatch(conditions: &mut Conditions, status: &GroupStatus<'_>) {
    match &status.priority_mismatch {
        None => conditions.unset(PODS_NOT_MATCHING_PRIORITY, "Matching", "No pod's priority differs from the group's."),
        Some(mismatch) => {
            let precedence = match mismatch.capped {
                None => "which takes precedence".to_owned(),
                Some(lowest) => format!("which counts only up to the lowest of its pods, {lowest}"),
            };
            let text = format!(
                "{} pods have another priority than the group's {}, {precedence}; pod {} has {}.",
                mismatch.pods, mismatch.own, mismatch.example, mismatch.example_priority
            );
            conditions.set(PODS_NOT_MATCHING_PRIORITY, true, "PriorityDiffers", &text);
        }
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

/// The conditions of an object that defines several groups.
fn overall(object: &GroupObject, instances: &[InstanceStatus], is_old: bool, now: Timestamp) -> Vec<Condition> {
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
        if is_old {
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
