//! The objects that a kubelet writes for its node: the Node, its status and its Lease.
//!
//! Must not depend on when they are sent.

use jiff::Timestamp;
use muster_api::toleration::Effect;
use muster_clock as clock;
use muster_playground_client::conditions;
use muster_playground_client::untyped::UntypedNode;
use serde_json::{Value, json};

use crate::shape::NodeShape;

/// How long a lease is valid without renewal.
const LEASE_SECONDS: i64 = 40;
/// Pressure conditions, with the reason and message of a healthy node.
const PRESSURES: [(&str, &str, &str); 3] = [
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
];

/// The address of the node with this index.
pub(super) fn host_address(index: usize) -> String {
    format!("172.16.{}.{}", (index >> 8) & 255, index & 255)
}

/// The address of a pod on a node.
pub(super) fn pod_address(index: usize, pod: u64) -> String {
    format!("10.{}.{}.{}", (index >> 8) & 255, index & 255, pod % 254 + 1)
}

/// A new node.
pub(super) fn node(shape: &NodeShape, index: usize, now: Timestamp) -> Value {
    let taints = shape.taints.iter().map(|taint| {
        let effect = match taint.effect {
            Effect::NoSchedule => "NoSchedule",
            Effect::PreferNoSchedule => "PreferNoSchedule",
            Effect::NoExecute => "NoExecute",
        };
        json!({"key": taint.key, "value": taint.value, "effect": effect})
    });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": shape.name, "labels": shape.labels},
        "spec": {"taints": taints.collect::<Vec<_>>(), "providerID": format!("playground://{}", shape.name)},
        "status": status(shape, index, &Value::Null, now),
    })
}

/// The patch of a node that exists already.
pub(super) fn labels_patch(shape: &NodeShape) -> Value {
    json!({"metadata": {"labels": shape.labels}})
}

/// The status patch of a node, for the resourceVersion that was read.
pub(super) fn status_patch(shape: &NodeShape, index: usize, node: &UntypedNode, now: Timestamp) -> Value {
    json!({
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "status": status(shape, index, &node.status["conditions"], now),
    })
}

fn status(shape: &NodeShape, index: usize, conditions: &Value, now: Timestamp) -> Value {
    json!({
        "capacity": shape.capacity,
        "allocatable": shape.allocatable,
        "conditions": with_own_conditions(conditions, now),
        "addresses": [
            {"type": "InternalIP", "address": host_address(index)}, {"type": "Hostname", "address": shape.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": shape.name, "systemUUID": shape.name, "bootID": shape.name,
            "kernelVersion": "playground", "osImage": "Muster playground", "containerRuntimeVersion": "playground://1",
            "kubeletVersion": "v1.37.1", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
        },
    })
}

/// The conditions of a healthy node; conditions of other writers are kept.
fn with_own_conditions(present: &Value, now: Timestamp) -> Value {
    let mut conditions = present.as_array().cloned().unwrap_or_default();
    let pressures = PRESSURES.map(|(kind, reason, message)| (kind, "False", reason, message));
    let ready = [("Ready", "True", "KubeletReady", "kubelet is posting ready status")];
    for (kind, status, reason, message) in pressures.into_iter().chain(ready) {
        let condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": clock::seconds(now),
        });
        conditions::set(&mut conditions, condition, now);
    }
    Value::Array(conditions)
}

/// The patch that renews a lease.
pub(super) fn lease_renewal_patch(now: Timestamp) -> Value {
    json!({"spec": {"renewTime": clock::micros(now)}})
}

/// A new lease, owned by its node.
pub(super) fn lease(node: &UntypedNode, now: Timestamp) -> Value {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid},
        ]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": clock::micros(now)},
    })
}
