//! A PersistentVolumeClaim as the engine observes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::invalid::FieldPath;
use muster_api::keys::storage::{BIND_COMPLETED, SELECTED_NODE};
use muster_api::selector::WrittenLabelSelector;
use muster_api::written_quantity::WrittenQuantity;
use muster_engine::model::storage::{ClaimName, ClaimSpec, StorageObservation};
use serde::Deserialize;

use super::{ReadError, WrittenKind, bytes, selector};

/// The claim as written.
#[derive(Deserialize)]
pub(super) struct Written {
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    access_modes: Option<Vec<String>>,
    resources: Option<Resources>,
    selector: Option<WrittenLabelSelector>,
    storage_class_name: Option<String>,
    volume_attributes_class_name: Option<String>,
    volume_mode: Option<String>,
    volume_name: Option<String>,
}

#[derive(Deserialize)]
struct Resources {
    requests: Option<BTreeMap<String, WrittenQuantity>>,
}

#[derive(Deserialize)]
struct Status {
    phase: Option<String>,
}

/// The observation of a claim.
pub(super) fn seen(metadata: &ObjectMeta, written: Written) -> Result<StorageObservation, ReadError> {
    let spec = written.spec.unwrap_or_default();
    let annotations = metadata.annotations.as_ref();
    let kind = WrittenKind {
        storage_class_name: spec.storage_class_name,
        access_modes: spec.access_modes,
        volume_mode: spec.volume_mode,
        volume_attributes_class_name: spec.volume_attributes_class_name,
    };
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let path = FieldPath::Root("spec.resources.requests");
    let request = requests.get("storage").map(|written| bytes(written, &path.key("storage")));
    let mut owners = metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    Ok(StorageObservation::ClaimSeen(ClaimSpec {
        id: Arc::new(ClaimName {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
        }),
        version: metadata.resource_version.clone().unwrap_or_default(),
        kind: kind.validate(annotations)?,
        request_bytes: request.transpose()?,
        selector: selector(spec.selector.as_ref(), &FieldPath::Root("spec.selector"))?,
        volume: spec.volume_name.unwrap_or_default(),
        bind_completed: annotations.is_some_and(|annotations| annotations.contains_key(BIND_COMPLETED)),
        lost: written.status.and_then(|status| status.phase).is_some_and(|phase| phase == "Lost"),
        terminating: metadata.deletion_timestamp.is_some(),
        selected_node: annotations.and_then(|annotations| annotations.get(SELECTED_NODE)).cloned().unwrap_or_default(),
        // As in Kubernetes: UIDs differ between all objects, so that the kind need not be compared.
        owner_pod: controller.map(|owner| owner.uid.clone()).unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use muster_engine::model::labels::{LabelOperator, Requirement};
    use muster_engine::model::storage::{AccessMode, VolumeKind};
    use serde_json::{Value, json};

    use super::super::Storage;
    use super::super::tests::read;
    use super::*;

    fn claim(object: &Value) -> ClaimSpec {
        match read(Storage::Claim, object) {
            Ok(StorageObservation::ClaimSeen(claim)) => claim,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_fields_that_matter_are_translated() {
        let seen = claim(&json!({
            "metadata": {
                "namespace": "ml", "name": "data", "uid": "u", "resourceVersion": "7",
                "annotations": {BIND_COMPLETED: "", SELECTED_NODE: "n1"},
                "deletionTimestamp": "2030-01-01T00:00:00Z",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "other"},
                    {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "pod", "controller": true},
                ],
            },
            "spec": {
                "accessModes": ["ReadWriteOncePod", "ReadOnlyMany"], "volumeMode": "Block", "storageClassName": "fast",
                "volumeAttributesClassName": "gold", "volumeName": "pv",
                "resources": {"requests": {"storage": "1500m"}},
                "selector": {"matchLabels": {"tier": "a"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]},
            },
            "status": {"phase": "Lost"},
        }));
        let requirement = |key: &str, operator| Requirement { key: key.to_owned(), operator };
        let expected = ClaimSpec {
            id: Arc::new(ClaimName { namespace: "ml".into(), name: "data".into(), uid: "u".into() }),
            version: "7".to_owned(),
            kind: VolumeKind {
                storage_class: "fast".to_owned(),
                access_modes: [AccessMode::ReadOnlyMany, AccessMode::ReadWriteOncePod].into(),
                block: true,
                attributes_class: "gold".to_owned(),
            },
            request_bytes: Some(2),
            selector: Some(vec![
                requirement("tier", LabelOperator::In(vec!["a".to_owned()])),
                requirement("old", LabelOperator::DoesNotExist),
            ]),
            volume: "pv".to_owned(),
            bind_completed: true,
            lost: true,
            terminating: true,
            selected_node: "n1".to_owned(),
            owner_pod: "pod".to_owned(),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_claim_without_anything_asks_for_nothing() {
        let seen = claim(&json!({"metadata": {"name": "data"}, "spec": null, "status": null}));
        let id = Arc::new(ClaimName { name: "data".into(), ..ClaimName::default() });
        assert_eq!(seen, ClaimSpec { id, ..ClaimSpec::default() });
        let empty = claim(&json!({"metadata": {"name": "data"}, "spec": {"selector": {}, "resources": {}}}));
        assert_eq!(
            (empty.selector, empty.request_bytes),
            (Some(Vec::new()), None),
            "such a selector selects everything"
        );
    }

    #[test]
    fn invalid_fields_are_named() {
        for (spec, expected) in [
            (json!({"accessModes": ["Sometimes"]}), "spec.accessModes[0]: \"Sometimes\": is not a known"),
            (json!({"volumeMode": "Tape"}), "spec.volumeMode: \"Tape\": must be"),
            (
                json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
                "spec.selector.matchExpressions[0].operator: \"Near\"",
            ),
            (
                json!({"resources": {"requests": {"storage": "10Ei"}}}),
                "spec.resources.requests[storage]: \"10Ei\": is larger than",
            ),
        ] {
            let error = read(Storage::Claim, &json!({"metadata": {"name": "data"}, "spec": spec})).unwrap_err();
            assert!(error.starts_with(&format!("PersistentVolumeClaim data: {expected}")), "{error}");
        }
    }
}
