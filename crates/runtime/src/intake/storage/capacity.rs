//! A CSIStorageCapacity as the engine observes it: how much can be provisioned on some nodes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::invalid::FieldPath;
use muster_api::selector::WrittenLabelSelector;
use muster_api::written_quantity::WrittenQuantity;
use muster_engine::model::storage::{CapacitySpec, StorageObservation};
use serde::Deserialize;

use super::{ReadError, bytes, selector};

/// The object as written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Written {
    storage_class_name: Option<String>,
    node_topology: Option<WrittenLabelSelector>,
    capacity: Option<WrittenQuantity>,
    maximum_volume_size: Option<WrittenQuantity>,
}

/// The observation of free capacity.
pub(super) fn seen(metadata: &ObjectMeta, written: Written) -> Result<StorageObservation, ReadError> {
    let amount = |written: Option<WrittenQuantity>, field| {
        written.map(|written| bytes(&written, &FieldPath::Root(field))).transpose()
    };
    Ok(StorageObservation::CapacitySeen(CapacitySpec {
        key: (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default()),
        storage_class: written.storage_class_name.unwrap_or_default(),
        nodes: selector(written.node_topology.as_ref(), &FieldPath::Root("nodeTopology"))?,
        capacity_bytes: amount(written.capacity, "capacity")?,
        volume_bytes_max: amount(written.maximum_volume_size, "maximumVolumeSize")?,
    }))
}

#[cfg(test)]
mod tests {
    use muster_engine::model::labels::{LabelOperator, Requirement};
    use serde_json::{Value, json};

    use super::super::Storage;
    use super::super::tests::read;
    use super::*;

    fn capacity(mut object: Value) -> Result<CapacitySpec, String> {
        object["metadata"] = json!({"namespace": "kube-system", "name": "c"});
        match read(Storage::Capacity, &object)? {
            StorageObservation::CapacitySeen(capacity) => Ok(capacity),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_fields_that_matter_are_translated() {
        let seen = capacity(json!({
            "storageClassName": "fast", "nodeTopology": {"matchLabels": {"zone": "a"}},
            "capacity": "1Gi", "maximumVolumeSize": "1k",
        }));
        let zone = Requirement { key: "zone".to_owned(), operator: LabelOperator::In(vec!["a".to_owned()]) };
        let expected = CapacitySpec {
            key: ("kube-system".to_owned(), "c".to_owned()),
            storage_class: "fast".to_owned(),
            nodes: Some(vec![zone]),
            capacity_bytes: Some(1 << 30),
            volume_bytes_max: Some(1000),
        };
        assert_eq!(seen, Ok(expected));
        let everywhere = capacity(json!({"storageClassName": "fast", "nodeTopology": {}})).unwrap();
        assert_eq!((everywhere.nodes, everywhere.capacity_bytes), (Some(Vec::new()), None));
        assert_eq!(capacity(json!({"storageClassName": "fast"})).unwrap().nodes, None, "on no node");
        let error = capacity(json!({"storageClassName": "fast", "capacity": "full"})).unwrap_err();
        assert!(error.starts_with("CSIStorageCapacity kube-system/c: capacity: \"full\": must start"), "{error}");
    }
}
