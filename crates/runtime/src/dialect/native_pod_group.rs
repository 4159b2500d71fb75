//! Kubernetes' own PodGroup, `scheduling.k8s.io/v1beta1`: a pod names it in its spec, the object is the group.
//!
//! Its conditions are upstream's, and ours with a prefix. `PodGroupInitiallyScheduled` never goes back once it is true,
//! so what holds now stands in ours.

use kube::core::ApiResource;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::conditions::{NATIVE_PREFIX, POD_GROUP_INITIALLY_SCHEDULED, POD_GROUP_SCHEDULED};
use muster_api::keys::group_reasons::{
    INVALID, NEVER_FITS, NOT_FOUND_WITHIN_BUDGET, SCHEDULE_TIMEOUT, SCHEDULED, SCHEDULER_ERROR, UNSCHEDULABLE,
    UNSUPPORTED,
};
use muster_api::native::pod_group::PodGroupSpec;
use muster_api::native::{Gates, PodGroup, validate_pod_group};
use muster_api::wire::Pod;
use muster_api::wire::condition::Condition;
use muster_engine::model::group::{DisruptionMode, Policy, PreemptionPolicy};
use serde_json::json;

use super::condition::{Shown, ShownInstance, text_of};
use super::draft::{Draft, Flaw, FlawKind, GroupObject, Mismatch, PriorityField};
use super::status::ObjectStatus;
use super::{Dialect, Reference, StatusPatch};

/// `podgroups.scheduling.k8s.io` in v1beta1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativePodGroup;

impl Dialect for NativePodGroup {
    fn origin(&self) -> &'static str {
        "scheduling.k8s.io/PodGroup"
    }

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<PodGroup>(&())
    }

    fn reference(&self, pod: &Pod) -> Option<Result<Reference, InvalidField>> {
        let group = pod.spec.scheduling_group.as_ref()?;
        let Some(name) = group.pod_group_name.clone().filter(|name| !name.is_empty()) else {
            let path = FieldPath::Root("spec.schedulingGroup.podGroupName");
            return Some(Err(path.invalid(&group.pod_group_name, "must be set")));
        };
        let none = String::new;
        Some(Ok(Reference { object: name, group: none(), replica: none(), subset: none() }))
    }

    fn read(&self, text: &str) -> GroupObject {
        let object: PodGroup = match serde_json::from_str(text) {
            Ok(object) => object,
            Err(error) => return GroupObject::unreadable(text, &error),
        };
        let mut read = GroupObject {
            groups: draft(&object).map(|draft| vec![(String::new(), draft)]),
            shown: shown(&object.status.conditions),
            ..GroupObject::with_metadata(&object.metadata)
        };
        read.refuse_annotations(&object.metadata);
        read
    }

    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch> {
        let instance = status.instances.first()?;
        let conditions = with_upstream(&object.shown.conditions, &instance.conditions);
        // The server merges the list by type, so that conditions of others stay; times of updates are not upstream's.
        (text_of(&conditions) != object.shown.text).then(|| {
            let conditions: Vec<_> =
                conditions.iter().map(|one| Condition { last_update_time: None, ..one.clone() }).collect();
            StatusPatch::Strategic(json!({"metadata": {"uid": object.uid}, "status": {"conditions": conditions}}))
        })
    }
}

fn draft(object: &PodGroup) -> Result<Draft, Flaw> {
    let spec = &object.spec;
    refuse_unsupported(spec)?;
    // Every field that the server let through counts, whatever its gates are.
    let gates = Gates {
        topology_aware_workload_scheduling: true,
        dra_workload_resource_claims: true,
        pod_group_preemption_policy: true,
        composite_pod_group: true,
    };
    if let Some(error) = validate_pod_group(object, gates).first() {
        return Err(Flaw { kind: FlawKind::Invalid, message: error.to_string() });
    }
    let policy = match &spec.scheduling_policy.gang {
        // The server takes no count below 1.
        Some(gang) => Policy::Gang { min_count: gang.min_count.unsigned_abs() },
        None => Policy::Basic { desired_count: None },
    };
    let all = spec.disruption_mode.as_ref().is_some_and(|mode| mode.all.is_some());
    Ok(Draft {
        policy,
        priority: PriorityField {
            class: Some(spec.priority_class_name.clone()).filter(|name| !name.is_empty()),
            number: spec.priority,
            mismatch: Mismatch::ClassCounts,
            shared_without_class: false,
        },
        preemption_policy: spec.preemption_policy.as_deref().map(|policy| match policy {
            "Never" => PreemptionPolicy::Never,
            _ => PreemptionPolicy::LowerPriority,
        }),
        disruption_mode: if all { DisruptionMode::Group } else { DisruptionMode::Pod },
        schedule_timeout_ms: None,
        topology: Vec::new(),
        min_resources: [].into(),
    })
}

