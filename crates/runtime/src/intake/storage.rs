//! PersistentVolumeClaims and PersistentVolumes: where the volume of a bound claim can be reached.
//!
//! Muster does not bind claims yet. A pod with an unbound claim waits, and its condition names the claim; once the
//! claim is bound, the pod is placed where the volume can be reached. Only the needed fields of an object are kept.

use std::collections::BTreeSet;

use kube::core::ApiResource;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::node_selector::WrittenNodeSelector;
use muster_api::selector::Labels;
use muster_api::wire::Pod;
use muster_engine::model::class::{VolumeTopology, ZoneRequirement};
use muster_engine::model::pod::RefusalKind;
use muster_reflector::{Delta, Key, Table, key_of};
use serde::Deserialize;

use super::class::node_term;
use super::raw::{RawObject, resource};

/// The annotation that the volume controller sets when a claim and a volume are bound to each other.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Separates the zones of a volume that is in several.
const ZONES_SPLIT: &str = "__";

/// A watched kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Storage {
    Claim,
    Volume,
}

impl Storage {
    pub(crate) const ALL: [Self; 2] = [Self::Claim, Self::Volume];

    fn kind(self) -> &'static str {
        match self {
            Self::Claim => "PersistentVolumeClaim",
            Self::Volume => "PersistentVolume",
        }
    }

    /// The plural in API paths.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Claim => "persistentvolumeclaims",
            Self::Volume => "persistentvolumes",
        }
    }

    /// Its API resource.
    pub(crate) fn resource(self) -> ApiResource {
        resource("v1", self.kind(), self.plural())
    }
}

/// Why a claim cannot be used.
pub(crate) type ClaimError = (RefusalKind, InvalidField);

/// A claim that a pod uses: the index of the volume in the pod, and the claim's name.
pub(crate) type UsedClaim = (usize, String);

/// The claims that a pod uses.
pub(crate) fn claims(pod: &Pod) -> Vec<UsedClaim> {
    let volumes = pod.spec.volumes.iter().enumerate();
    let claims = volumes.filter_map(|(index, volume)| Some((index, volume.persistent_volume_claim.as_ref()?)));
    claims.map(|(index, claim)| (index, claim.claim_name.clone())).collect()
}

/// What is kept of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    /// The volume that it is bound to; empty if there is none.
    volume: String,
    lost: bool,
    terminating: bool,
    /// Its access mode is `ReadWriteOncePod`.
    is_single_pod: bool,
}

/// The known claims and volumes.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    claims: Table<Key, Claim>,
    volumes: Table<Key, VolumeTopology>,
}

#[derive(Deserialize)]
struct WrittenClaim {
    #[serde(default)]
    spec: ClaimSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSpec {
    volume_name: Option<String>,
    access_modes: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
}

#[derive(Deserialize)]
struct WrittenVolume {
    #[serde(default)]
    spec: VolumeSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeSpec {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Deserialize)]
struct NodeAffinity {
    required: Option<WrittenNodeSelector>,
}

impl Volumes {
    pub(super) fn has_synced(&self) -> bool {
        self.claims.has_synced() && self.volumes.has_synced()
    }

    /// Applies an event. Returns the objects that have changed, and an error if one cannot be parsed.
    pub(super) fn on_delta(&mut self, kind: Storage, delta: Delta<RawObject>) -> (Vec<Key>, Option<String>) {
        match kind {
            Storage::Claim => self.claims.update(delta, key_of, |object| read_claim(&object)),
            Storage::Volume => self.volumes.update(delta, key_of, |object| read_volume(&object)),
        }
    }

    /// Whether one of these objects is a claim, or the volume of a claim, that a pod uses.
    pub(super) fn is_used(
        &self,
        kind: Storage,
        objects: &BTreeSet<Key>,
        namespace: &str,
        claims: &[UsedClaim],
    ) -> bool {
        claims.iter().any(|(_, name)| {
            let claim = (namespace.to_owned(), name.clone());
            match kind {
                Storage::Claim => objects.contains(&claim),
                Storage::Volume => {
                    let volume = self.claims.entries.get(&claim).map(|claim| (String::new(), claim.volume.clone()));
                    volume.is_some_and(|volume| objects.contains(&volume))
                }
            }
        })
    }

    /// Where the volumes of a pod are, or why the first unusable claim cannot be used.
    pub(crate) fn places(&self, namespace: &str, claims: &[UsedClaim]) -> Result<Vec<VolumeTopology>, ClaimError> {
        claims.iter().map(|(index, name)| self.place(namespace, *index, name)).collect()
    }

