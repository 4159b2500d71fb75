//! A PersistentVolume as the engine observes it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::node_selector::{NodeSelector, WrittenNodeSelector};
use muster_api::selector::Labels;
use muster_api::written_quantity::WrittenQuantity;
use muster_engine::model::labels::NodeTerm;
use muster_engine::model::storage::{ClaimName, StorageObservation, VolumeSpec, VolumeTopology, ZoneRequirement};
use serde::Deserialize;

use super::migration::InTreeSources;
use super::{ReadError, WrittenKind};
use crate::intake::class::node_term;

/// Separates the zones of a volume that is in several.
const ZONES_SPLIT: &str = "__";
const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// The volume as written.
#[derive(Deserialize)]
pub(super) struct Written {
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    access_modes: Option<Vec<String>>,
    capacity: Option<BTreeMap<String, WrittenQuantity>>,
    claim_ref: Option<ClaimRef>,
    csi: Option<Csi>,
    node_affinity: Option<NodeAffinity>,
    storage_class_name: Option<String>,
    volume_attributes_class_name: Option<String>,
    volume_mode: Option<String>,
    #[serde(flatten)]
    in_tree: InTreeSources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClaimRef {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Csi {
    driver: Option<String>,
    volume_handle: Option<String>,
}

#[derive(Deserialize)]
struct NodeAffinity {
    required: Option<WrittenNodeSelector>,
}

#[derive(Deserialize)]
struct Status {
    phase: Option<String>,
}

/// The observation of a volume.
pub(super) fn seen(metadata: &ObjectMeta, written: Written) -> Result<StorageObservation, ReadError> {
    let spec = written.spec.unwrap_or_default();
    let kind = WrittenKind {
        storage_class_name: spec.storage_class_name,
        access_modes: spec.access_modes,
        volume_mode: spec.volume_mode,
        volume_attributes_class_name: spec.volume_attributes_class_name,
    };
    let labels = metadata.labels.clone().unwrap_or_default();
    let csi = spec.csi.map(|csi| (csi.driver.unwrap_or_default(), csi.volume_handle.unwrap_or_default()));
    let attached_by = csi.or_else(|| spec.in_tree.attached_by());
    let claim = spec.claim_ref.map(|claim| ClaimName {
        namespace: claim.namespace.unwrap_or_default(),
        name: claim.name.unwrap_or_default(),
        uid: claim.uid.unwrap_or_default(),
    });
    Ok(StorageObservation::VolumeSeen(VolumeSpec {
        name: metadata.name.clone().unwrap_or_default(),
        version: metadata.resource_version.clone().unwrap_or_default(),
        kind: kind.validate(metadata.annotations.as_ref())?,
        capacity_bytes: capacity(spec.capacity.as_ref())?,
        topology: topology(spec.node_affinity, &labels)?,
        labels,
        claim,
        available: written.status.and_then(|status| status.phase).is_some_and(|phase| phase == "Available"),
        terminating: metadata.deletion_timestamp.is_some(),
        attached_by: attached_by.filter(|(driver, handle)| !driver.is_empty() && !handle.is_empty()),
    }))
}

/// The size in bytes. What is less than a byte is left out: a request is rounded up, and must not fit by that.
fn capacity(written: Option<&BTreeMap<String, WrittenQuantity>>) -> Result<i64, InvalidField> {
    let Some(size) = written.and_then(|capacity| capacity.get("storage")) else { return Ok(0) };
    let path = FieldPath::Root("spec.capacity");
    let path = path.key("storage");
    let quantity = size.parse().map_err(|error| path.invalid(&size.0, error))?;
    i64::try_from(quantity.nanos().div_euclid(NANOS_PER_UNIT)).map_err(|error| path.invalid(&size.0, error))
}

fn topology(affinity: Option<NodeAffinity>, labels: &Labels) -> Result<VolumeTopology, InvalidField> {
    let path = FieldPath::Root("spec.nodeAffinity.required");
    let required = affinity.and_then(|affinity| affinity.required);
    let required = required.map(|required| required.validate(&path)).transpose()?;
    Ok(VolumeTopology { required_terms: required.and_then(|required| terms(&required)), zones: zones(labels) })
}

/// The terms of which a node must match one, if not every node does. Like kube-scheduler and the kubelet, which look at
/// the labels of a node alone: requirements on its name always hold.
fn terms(required: &NodeSelector) -> Option<Vec<NodeTerm>> {
    let on_labels = |term| NodeTerm { names: Vec::new(), ..node_term(term) };
    let terms: Vec<NodeTerm> = required.terms().iter().map(on_labels).collect();
    terms.iter().all(|term| !term.labels.is_empty()).then_some(terms)
}

/// The zone and region labels of a volume, with the alternative label keys that nodes may have.
fn zones(labels: &Labels) -> Vec<ZoneRequirement> {
    let names = [
        ("failure-domain.beta.kubernetes.io/zone", Some("topology.kubernetes.io/zone")),
        ("failure-domain.beta.kubernetes.io/region", Some("topology.kubernetes.io/region")),
        ("topology.kubernetes.io/zone", None),
        ("topology.kubernetes.io/region", None),
    ];
    let demand = |(key, other): (&str, Option<&str>)| {
        let values: BTreeSet<String> = labels.get(key)?.split(ZONES_SPLIT).map(|zone| zone.trim().to_owned()).collect();
        // A label that is no valid list of zones is ignored.
        if values.contains("") {
            return None;
        }
        Some(ZoneRequirement { keys: [key].into_iter().chain(other).map(str::to_owned).collect(), values })
    };
    names.into_iter().filter_map(demand).collect()
}

#[cfg(test)]
mod tests {
    use muster_engine::model::storage::{AccessMode, VolumeKind};
    use serde_json::{Value, json};

    use super::super::Storage;
    use super::super::tests::read;
    use super::*;

    fn volume(spec: &Value) -> VolumeSpec {
        let object = json!({"metadata": {"name": "pv"}, "spec": spec});
        match read(Storage::Volume, &object) {
            Ok(StorageObservation::VolumeSeen(volume)) => volume,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_fields_that_matter_are_translated() {
        let terms = json!([{"matchExpressions": [{"key": "host", "operator": "In", "values": ["a"]}]}, {}]);
        let object = json!({
            "metadata": {
                "name": "pv", "resourceVersion": "9", "deletionTimestamp": "2030-01-01T00:00:00Z",
                "labels": {"topology.kubernetes.io/zone": "a__b", "failure-domain.beta.kubernetes.io/region": "x__"},
            },
            "spec": {
                "accessModes": ["ReadWriteMany"], "volumeMode": "Filesystem", "storageClassName": "fast",
                "volumeAttributesClassName": "gold", "capacity": {"storage": "2500m"},
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "ml", "name": "data"},
                "csi": {"driver": "d", "volumeHandle": "h"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
            "status": {"phase": "Available"},
        });
        let Ok(StorageObservation::VolumeSeen(seen)) = read(Storage::Volume, &object) else { panic!("{object}") };
        assert_eq!((seen.name.as_str(), seen.version.as_str(), seen.capacity_bytes), ("pv", "9", 2));
        let expected = VolumeKind {
            storage_class: "fast".to_owned(),
            access_modes: [AccessMode::ReadWriteMany].into(),
            block: false,
            attributes_class: "gold".to_owned(),
        };
        assert_eq!(seen.kind, expected);
        let claim = ClaimName { namespace: "ml".into(), name: "data".into(), uid: String::new() };
        assert_eq!((seen.claim, seen.available, seen.terminating), (Some(claim), true, true));
        assert_eq!(seen.attached_by, Some(("d".to_owned(), "h".to_owned())));
        assert_eq!(seen.topology.required_terms.as_ref().map(Vec::len), Some(1), "an empty term matches no node");
        assert_eq!(seen.labels.len(), 2);
        let zones = &seen.topology.zones;
        assert_eq!(zones.len(), 1, "a label that is no list of zones is ignored");
        assert_eq!(zones[0].values, ["a".to_owned(), "b".to_owned()].into());
        assert_eq!(zones[0].keys, ["topology.kubernetes.io/zone"]);
    }

    #[test]
    fn requirements_on_the_name_of_a_node_always_hold() {
        let named = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        let labelled = json!({"key": "zone", "operator": "In", "values": ["a"]});
        let terms = |terms: Value| {
            let spec = json!({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}});
            volume(&spec).topology.required_terms
        };
        let zone = terms(json!([{"matchExpressions": [labelled]}]));
        assert_eq!(zone.as_ref().map(Vec::len), Some(1));
        assert_eq!(terms(json!([{"matchExpressions": [labelled], "matchFields": [named]}])), zone);
        assert_eq!(terms(json!([{"matchFields": [named]}, {"matchExpressions": [labelled]}])), None);
    }

    #[test]
    fn a_volume_of_an_in_tree_plugin_is_attached_by_the_driver_that_replaced_it() {
        for (spec, expected) in [
            (json!({"gcePersistentDisk": {"pdName": "disk"}}), Some(("pd.csi.storage.gke.io", "disk"))),
            (json!({"csi": {"driver": "d"}, "cinder": {"volumeID": "v"}}), None),
            (json!({"nfs": {"server": "s"}}), None),
            (json!(null), None),
        ] {
            let expected = expected.map(|(driver, handle)| (driver.to_owned(), handle.to_owned()));
            assert_eq!(volume(&spec).attached_by, expected, "{spec}");
        }
    }

    #[test]
    fn invalid_fields_are_named() {
        for (spec, expected) in [
            (json!({"capacity": {"storage": "1x"}}), "spec.capacity[storage]: \"1x\": suffix"),
            (json!({"accessModes": [""]}), "spec.accessModes[0]: \"\": is not a known"),
            (
                json!({"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}),
                "spec.nodeAffinity.required.nodeSelectorTerms: []: must have",
            ),
            (json!({"nodeAffinity": 1}), "invalid type: integer `1`"),
        ] {
            let error = read(Storage::Volume, &json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap_err();
            assert!(error.starts_with(&format!("PersistentVolume pv: {expected}")), "{error}");
        }
    }
}