fn refuse_unsupported(spec: &PodGroupSpec) -> Result<(), Flaw> {
    if let Some(parent) = &spec.parent_composite_pod_group_name {
        return Err(Flaw::unsupported("spec.parentCompositePodGroupName", parent));
    }
    if let Some(first) = spec.scheduling_constraints.as_ref().and_then(|constraints| constraints.topology.first()) {
        return Err(Flaw::unsupported("spec.schedulingConstraints.topology[0].key", &first.key));
    }
    if let Some(claim) = spec.resource_claims.first() {
        return Err(Flaw::unsupported("spec.resourceClaims[0].name", &claim.name));
    }
    Ok(())
}

fn shown(conditions: &[Condition]) -> Shown {
    let ours = conditions.iter().filter_map(|one| {
        let kind = one.kind.strip_prefix(NATIVE_PREFIX)?.to_owned();
        Some(Condition { kind, ..one.clone() })
    });
    let instance = ShownInstance { conditions: ours.collect() };
    Shown {
        observed_generation: 0,
        conditions: conditions.to_vec(),
        instances: [((String::new(), String::new()), instance)].into(),
        is_cut_off: false,
        text: text_of(&written_by_us(conditions)),
    }
}

fn written_by_us(conditions: &[Condition]) -> Vec<Condition> {
    let ours = conditions
        .iter()
        .filter(|one| one.kind.starts_with(NATIVE_PREFIX) || one.kind == POD_GROUP_INITIALLY_SCHEDULED);
    let mut list: Vec<Condition> = ours.cloned().collect();
    list.sort_by(|one, other| one.kind.cmp(&other.kind));
    list
}

/// Our conditions under their prefix, and upstream's beside them.
fn with_upstream(shown: &[Condition], ours: &[Condition]) -> Vec<Condition> {
    let prefixed = |one: &Condition| Condition {
        kind: format!("{NATIVE_PREFIX}{}", one.kind),
        last_update_time: None,
        ..one.clone()
    };
    let mut list: Vec<Condition> = ours.iter().map(prefixed).collect();
    let old = Condition::find(shown, POD_GROUP_INITIALLY_SCHEDULED);
    let new = Condition::find(ours, POD_GROUP_SCHEDULED).and_then(upstream);
    let kept = old.filter(|old| old.is_true() || new.is_none()).cloned();
    list.extend(kept.or_else(|| new.map(|new| since(old, new))));
    written_by_us(&list)
}

/// The same status keeps its time.
fn since(old: Option<&Condition>, new: Condition) -> Condition {
    let time = old.filter(|old| old.status == new.status).and_then(|old| old.last_transition_time.clone());
    Condition { last_transition_time: time.or_else(|| new.last_transition_time.clone()), ..new }
}

/// What upstream's condition says of this; nothing while the group is not tried.
fn upstream(ours: &Condition) -> Option<Condition> {
    let (status, reason) = match ours.reason.as_str() {
        SCHEDULED => ("True", SCHEDULED),
        UNSCHEDULABLE | NOT_FOUND_WITHIN_BUDGET | NEVER_FITS | SCHEDULE_TIMEOUT => ("False", UNSCHEDULABLE),
        INVALID | UNSUPPORTED | SCHEDULER_ERROR => ("False", SCHEDULER_ERROR),
        _ => return None,
    };
    Some(Condition {
        kind: POD_GROUP_INITIALLY_SCHEDULED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: if status == "True" { String::new() } else { ours.message.clone() },
        last_update_time: None,
        ..ours.clone()
    })
}
