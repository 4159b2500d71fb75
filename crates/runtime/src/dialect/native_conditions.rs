//! The conditions of native groups: upstream's own, and ours with a prefix beside it.
//!
//! `DisruptionTarget` is a type that upstream has and does not write; it is written as upstream names it.
//! Upstream's condition never goes back once it is true, so what holds now stands in ours. Its type differs between
//! versions and is given by the caller. It must not know any other field of the object.

use muster_api::keys::conditions::{DISRUPTION_TARGET, NATIVE_PREFIX, POD_GROUP_SCHEDULED};
use muster_api::keys::group_reasons::{
    INVALID, NEVER_FITS, NOT_FOUND_WITHIN_BUDGET, SCHEDULE_TIMEOUT, SCHEDULED, SCHEDULER_ERROR, UNSCHEDULABLE,
    UNSUPPORTED, WAITING_FOR_VICTIMS,
};
use muster_api::wire::condition::Condition;
use serde_json::json;

use super::StatusPatch;
use super::condition::{Shown, ShownInstance, text_of};
use super::draft::GroupObject;
use super::status::ObjectStatus;

/// What a group's conditions show; `upstream` is the type of upstream's.
pub(super) fn shown(conditions: &[Condition], upstream: &str) -> Shown {
    let ours = conditions.iter().filter_map(|one| {
        let upstreams = Some(one.kind.as_str()).filter(|kind| *kind == DISRUPTION_TARGET);
        let kind = one.kind.strip_prefix(NATIVE_PREFIX).or(upstreams)?.to_owned();
        Some(Condition { kind, ..one.clone() })
    });
    let instance = ShownInstance { conditions: ours.collect() };
    Shown {
        conditions: conditions.to_vec(),
        instances: [((String::new(), String::new()), instance)].into(),
        may_have_started: Condition::find(conditions, upstream).is_some_and(Condition::is_true),
        text: text_of(&written_by_us(conditions, upstream)),
        ..Shown::default()
    }
}

/// The patch after which the object's conditions say this; `None` if they do already.
pub(super) fn patch(object: &GroupObject, status: &ObjectStatus, upstream: &str) -> Option<StatusPatch> {
    let instance = status.instances.first()?;
    let conditions = with_upstream(&object.shown.conditions, &instance.conditions, upstream);
    // The server merges the list by type, so that conditions of others stay; times of updates are not upstream's.
    (text_of(&conditions) != object.shown.text).then(|| {
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

/// Our conditions under their prefix, and upstream's beside them.
fn with_upstream(shown: &[Condition], ours: &[Condition], upstream: &str) -> Vec<Condition> {
    let prefixed = |one: &Condition| Condition {
        kind: if one.kind == DISRUPTION_TARGET { one.kind.clone() } else { format!("{NATIVE_PREFIX}{}", one.kind) },
        last_update_time: None,
        ..one.clone()
    };
    let mut list: Vec<Condition> = ours.iter().map(prefixed).collect();
    let old = Condition::find(shown, upstream);
    let new = Condition::find(ours, POD_GROUP_SCHEDULED).and_then(|ours| in_upstreams_words(ours, upstream));
    let kept = old.filter(|old| old.is_true() || new.is_none()).cloned();
    list.extend(kept.or_else(|| new.map(|new| since(old, new))));
    written_by_us(&list, upstream)
}

/// The same status keeps its time.
fn since(old: Option<&Condition>, new: Condition) -> Condition {
    let time = old.filter(|old| old.status == new.status).and_then(|old| old.last_transition_time.clone());
    Condition { last_transition_time: time.or_else(|| new.last_transition_time.clone()), ..new }
}

/// What upstream's condition says of this; nothing while the group is not tried.
fn in_upstreams_words(ours: &Condition, upstream: &str) -> Option<Condition> {
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
