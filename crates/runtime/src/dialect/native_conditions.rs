//! The conditions of native groups: upstream's own, and Muster's with a prefix.
//!
//! `DisruptionTarget` is a type that upstream defines and does not write; it is written with upstream's name.
//! Upstream's condition never becomes false again once it is true, so the current state is in Muster's condition. Its
//! type differs between versions and is given by the caller.
//! Must not depend on any other field of the object.

use muster_api::keys::conditions::{DISRUPTION_TARGET, NATIVE_PREFIX, POD_GROUP_SCHEDULED};
use muster_api::keys::group_reasons::{
    INVALID, NEVER_FITS, NOT_FOUND_WITHIN_BUDGET, SCHEDULE_TIMEOUT, SCHEDULED, SCHEDULER_ERROR, UNSCHEDULABLE,
    UNSUPPORTED, WAITING_FOR_VICTIMS,
};
use muster_api::wire::condition::Condition;
use serde_json::json;

use super::StatusPatch;
use super::condition::{CurrentInstance, CurrentStatus, text_of};
use super::group_object::GroupObject;
use super::status::ObjectStatus;

/// The current status from a group's conditions; `upstream` is the type of upstream's condition.
pub(super) fn current_status(conditions: &[Condition], upstream: &str) -> CurrentStatus {
    let ours = conditions.iter().filter_map(|one| {
        let upstreams = Some(one.kind.as_str()).filter(|kind| *kind == DISRUPTION_TARGET);
        let kind = one.kind.strip_prefix(NATIVE_PREFIX).or(upstreams)?.to_owned();
        Some(Condition { kind, ..one.clone() })
    });
    let instance = CurrentInstance { conditions: ours.collect() };
    CurrentStatus {
        conditions: conditions.to_vec(),
        instances: [((String::new(), String::new()), instance)].into(),
        may_have_started: Condition::find(conditions, upstream).is_some_and(Condition::is_true),
        text: text_of(&written_by_us(conditions, upstream)),
        ..CurrentStatus::default()
    }
}

/// The patch of the object's conditions; `None` if they are already current.
pub(super) fn patch(object: &GroupObject, status: &ObjectStatus, upstream: &str) -> Option<StatusPatch> {
    let instance = status.instances.first()?;
    let conditions = with_upstream(&object.current_status.conditions, &instance.conditions, upstream);
    // The server merges the list by type, so that conditions of others stay; upstream has no update times.
    (text_of(&conditions) != object.current_status.text).then(|| {
        let conditions: Vec<_> =
            conditions.iter().map(|one| Condition { last_update_time: None, ..one.clone() }).collect();
        StatusPatch::Strategic(json!({"metadata": {"uid": object.uid}, "status": {"conditions": conditions}}))
    })
}

fn written_by_us(conditions: &[Condition], upstream: &str) -> Vec<Condition> {
    let is_ours = |kind: &str| kind.starts_with(NATIVE_PREFIX) || kind == upstream || kind == DISRUPTION_TARGET;
    let ours = conditions.iter().filter(|one| is_ours(&one.kind));
    let mut list: Vec<Condition> = ours.cloned().collect();
    list.sort_by(|one, other| one.kind.cmp(&other.kind));
    list
}

/// Muster's conditions with their prefix, and upstream's condition.
fn with_upstream(shown: &[Condition], ours: &[Condition], upstream: &str) -> Vec<Condition> {
    let prefixed = |one: &Condition| Condition {
        kind: if one.kind == DISRUPTION_TARGET { one.kind.clone() } else { format!("{NATIVE_PREFIX}{}", one.kind) },
        last_update_time: None,
        ..one.clone()
    };
    let mut list: Vec<Condition> = ours.iter().map(prefixed).collect();
    let old = Condition::find(shown, upstream);
    let new = Condition::find(ours, POD_GROUP_SCHEDULED).and_then(|ours| upstream_condition(ours, upstream));
    let kept = old.filter(|old| old.is_true() || new.is_none()).cloned();
    list.extend(kept.or_else(|| new.map(|new| keep_transition_time(old, new))));
    written_by_us(&list, upstream)
}

/// An unchanged status keeps its transition time.
fn keep_transition_time(old: Option<&Condition>, new: Condition) -> Condition {
    let time = old.filter(|old| old.status == new.status).and_then(|old| old.last_transition_time.clone());
    Condition { last_transition_time: time.or_else(|| new.last_transition_time.clone()), ..new }
}

/// Upstream's condition for one of Muster's; `None` while the group has not been tried.
fn upstream_condition(ours: &Condition, upstream: &str) -> Option<Condition> {
    let (status, reason) = match ours.reason.as_str() {
        SCHEDULED => ("True", SCHEDULED),
        UNSCHEDULABLE | NOT_FOUND_WITHIN_BUDGET | NEVER_FITS | SCHEDULE_TIMEOUT | WAITING_FOR_VICTIMS => {
            ("False", UNSCHEDULABLE)
        }
        INVALID | UNSUPPORTED | SCHEDULER_ERROR => ("False", SCHEDULER_ERROR),
        _ => return None,
    };
    Some(Condition {
        kind: upstream.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: if status == "True" { String::new() } else { ours.message.clone() },
        last_update_time: None,
        ..ours.clone()
    })
}
