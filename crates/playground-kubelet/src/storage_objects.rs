//! The objects that a kubelet writes about storage: the CSI drivers of its node, and the pools that it reaches.
//!
//! Must not depend on when they are sent.

use muster_playground_client::untyped::UntypedNode;
use serde_json::{Value, json};

use crate::shape::{NodeShape, PoolCapacity};

/// The namespace of pools.
pub(super) const POOLS: &str = "kube-system";
/// The annotation by which the fake provisioner keeps a pool current.
const POOL_SIZE: &str = "playground.muster.dev/pool-size";
/// Labels by which volumes may be tied to a node.
const TOPOLOGY_KEYS: [&str; 2] = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"];

/// The drivers of a node, with how many volumes of each it takes; owned by the node. Nothing if there are none.
pub(super) fn csi_node(shape: &NodeShape, node: &UntypedNode) -> Option<Value> {
    let keys: Vec<&str> = TOPOLOGY_KEYS.into_iter().filter(|key| shape.labels.contains_key(*key)).collect();
    let drivers = shape.drivers.iter().map(|driver| {
        let allocatable = driver.attach_limit.map(|count| json!({"count": count}));
        json!({"name": driver.name, "nodeID": shape.name, "topologyKeys": keys, "allocatable": allocatable})
    });
    let drivers: Vec<Value> = drivers.collect();
    (!drivers.is_empty()).then(|| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": {"name": shape.name, "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": shape.name, "uid": node.metadata.uid},
            ]},
            "spec": {"drivers": drivers},
        })
    })
}

/// The pools that a node reaches. Nodes that share a pool write the same object.
pub(super) fn pools(shape: &NodeShape) -> impl Iterator<Item = Value> {
    shape.capacities.iter().filter_map(|pool| Some(storage_capacity(pool, shape.labels.get(&pool.per)?)))
}

fn storage_capacity(pool: &PoolCapacity, value: &str) -> Value {
    let valid = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    let name: String = format!("{}-{value}", pool.storage_class).to_lowercase().chars().map(valid).collect();
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": POOLS, "annotations": {POOL_SIZE: pool.capacity}},
        "storageClassName": pool.storage_class, "nodeTopology": {"matchLabels": {&pool.per: value}},
        "capacity": pool.capacity, "maximumVolumeSize": pool.maximum_volume_size,
    })
}
