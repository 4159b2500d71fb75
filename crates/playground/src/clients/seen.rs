//! Pods and nodes as a watch shows them: metadata read, spec and status as they stand.
//!
//! Most events need only a few fields, so that nothing else is read until it matters; and what is not read is not lost.

use k8s_openapi::NamespaceResourceScope;
use muster_api::wire::object::{Kind, Object};
use serde_json::Value;

/// A pod.
pub(crate) type SeenPod = Object<SeenPodKind>;

/// The kind `Pod`, unread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenPodKind;

impl Kind for SeenPodKind {
    type Spec = Value;
    type Status = Value;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

/// Its identity: another pod of the same name has another.
pub(crate) fn uid(pod: &SeenPod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// The node it is bound to.
pub(crate) fn node_name(pod: &SeenPod) -> &str {
    pod.spec["nodeName"].as_str().unwrap_or_default()
}

/// `Pending`, `Running` and so on.
pub(crate) fn phase(pod: &SeenPod) -> &str {
    pod.status["phase"].as_str().unwrap_or("Pending")
}

/// Whether it has ended and will not run again.
pub(crate) fn is_finished(pod: &SeenPod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the condition says yes.
pub(crate) fn is_true(pod: &SeenPod, condition: &str) -> bool {
    let conditions = pod.status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == condition && one["status"] == "True")
}

/// Whether `new` is not older than `old`. Revisions of one resource can be compared as numbers.
pub(crate) fn is_as_new(new: &SeenPod, old: &SeenPod) -> bool {
    let revision = |pod: &SeenPod| pod.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    uid(new) != uid(old) || revision(new).zip(revision(old)).is_none_or(|(new, old)| new >= old)
}

/// A node, unread.
pub(crate) type SeenNode = Object<SeenNodeKind>;

/// The kind `Node`, unread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenNodeKind;

impl Kind for SeenNodeKind {
    type Spec = Value;
    type Status = Value;
    type Scope = k8s_openapi::ClusterResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";
}
