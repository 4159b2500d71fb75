//! Metadata without `managedFields`, which are large and useless to a scheduler.
//!
//! They are skipped while reading, not dropped afterwards: building them costs more than the rest of a pod. Must not
//! depend on any kind.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

/// The fields of `ObjectMeta` that are kept.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kept {
    annotations: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    generate_name: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    name: Option<String>,
    namespace: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    resource_version: Option<String>,
    uid: Option<String>,
}

/// For `#[serde(deserialize_with = "...")]`: metadata without `managedFields`.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let kept = Option::<Kept>::deserialize(deserializer)?.unwrap_or_default();
    Ok(ObjectMeta {
        annotations: kept.annotations,
        creation_timestamp: kept.creation_timestamp,
        deletion_grace_period_seconds: kept.deletion_grace_period_seconds,
        deletion_timestamp: kept.deletion_timestamp,
        finalizers: kept.finalizers,
        generate_name: kept.generate_name,
        generation: kept.generation,
        labels: kept.labels,
        managed_fields: None,
        name: kept.name,
        namespace: kept.namespace,
        owner_references: kept.owner_references,
        resource_version: kept.resource_version,
        self_link: None,
        uid: kept.uid,
    })
}

#[cfg(test)]
mod tests {
    use crate::wire::Pod;
    use k8s_openapi::api::core::v1::Pod as WholePod;
    use serde_json::json;

    #[test]
    fn all_but_managed_fields_is_kept() {
        let metadata = json!({
            "annotations": {"a": "1"}, "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionGracePeriodSeconds": 30, "deletionTimestamp": "2026-01-02T03:04:06Z",
            "finalizers": ["f"], "generateName": "p-", "generation": 7, "labels": {"b": "2"},
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
            "name": "p-1", "namespace": "d", "resourceVersion": "42", "uid": "u",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "x", "controller": true}],
        });
        let json = json!({"metadata": metadata});
        let slim: Pod = serde_json::from_value(json.clone()).unwrap();
        let mut whole: WholePod = serde_json::from_value(json).unwrap();
        assert!(whole.metadata.managed_fields.take().is_some());
        assert_eq!(slim.metadata, whole.metadata);
    }
}
