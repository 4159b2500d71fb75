//! The PodGroup of Volcano: a pod names it by an annotation, the object is the group.
//!
//! Tasks with minimums are subsets; pods of other tasks are members without one. Muster's conditions are in the status
//! with their prefix, next to Volcano's own two. Queues are not supported: a group of another queue than the default
//! one is not started, as that could exceed the share of its queue.
//! Must not depend on Volcano's own scheduler.

use kube::core::ApiResource;
use muster_api::group::{MAX_SUBSETS, count, min_resources};
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::conditions::{NATIVE_PREFIX, POD_GROUP_SCHEDULED};
use muster_api::keys::group_reasons::{INVALID, SCHEDULED, UNSUPPORTED, WAITING_FOR_MEMBERS, WAITING_FOR_VOLUMES};
use muster_api::names::check_dns_subdomain;
use muster_api::other_schedulers::volcano::{
    DEFAULT_QUEUE, GROUP_NAME_ANNOTATION, PodGroup, PodGroupCondition, PodGroupSpec, PodGroupStatus, TASK_ANNOTATION,
    WAITING_TIME_ANNOTATION,
};
use muster_api::resources::list_in_base_units;
use muster_api::wire::Pod;
use muster_api::wire::condition::Condition;
use muster_engine::model::group::{Policy, Subset};
use serde_json::Value;

use super::condition::{CurrentInstance, CurrentStatus, text_of};
use super::group_error::GroupError;
use super::group_object::GroupObject;
use super::parsed_group::{NumberBy, ParsedGroup, PriorityField, WithoutClass};
use super::status::{InstanceStatus, ObjectStatus};
use super::{Dialect, Reference, StatusPatch};
use crate::intake::raw::annotation;

const PENDING: &str = "Pending";
const IN_QUEUE: &str = "Inqueue";
const RUNNING: &str = "Running";
const UNKNOWN: &str = "Unknown";
const COMPLETED: &str = "Completed";
/// Volcano's own condition types.
const OWN_TYPES: [&str; 2] = ["Scheduled", "Unschedulable"];

/// `podgroups.scheduling.volcano.sh`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Volcano;

impl Dialect for Volcano {
    fn origin(&self) -> &'static str {
        "scheduling.volcano.sh/PodGroup"
    }

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<PodGroup>(&())
    }

    fn reference(&self, pod: &Pod) -> Option<Result<Reference, InvalidField>> {
        let name = annotation(pod, GROUP_NAME_ANNOTATION).filter(|name| !name.is_empty())?;
        let path = FieldPath::Root("metadata.annotations");
        if let Err(reason) = check_dns_subdomain(name) {
            return Some(Err(path.key(GROUP_NAME_ANNOTATION).invalid(name, reason)));
        }
        let subset = annotation(pod, TASK_ANNOTATION).unwrap_or_default().to_owned();
        Some(Ok(Reference { subset, ..Reference::to_object(name) }))
    }

    fn read(&self, text: &str) -> GroupObject {
        let object: PodGroup = match serde_json::from_str(text) {
            Ok(object) => object,
            Err(error) => return GroupObject::unreadable(text, &error),
        };
        let mut read = GroupObject {
            groups: parse(&object.spec).map(|group| vec![(String::new(), group)]),
            ignored_fields: ignored_fields(&object),
            current_status: current_status(&object.status),
            ..GroupObject::with_metadata(&object.metadata)
        };
        read.refuse_min_resources(&object.metadata);
        read.apply_disruption_mode(&object.metadata);
        read.apply_later_pods(&object.metadata);
        read
    }

    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch> {
        let status = new_status(status.instances.first()?, &object.current_status);
        let changed = text_of(&status) != object.current_status.text;
        changed.then(|| StatusPatch::OfObject(object.merge_patch(&status).body().clone()))
    }
}

