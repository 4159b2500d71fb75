//! A node as written in the object: resources, conditions, images and taints.
//!
//! Unlisted fields are ignored; `null` is the same as unset. Must not depend on pods.

use k8s_openapi::ClusterResourceScope;
use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};
use crate::resources::WrittenResources;
use crate::toleration::WrittenTaint;
use crate::wire::object::{Kind, Object};

/// A node.
pub type Node = Object<NodeKind>;

/// The kind `Node`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeKind;

impl Kind for NodeKind {
    type Spec = NodeSpec;
    type Status = NodeStatus;
    type Scope = ClusterResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";
}

/// The spec of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Whether the node is cordoned.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub unschedulable: bool,
    /// The taints.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub taints: Vec<WrittenTaint>,
}

/// The status of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// The resources that pods may use.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub allocatable: WrittenResources,
    /// The total resources.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub capacity: WrittenResources,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<NodeCondition>,
    /// Features that pods may require.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub declared_features: Vec<String>,
    /// The images on the node.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub images: Vec<NodeImage>,
}

/// A condition of a node. Heartbeat times are skipped: they change often and are irrelevant here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    /// The type.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "null_is_default")]
    pub status: String,
}

/// An image on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeImage {
    /// The names.
    #[serde(deserialize_with = "null_is_default")]
    pub names: Vec<String>,
    /// The size.
    #[serde(deserialize_with = "null_is_default")]
    pub size_bytes: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn node_keeps_relevant_fields() {
        let json = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "labels": {"zone": "a"}},
            "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": true,
                     "taints": [{"key": "gpu", "value": "", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "3900m"}, "capacity": {"cpu": "4"},
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
                "declaredFeatures": ["SomeFeature"], "images": [{"names": ["a:1"], "sizeBytes": 123}],
                "nodeInfo": {"kubeletVersion": "v1.37.1"}, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            },
        });
        let node: Node = serde_json::from_value(json.clone()).unwrap();
        let mut expected = json;
        for (part, field) in [("spec", "podCIDR"), ("status", "nodeInfo"), ("status", "addresses")] {
            expected[part].as_object_mut().unwrap().remove(field);
        }
        expected["status"]["conditions"][0].as_object_mut().unwrap().remove("lastHeartbeatTime");
        expected["spec"]["taints"][0].as_object_mut().unwrap().remove("value");
        assert_eq!(serde_json::to_value(&node).unwrap(), expected);
    }
}