    fn place(&self, namespace: &str, index: usize, name: &str) -> Result<VolumeTopology, ClaimError> {
        let volumes = FieldPath::Root("spec.volumes");
        let error_of = |kind: RefusalKind, why: &str| {
            Err((kind, volumes.index(index).child("persistentVolumeClaim").child("claimName").invalid(name, why)))
        };
        let wrong = |why: &str| error_of(RefusalKind::Invalid, why);
        let Some(claim) = self.claims.entries.get(&(namespace.to_owned(), name.to_owned())) else {
            return wrong("there is no such claim in the pod's namespace");
        };
        if claim.lost {
            return wrong("the volume of the claim is lost");
        }
        if claim.terminating {
            return wrong("the claim is being deleted");
        }
        if claim.volume.is_empty() {
            return error_of(RefusalKind::Unsupported, "the claim is not bound to a volume, and Muster binds none");
        }
        if claim.is_single_pod {
            return error_of(RefusalKind::Unsupported, "the claim has the access mode ReadWriteOncePod");
        }
        match self.volumes.entries.get(&(String::new(), claim.volume.clone())) {
            Some(place) => Ok(place.clone()),
            None => wrong(&format!("there is no volume {:?}, to which the claim is bound", claim.volume)),
        }
    }
}

fn read_claim(object: &RawObject) -> Result<Claim, String> {
    let read: WrittenClaim = serde_json::from_str(object.text.get()).map_err(|error| {
        let (namespace, name) = key_of(object);
        format!("{} {namespace}/{name}: {error}", Storage::Claim.kind())
    })?;
    let complete = object.metadata.annotations.as_ref().is_some_and(|notes| notes.contains_key(BIND_COMPLETED));
    let modes = read.spec.access_modes.unwrap_or_default();
    Ok(Claim {
        volume: read.spec.volume_name.filter(|_| complete).unwrap_or_default(),
        lost: read.status.phase.as_deref() == Some("Lost"),
        terminating: object.metadata.deletion_timestamp.is_some(),
        is_single_pod: modes.iter().any(|mode| mode == "ReadWriteOncePod"),
    })
}

fn read_volume(object: &RawObject) -> Result<VolumeTopology, String> {
    let error_of = |error: &dyn std::fmt::Display| format!("{} {}: {error}", Storage::Volume.kind(), key_of(object).1);
    let read: WrittenVolume = serde_json::from_str(object.text.get()).map_err(|error| error_of(&error))?;
    place(read, object.metadata.labels.as_ref()).map_err(|error| error_of(&error))
}

fn place(written: WrittenVolume, labels: Option<&Labels>) -> Result<VolumeTopology, InvalidField> {
    let path = FieldPath::Root("spec.nodeAffinity.required");
    let required = written.spec.node_affinity.and_then(|affinity| affinity.required);
    let required = required.map(|required| required.validate(&path)).transpose()?;
    Ok(VolumeTopology {
        required_terms: required.map(|required| required.terms().iter().map(node_term).collect()),
        zones: labels.map(zones).unwrap_or_default(),
    })
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
    use super::*;
    use serde_json::{Value, json};

    fn raw(object: &Value) -> RawObject {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn claim(volume: &str, bound: bool) -> RawObject {
        let notes = if bound { json!({BIND_COMPLETED: "yes"}) } else { json!({}) };
        raw(&json!({
            "metadata": {"namespace": "ml", "name": "data", "annotations": notes},
            "spec": {"volumeName": volume, "accessModes": ["ReadWriteOnce"]},
        }))
    }

    /// Whether the event changes anything.
    fn apply(volumes: &mut Volumes, kind: Storage, object: RawObject) -> bool {
        let (changed, error) = volumes.on_delta(kind, Delta::Applied(object));
        assert_eq!(error, None);
        !changed.is_empty()
    }

    fn refusal_reason(volumes: &Volumes) -> String {
        let (_, error) = volumes.places("ml", &[(1, "data".to_owned())]).unwrap_err();
        assert_eq!(error.field, "spec.volumes[1].persistentVolumeClaim.claimName");
        error.reason
    }

    #[test]
    fn a_bound_claim_has_the_place_of_its_volume_and_others_are_errors() {
        let mut volumes = Volumes::default();
        assert!(refusal_reason(&volumes).starts_with("there is no such claim"));
        apply(&mut volumes, Storage::Claim, claim("v", false));
        assert!(refusal_reason(&volumes).starts_with("the claim is not bound"));
        apply(&mut volumes, Storage::Claim, claim("v", true));
        assert!(refusal_reason(&volumes).starts_with("there is no volume \"v\""));
        let terms = json!([{"matchExpressions": [{"key": "host", "operator": "In", "values": ["a"]}]}]);
        let volume = raw(&json!({
            "metadata": {"name": "v", "labels": {"topology.kubernetes.io/zone": "a__b"}},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
        }));
        assert!(apply(&mut volumes, Storage::Volume, volume.clone()));
        assert!(!apply(&mut volumes, Storage::Volume, volume.clone()), "nothing new");
        let places = volumes.places("ml", &[(1, "data".to_owned())]).unwrap();
        assert_eq!(places[0].required_terms.as_ref().map(Vec::len), Some(1));
        assert_eq!(places[0].zones[0].values, ["a".to_owned(), "b".to_owned()].into());
        let changed = volumes.on_delta(Storage::Volume, Delta::Deleted(volume)).0.into_iter().collect();
        let used = [(1, "data".to_owned())];
        assert!(volumes.is_used(Storage::Volume, &changed, "ml", &used), "it was bound");
        assert!(!volumes.is_used(Storage::Claim, &changed, "ml", &used) && refusal_reason(&volumes).contains("\"v\""));
    }

    #[test]
    fn a_lost_terminating_or_single_pod_claim_is_an_error() {
        let mut volumes = Volumes::default();
        let with = |path: &str, value: Value| {
            let mut object = json!({
                "metadata": {"namespace": "ml", "name": "data", "annotations": {BIND_COMPLETED: "yes"}},
                "spec": {"volumeName": "v"}, "status": {},
            });
            *object.pointer_mut(path.rsplit_once('/').unwrap().0).unwrap() = {
                let mut part = object.pointer(path.rsplit_once('/').unwrap().0).unwrap().clone();
                part[path.rsplit_once('/').unwrap().1] = value;
                part
            };
            raw(&object)
        };
        for (path, value, expected) in [
            ("/status/phase", json!("Lost"), "the volume of the claim is lost"),
            ("/metadata/deletionTimestamp", json!("2030-01-01T00:00:00Z"), "the claim is being deleted"),
            ("/spec/accessModes", json!(["ReadWriteOncePod"]), "the claim has the access mode"),
        ] {
            apply(&mut volumes, Storage::Claim, with(path, value));
            assert!(refusal_reason(&volumes).starts_with(expected));
        }
    }
}
