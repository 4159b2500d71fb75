//! CSI drivers, and which of them a node has (CSINode), as the engine observes them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_engine::model::storage::{DriverSpec, NodeDriversSpec, StorageObservation};
use serde::Deserialize;

/// The drivers of a node as written.
#[derive(Deserialize)]
pub(super) struct WrittenNode {
    spec: Option<NodeSpec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    drivers: Option<Vec<OnNode>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OnNode {
    name: Option<String>,
    allocatable: Option<Allocatable>,
}

#[derive(Deserialize)]
struct Allocatable {
    count: Option<i64>,
}

/// A driver as written.
#[derive(Deserialize)]
pub(super) struct WrittenDriver {
    spec: Option<Spec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    storage_capacity: Option<bool>,
    prevent_pod_scheduling_if_missing: Option<bool>,
}

/// The observation of a node's drivers.
pub(super) fn node_seen(metadata: &ObjectMeta, written: WrittenNode) -> StorageObservation {
    let drivers = written.spec.and_then(|spec| spec.drivers).unwrap_or_default();
    let drivers = drivers.into_iter().map(|driver| {
        let count = driver.allocatable.and_then(|allocatable| allocatable.count);
        // The API server allows neither a negative number nor a larger one.
        let count = count.map(|count| u32::try_from(count.max(0)).unwrap_or(u32::MAX));
        (driver.name.unwrap_or_default(), count)
    });
    StorageObservation::NodeDriversSeen(NodeDriversSpec {
        node: metadata.name.clone().unwrap_or_default(),
        drivers: drivers.collect(),
    })
}

/// The observation of a driver.
pub(super) fn driver_seen(metadata: &ObjectMeta, written: WrittenDriver) -> StorageObservation {
    let spec = written.spec.unwrap_or_default();
    StorageObservation::DriverSeen(DriverSpec {
        name: metadata.name.clone().unwrap_or_default(),
        publishes_capacity: spec.storage_capacity == Some(true),
        is_required_on_node: spec.prevent_pod_scheduling_if_missing == Some(true),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Storage;
    use super::super::tests::read;
    use super::*;

    #[test]
    fn drivers_of_a_node_have_limits_or_none() {
        let drivers = json!([
            {"name": "a", "nodeID": "n", "allocatable": {"count": 25}}, {"name": "b", "nodeID": "n"},
            {"name": "c", "nodeID": "n", "allocatable": {}}, {"name": "d", "nodeID": "n", "allocatable": {"count": 0}},
        ]);
        let seen = read(Storage::NodeDrivers, &json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}));
        let limits = [("a", Some(25)), ("b", None), ("c", None), ("d", Some(0))];
        let expected = NodeDriversSpec {
            node: "n1".to_owned(),
            drivers: limits.map(|(name, limit)| (name.to_owned(), limit)).into(),
        };
        assert_eq!(seen, Ok(StorageObservation::NodeDriversSeen(expected)));
    }

    #[test]
    fn a_driver_says_whether_it_publishes_capacity_and_is_required() {
        for (spec, publishes_capacity, is_required_on_node) in [
            (json!({"storageCapacity": true, "preventPodSchedulingIfMissing": false}), true, false),
            (json!({"attachRequired": true, "preventPodSchedulingIfMissing": true}), false, true),
            (json!(null), false, false),
        ] {
            let seen = read(Storage::Driver, &json!({"metadata": {"name": "d"}, "spec": spec}));
            let expected = DriverSpec { name: "d".to_owned(), publishes_capacity, is_required_on_node };
            assert_eq!(seen, Ok(StorageObservation::DriverSeen(expected)));
        }
    }
}
