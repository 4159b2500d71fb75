//! The group object of a replica, whoever's kind it is: made, corrected, or made anew for a new leader.
//!
//! A leader that is made again has its old name and revision, and so the same group's name. The old group remembers
//! that it has started, so its successor is a new object: the old one is deleted for certain, whether or not the garbage
//! collector has come by.

use std::time::Duration;

use kube::core::{ApiResource, DynamicObject};
use muster_api::keys::annotations::MIN_RESOURCES;
use muster_api::makers::leader_worker_set::labels;
use serde_json::{Value, json};

use super::ReplicaGang;
use crate::plans::{IN_THE_WAY, Plan, is_controlled_by, let_go};
use crate::write::{Target, Word, Write};

/// A group of the same name is on its way out.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a provider's group looks like.
pub(super) struct Shape {
    pub(super) resource: ApiResource,
    pub(super) name: String,
    pub(super) annotations: Value,
    pub(super) spec: Value,
    /// Where the minimum stands in the spec, if it may be changed.
    pub(super) minimum: Option<&'static str>,
}

/// What has to be written so that the group is as it should be.
pub(super) fn ensure(gang: &ReplicaGang, shape: &Shape, current: Option<&DynamicObject>) -> Plan {
    let Some(current) = current else {
        return Plan::of(vec![Write::Create { resource: shape.resource.clone(), object: object(gang, shape) }]);
    };
    let target = Target::of(&shape.resource, current);
    if current.metadata.labels.as_ref().and_then(|of| of.get(labels::NAME)) == Some(&gang.replica.set) {
        if current.metadata.deletion_timestamp.is_some() {
            return Plan { writes: let_go(&target, current).into_iter().collect(), again: Some(LOOK_AGAIN) };
        }
        if !is_controlled_by(&current.metadata, &gang.leader.uid) {
            return Plan::of(vec![Write::Delete { target }]);
        }
        return Plan::of(correction(shape, current).map(|body| Write::Patch { target, body }).into_iter().collect());
    }
    let note = format!(
        "It has the name of the group for replica {} of LeaderWorkerSet {}, and is not of that set: the pods are placed as it says until it is gone.",
        gang.replica.index, gang.replica.set
    );
    let word = Word { about: target, warning: true, reason: "PodGroupConflict", note };
    Plan { writes: vec![Write::Tell(word)], again: Some(IN_THE_WAY) }
}

fn object(gang: &ReplicaGang, shape: &Shape) -> Value {
    let replica = &gang.replica;
    json!({
        "apiVersion": shape.resource.api_version, "kind": shape.resource.kind,
        "metadata": {
            "name": shape.name, "namespace": gang.namespace,
            "labels": {
                labels::NAME: replica.set, labels::GROUP_INDEX: replica.index, labels::REVISION: replica.revision,
            },
            "annotations": shape.annotations,
            "ownerReferences": [gang.leader],
        },
        "spec": shape.spec,
    })
}

/// What of the group is to be changed. A minimum is only ever raised: workers that exist are not sent away because their
/// leader is not ready for a moment.
fn correction(shape: &Shape, current: &DynamicObject) -> Option<Value> {
    let (wanted, there) = (&shape.spec, &current.data["spec"]);
    let mut patch = json!({});
    if let Some(minimum) = shape.minimum {
        let number = |spec: &Value| spec.pointer(minimum).and_then(Value::as_i64).unwrap_or(0);
        if number(wanted) > number(there) {
            let at = minimum
                .split('/')
                .fold(&mut patch, |at, step| if step.is_empty() { &mut at["spec"] } else { &mut at[step] });
            *at = json!(number(wanted));
        }
    }
    if wanted["minResources"] != there["minResources"] {
        patch["spec"]["minResources"] = replaced(&there["minResources"], &wanted["minResources"]);
    }
    let annotation = current.metadata.annotations.as_ref().and_then(|all| all.get(MIN_RESOURCES));
    let least = &shape.annotations[MIN_RESOURCES];
    if annotation.map(String::as_str) != least.as_str() {
        patch["metadata"]["annotations"][MIN_RESOURCES] = least.clone();
    }
    (patch != json!({})).then_some(patch)
}

/// A merge patch that leaves nothing of the old entries.
fn replaced(old: &Value, new: &Value) -> Value {
    let mut patch = new.clone();
    for key in old.as_object().into_iter().flat_map(serde_json::Map::keys).filter(|key| new.get(key).is_none()) {
        patch[key] = Value::Null;
    }
    patch
}
