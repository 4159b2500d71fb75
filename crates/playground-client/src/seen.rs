//! Pods and nodes as a watch shows them: metadata read, spec and status as they stand.
//!
//! Most events need only a few fields, so that nothing else is read until it matters; and what is not read is not lost.

use k8s_openapi::NamespaceResourceScope;
use muster_api::wire::object::{Kind, Object};
use serde_json::Value;

/// A pod.
pub type SeenPod = Object<SeenPodKind>;

/// The kind `Pod`, unread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenPodKind;

impl Kind for SeenPodKind {
    type Spec = Value;
    type Status = Value;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

/// The fields of a pod's spec that kubelets look at.
const SPEC_FIELDS: [&str; 11] = [
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
];
/// The fields of a container that kubelets look at.
const CONTAINER_FIELDS: [&str; 7] = ["name", "image", "command", "args", "resources", "ports", "restartPolicy"];

/// Drops what nobody looks at; of many pods that is most of the memory.
pub fn slim(pod: &mut SeenPod) {
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
}

/// Its identity: another pod of the same name has another.
pub fn uid(pod: &SeenPod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// The node it is bound to.
pub fn node_name(pod: &SeenPod) -> &str {
    pod.spec["nodeName"].as_str().unwrap_or_default()
}

/// `Pending`, `Running` and so on.
pub fn phase(pod: &SeenPod) -> &str {
    pod.status["phase"].as_str().unwrap_or("Pending")
}

/// Whether it has ended and will not run again.
pub fn is_finished(pod: &SeenPod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the condition says yes.
pub fn is_true(pod: &SeenPod, condition: &str) -> bool {
    let conditions = pod.status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == condition && one["status"] == "True")
}

/// Whether `new` is not older than `old`. Revisions of one resource can be compared as numbers.
pub fn is_as_new(new: &SeenPod, old: &SeenPod) -> bool {
    let revision = |pod: &SeenPod| pod.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    uid(new) != uid(old) || revision(new).zip(revision(old)).is_none_or(|(new, old)| new >= old)
}

/// A node, unread.
pub type SeenNode = Object<SeenNodeKind>;

/// The kind `Node`, unread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenNodeKind;

impl Kind for SeenNodeKind {
    type Spec = Value;
    type Status = Value;
    type Scope = k8s_openapi::ClusterResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";
}
