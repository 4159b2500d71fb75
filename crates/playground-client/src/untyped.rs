//! Pods and nodes with typed metadata and untyped spec and status.
//!
//! Most events need only a few fields; the rest is neither parsed nor lost.

use k8s_openapi::NamespaceResourceScope;
use muster_api::wire::object::{Kind, Object};
use serde_json::{Value, json};

/// A pod.
pub type UntypedPod = Object<UntypedPodKind>;

/// The kind `Pod`, untyped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntypedPodKind;

impl Kind for UntypedPodKind {
    type Spec = Value;
    type Status = Value;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

/// The fields of a pod's spec that kubelets use.
const SPEC_FIELDS: [&str; 12] = [
    "nodeName",
    "restartPolicy",
    "activeDeadlineSeconds",
    "containers",
    "initContainers",
    "resources",
    "overhead",
    "nodeSelector",
    "affinity",
    "tolerations",
    "hostNetwork",
    "volumes",
];
/// The fields of a container that kubelets use.
const CONTAINER_FIELDS: [&str; 7] = ["name", "image", "command", "args", "resources", "ports", "restartPolicy"];

/// Drops unused fields, which are most of the memory when there are many pods.
pub fn strip_unused_fields(pod: &mut UntypedPod) {
    let keep = |value: &mut Value, fields: &[&str]| {
        if let Some(map) = value.as_object_mut() {
            map.retain(|key, _| fields.contains(&key.as_str()));
        }
    };
    keep(&mut pod.spec, &SPEC_FIELDS);
    for list in ["containers", "initContainers"] {
        let containers = pod.spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(|container| keep(container, &CONTAINER_FIELDS));
    }
    if let Some(volumes) = pod.spec.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| volume["persistentVolumeClaim"].is_object() || volume["ephemeral"].is_object());
        for volume in volumes.iter_mut().filter(|volume| volume["ephemeral"].is_object()) {
            volume["ephemeral"] = json!({});
        }
    }
}

/// The UID: it differs for another pod of the same name.
pub fn uid(pod: &UntypedPod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// The node it is bound to.
pub fn node_name(pod: &UntypedPod) -> &str {
    pod.spec["nodeName"].as_str().unwrap_or_default()
}

/// `Pending`, `Running` and so on.
pub fn phase(pod: &UntypedPod) -> &str {
    pod.status["phase"].as_str().unwrap_or("Pending")
}

/// Whether it has ended and will not run again.
pub fn is_finished(pod: &UntypedPod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the condition is `True`.
pub fn is_true(pod: &UntypedPod, condition: &str) -> bool {
    let conditions = pod.status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == condition && one["status"] == "True")
}

/// Whether `new` is not older than `old`. Resource versions of one resource can be compared as numbers.
pub fn is_up_to_date(new: &UntypedPod, old: &UntypedPod) -> bool {
    let revision =
        |pod: &UntypedPod| pod.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    uid(new) != uid(old) || revision(new).zip(revision(old)).is_none_or(|(new, old)| new >= old)
}

/// A node, untyped.
pub type UntypedNode = Object<UntypedNodeKind>;

/// The kind `Node`, untyped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntypedNodeKind;

impl Kind for UntypedNodeKind {
    type Spec = Value;
    type Status = Value;
    type Scope = k8s_openapi::ClusterResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";
}