fn parse(spec: &PodGroupSpec) -> Result<ParsedGroup, GroupError> {
    let path = FieldPath::Root("spec");
    if !spec.queue.is_empty() && spec.queue != DEFAULT_QUEUE {
        let error =
            path.child("queue").invalid(&spec.queue, "is not supported yet: there are no queues but \"default\"");
        return Err(GroupError::unsupported_because(&error));
    }
    network_topology(&spec.network_topology, &path.child("networkTopology"))?;
    if let Some(first) = spec.sub_group_policy.first() {
        return Err(GroupError::unsupported("spec.subGroupPolicy[0]", first));
    }
    // Volcano's own controllers also write quota names into the list. The plain resources already contain them.
    let is_quota = |name: &str| ["count/", "requests.", "limits."].iter().any(|start| name.starts_with(start));
    let resources = spec.min_resources.iter().filter(|(name, _)| !is_quota(name));
    let resources = resources.map(|(name, amount)| (name.clone(), amount.clone())).collect();
    let least = min_resources(&resources, &path.child("minResources"))?;
    let class = Some(spec.priority_class_name.clone()).filter(|name| !name.is_empty());
    Ok(ParsedGroup {
        priority: PriorityField {
            class,
            number: None,
            number_by: NumberBy::User,
            without_class: WithoutClass::LowestMember,
        },
        min_resources: list_in_base_units(&least, &path.child("minResources"))?,
        open: true,
        ranked_by_object: true,
        ..ParsedGroup::with_policy(policy(spec, &path)?, WithoutClass::LowestMember)
    })
}

/// The policy that follows from the minimums. As in Volcano, those of tasks count only if their sum does not exceed the
/// total minimum.
fn policy(spec: &PodGroupSpec, path: &FieldPath<'_>) -> Result<Policy, GroupError> {
    let minimum = match &spec.min_member {
        Value::Null => 0,
        zero if zero.as_i64() == Some(0) => 0,
        written => count(written, &path.child("minMember"))?.unsigned_abs(),
    };
    let tasks = path.child("minTaskMember");
    let mut subsets = Vec::new();
    for (name, written) in &spec.min_task_member {
        if written.as_i64() != Some(0) {
            let min_member = count(written, &tasks.key(name))?.unsigned_abs();
            subsets.push(Subset { name: name.clone(), min_member });
        }
    }
    let of_tasks: u64 = subsets.iter().map(|subset| u64::from(subset.min_member)).sum();
    if minimum == 0 {
        return Ok(Policy::Basic { desired_count: None });
    }
    if subsets.is_empty() || u64::from(minimum) < of_tasks {
        return Ok(Policy::Gang { min_count: minimum });
    }
    if u64::from(minimum) > of_tasks {
        let reason = format!("is not supported yet: more than the sum of spec.minTaskMember, which is {of_tasks}");
        let error = path.child("minMember").invalid(&minimum, reason);
        return Err(GroupError::unsupported_because(&error));
    }
    if subsets.len() >= MAX_SUBSETS {
        let most = MAX_SUBSETS - 1;
        let error = tasks.invalid(&subsets.len(), format!("is not supported yet: there may be at most {most} tasks"));
        return Err(GroupError::unsupported_because(&error));
    }
    // Pods of other tasks, or of none, are scheduled as they fit.
    subsets.push(Subset { name: String::new(), min_member: 0 });
    Ok(Policy::Subsets(subsets))
}

/// Refuses a hard limit of tiers: tiers are those of HyperNodes, which are not read. Without a tier a hard mode says
/// nothing, as in Volcano.
fn network_topology(topology: &Value, path: &FieldPath<'_>) -> Result<(), GroupError> {
    if !matches!(topology["mode"].as_str(), None | Some("" | "hard" | "soft")) {
        return Err(path.child("mode").invalid(&topology["mode"], "must be hard or soft").into());
    }
    let tier = ["highestTierAllowed", "highestTierName"].into_iter().find(|field| !topology[*field].is_null());
    match tier.filter(|_| !is_soft(topology)) {
        None => Ok(()),
        Some(field) => {
            let reason = "is not supported: HyperNodes are not read. A PodGroup of muster.dev can name node labels";
            Err(GroupError::unsupported_because(&path.child(field).invalid(&topology[field], reason)))
        }
    }
}

fn is_soft(topology: &Value) -> bool {
    topology["mode"] == "soft"
}

/// Fields that are ignored: the group is scheduled nevertheless, and an event reports them.
fn ignored_fields(object: &PodGroup) -> Vec<String> {
    let annotations = object.metadata.annotations.as_ref();
    let waiting_time = annotations.and_then(|all| all.get(WAITING_TIME_ANNOTATION)).map(|time| {
        let path = FieldPath::Root("metadata.annotations");
        path.key(WAITING_TIME_ANNOTATION).invalid(time, "is ignored: the group is queued by priority and age")
    });
    // With a hard limit the group is refused.
    let topology = Some(&object.spec.network_topology).filter(|topology| !topology.is_null()).map(|topology| {
        FieldPath::Root("spec.networkTopology").invalid(topology, "is ignored: nodes are chosen without it")
    });
    waiting_time.into_iter().chain(topology).map(|error| error.to_string()).collect()
}

