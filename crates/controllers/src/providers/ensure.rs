//! Creates, patches or recreates the group object of a replica, for any kind of group.
//!
//! A recreated leader has its old name and revision, and so the same group name. The old group records that it has
//! started, so the new leader needs a new object: the old one is deleted explicitly, whether or not the garbage
//! collector has removed it.

use std::time::Duration;

use kube::core::{ApiResource, DynamicObject};
use muster_api::keys::annotations::{DISRUPTION_MODE, LATER_PODS, MIN_RESOURCES, PREEMPTION_COST};
use muster_api::later_pods::LaterPods;
use muster_api::owners::leader_worker_set::labels;
use serde_json::{Value, json};

use super::ReplicaGang;
use crate::reconcile::{CONFLICT_RETRY, Plan, is_controlled_by, remove_protection};
use crate::write::{ObjectEvent, Target, Write};
use crate::{disruption, group_annotations};

/// How soon to retry while a group of the same name is being deleted.
const DELETION_RETRY: Duration = Duration::from_secs(1);

/// The desired group object of a provider.
pub(super) struct DesiredGroup {
    pub(super) resource: ApiResource,
    pub(super) name: String,
    pub(super) annotations: Value,
    pub(super) spec: Value,
    /// The group that its pods join, as the object names it.
    pub(super) later_group: String,
    /// The JSON pointer to the minimum inside the spec, if it is mutable.
    pub(super) minimum: Option<&'static str>,
}

/// The writes that bring the group to the desired state.
pub(super) fn ensure(gang: &ReplicaGang, group: &DesiredGroup, current: Option<&DynamicObject>) -> Plan {
    let Some(current) = current else {
        return Plan::of(vec![Write::Create { resource: group.resource.clone(), object: object(gang, group) }]);
    };
    let target = Target::of(&group.resource, current);
    if current.metadata.labels.as_ref().and_then(|of| of.get(labels::NAME)) == Some(&gang.replica.set) {
        if current.metadata.deletion_timestamp.is_some() {
            return Plan {
                writes: remove_protection(&target, current).into_iter().collect(),
                requeue_after: Some(DELETION_RETRY),
            };
        }
        if !is_controlled_by(&current.metadata, &gang.leader.uid) {
            return Plan::of(vec![Write::Delete { target }]);
        }
        let correction = correction(gang, group, current);
        return Plan::of(correction.map(|body| Write::Patch { target, body }).into_iter().collect());
    }
    let note = format!(
        "It has the name of the group for replica {} of LeaderWorkerSet {}, but does not belong to that set: the pods are scheduled according to it until it is deleted.",
        gang.replica.index, gang.replica.set
    );
    let event = ObjectEvent { regarding: target, warning: true, reason: "PodGroupConflict", note };
    Plan { writes: vec![Write::Event(event)], requeue_after: Some(CONFLICT_RETRY) }
}

fn object(gang: &ReplicaGang, group: &DesiredGroup) -> Value {
    let replica = &gang.replica;
    let mut annotations = group.annotations.clone();
    if let Some(mode) = disruption::annotation(&group.spec, gang.disruption_mode) {
        annotations[DISRUPTION_MODE] = json!(mode);
    }
    if let Some(cost) = cost(gang) {
        annotations[PREEMPTION_COST] = json!(cost);
    }
    if let Some(later) = later_pods(gang, group) {
        annotations[LATER_PODS] = json!(later);
    }
    json!({
        "apiVersion": group.resource.api_version, "kind": group.resource.kind,
        "metadata": {
            "name": group.name, "namespace": gang.namespace,
            "labels": {
                labels::NAME: replica.set, labels::GROUP_INDEX: replica.index, labels::REVISION: replica.revision,
            },
            "annotations": annotations,
            "ownerReferences": [gang.leader],
        },
        "spec": group.spec,
    })
}

/// The patch that the group needs. A minimum is only raised: existing workers stay members when their leader is briefly
/// not ready.
fn correction(gang: &ReplicaGang, group: &DesiredGroup, current: &DynamicObject) -> Option<Value> {
    let (desired, current_spec) = (&group.spec, &current.data["spec"]);
    let mut patch = json!({});
    if let Some(minimum) = group.minimum {
        let number = |spec: &Value| spec.pointer(minimum).and_then(Value::as_i64).unwrap_or(0);
        if number(desired) > number(current_spec) {
            let at = minimum
                .split('/')
                .fold(&mut patch, |at, step| if step.is_empty() { &mut at["spec"] } else { &mut at[step] });
            *at = json!(number(desired));
        }
    }
    if desired["minResources"] != current_spec["minResources"] {
        patch["spec"]["minResources"] = replacement(&current_spec["minResources"], &desired["minResources"]);
    }
    let annotations = current.metadata.annotations.as_ref();
    let mode = disruption::annotation(current_spec, gang.disruption_mode);
    group_annotations::correct(&mut patch, annotations, MIN_RESOURCES, group.annotations[MIN_RESOURCES].as_str());
    group_annotations::correct(&mut patch, annotations, LATER_PODS, later_pods(gang, group).as_deref());
    group_annotations::correct(&mut patch, annotations, DISRUPTION_MODE, mode.as_deref());
    group_annotations::correct(&mut patch, annotations, PREEMPTION_COST, cost(gang).as_deref());
    (patch != json!({})).then_some(patch)
}

/// The annotation with the cost of evicting the replica.
fn cost(gang: &ReplicaGang) -> Option<String> {
    gang.preemption_cost.map(|cost| cost.to_string())
}

/// The workers that are created only after their leader runs, as annotation value.
fn later_pods(gang: &ReplicaGang, group: &DesiredGroup) -> Option<String> {
    let pod = gang.later_worker.clone()?;
    let part = LaterPods { group: group.later_group.clone(), count: gang.size, pod };
    Some(json!([[part]]).to_string())
}

/// A merge patch that removes old entries which the new value lacks.
fn replacement(old: &Value, new: &Value) -> Value {
    let mut patch = new.clone();
    for key in old.as_object().into_iter().flat_map(serde_json::Map::keys).filter(|key| new.get(key).is_none()) {
        patch[key] = Value::Null;
    }
    patch
}