fn current_status(status: &PodGroupStatus) -> CurrentStatus {
    let ours = status.conditions.iter().filter_map(|one| {
        let kind = one.kind.strip_prefix(NATIVE_PREFIX)?.to_owned();
        Some(Condition {
            kind,
            status: one.status.clone(),
            reason: one.reason.clone(),
            message: one.message.clone(),
            last_transition_time: one.last_transition_time.clone(),
            ..Condition::default()
        })
    });
    let instance = CurrentInstance { conditions: ours.collect() };
    // Conditions of Volcano's own scheduler have a transition ID, and stay.
    let others = status.conditions.iter().filter(|one| !is_ours(&one.kind) || !one.transition_id.is_empty());
    CurrentStatus {
        instances: [((String::new(), String::new()), instance)].into(),
        phase: status.phase.clone(),
        others: others.map(|one| serde_json::json!(one)).collect(),
        text: text_of(status),
        ..CurrentStatus::default()
    }
}

fn is_ours(kind: &str) -> bool {
    kind.starts_with(NATIVE_PREFIX) || OWN_TYPES.contains(&kind)
}

fn new_status(instance: &InstanceStatus, shown: &CurrentStatus) -> PodGroupStatus {
    let scheduled = Condition::find(&instance.conditions, POD_GROUP_SCHEDULED);
    let exists = |one: &PodGroupCondition| shown.others.iter().any(|other| other["type"] == one.kind.as_str());
    let own = scheduled.map(volcano_condition).filter(|own| !exists(own));
    let ours = instance.conditions.iter().map(|one| PodGroupCondition {
        kind: format!("{NATIVE_PREFIX}{}", one.kind),
        status: one.status.clone(),
        transition_id: String::new(),
        last_transition_time: one.last_transition_time.clone(),
        reason: one.reason.clone(),
        message: one.message.clone(),
    });
    // A merge patch replaces the whole list, so the conditions of other writers are repeated.
    let others = shown.others.iter().filter_map(|one| serde_json::from_value(one.clone()).ok());
    let counts = &instance.counts;
    PodGroupStatus {
        phase: phase(instance, &shown.phase).to_owned(),
        conditions: ours.chain(own).chain(others).collect(),
        running: counts.running,
        succeeded: counts.succeeded,
        failed: counts.failed,
    }
}

/// The condition that Volcano's own scheduler would write.
fn volcano_condition(ours: &Condition) -> PodGroupCondition {
    let (kind, reason) = match ours.reason.as_str() {
        SCHEDULED => ("Scheduled", "tasks in gang are ready to be scheduled"),
        WAITING_FOR_MEMBERS => ("Unschedulable", "NotEnoughTasks"),
        // More capacity would not help.
        reason @ (INVALID | UNSUPPORTED | WAITING_FOR_VOLUMES) => ("Unschedulable", reason),
        _ => ("Unschedulable", "NotEnoughResources"),
    };
    PodGroupCondition {
        kind: kind.to_owned(),
        status: "True".to_owned(),
        transition_id: String::new(),
        last_transition_time: ours.last_transition_time.clone(),
        reason: reason.to_owned(),
        message: if ours.is_true() { String::new() } else { ours.message.clone() },
    }
}

/// The phase of the group. A finished group stays finished when its pods are cleaned up.
fn phase<'a>(instance: &InstanceStatus, shown: &'a str) -> &'a str {
    let counts = &instance.counts;
    let has_place = counts.scheduled + counts.failed;
    let has_ended = counts.succeeded + counts.failed;
    let scheduled = Condition::find(&instance.conditions, POD_GROUP_SCHEDULED).is_none_or(Condition::is_true);
    match () {
        () if counts.total == 0 && shown == COMPLETED => COMPLETED,
        () if instance.policy.is_empty() => PENDING,
        () if counts.running > 0 && !scheduled => UNKNOWN,
        () if has_place == 0 || has_place < i64::from(instance.minimum) => IN_QUEUE,
        () if has_place == has_ended => COMPLETED,
        () => RUNNING,
    }
}
