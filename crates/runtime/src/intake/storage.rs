//! Claims and volumes: where a volume is that a pod's claim is bound to already.
//!
//! Claims are not bound here yet. A pod whose claim is not bound waits, and is told the claim; when somebody binds it, the
//! pod goes where the volume can be reached. Of an object only what matters to that is kept.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::ApiResource;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::node_selector::WrittenNodeSelector;
use muster_api::selector::Labels;
use muster_api::wire::Pod;
use muster_engine::model::class::{VolumePlace, ZoneDemand};
use muster_engine::model::pod::RefusalKind;
use serde::Deserialize;

use super::class::node_term;
use super::raw::{RawObject, names};

/// What the volume controller writes when a claim and a volume are bound to each other.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Stands between the zones of a volume that is in several.
const ZONES_SPLIT: &str = "__";

/// A kind of storage.
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

    /// The name in paths.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Claim => "persistentvolumeclaims",
            Self::Volume => "persistentvolumes",
        }
    }

    /// Where the API server has it.
    pub(crate) fn resource(self) -> ApiResource {
        ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: self.kind().to_owned(),
            plural: self.plural().to_owned(),
        }
    }
}

/// A claim that cannot be honoured, and of what kind that is.
pub(crate) type Flaw = (RefusalKind, InvalidField);

/// A claim that a pod uses: the place of the volume in the pod, and the claim's name.
pub(crate) type Used = (usize, String);

/// The claims that a pod uses.
pub(crate) fn claims(pod: &Pod) -> Vec<Used> {
    let volumes = pod.spec.volumes.iter().enumerate();
    let claims = volumes.filter_map(|(index, volume)| Some((index, volume.persistent_volume_claim.as_ref()?)));
    claims.map(|(index, claim)| (index, claim.claim_name.clone())).collect()
}

/// What is known of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    /// The volume that it is bound to; empty if it is not.
    volume: String,
    lost: bool,
    leaves: bool,
    /// No second pod may use it.
    is_for_one: bool,
}

/// Claims and volumes.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    /// By namespace and name.
    claims: BTreeMap<(String, String), Claim>,
    volumes: BTreeMap<String, VolumePlace>,
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
    node_affinity: Option<Reach>,
}

#[derive(Deserialize)]
struct Reach {
    required: Option<WrittenNodeSelector>,
}

impl Volumes {
    /// Takes in an object. Says whether it is something else than before.
    pub(crate) fn seen(&mut self, kind: Storage, object: &RawObject) -> Result<bool, String> {
        let metadata = &object.metadata;
        let (namespace, name) = names(object);
        let told = |error: &dyn std::fmt::Display| match kind {
            Storage::Claim => format!("{} {namespace}/{name}: {error}", kind.kind()),
            Storage::Volume => format!("{} {name}: {error}", kind.kind()),
        };
        match kind {
            Storage::Claim => {
                let read: WrittenClaim = serde_json::from_str(object.text.get()).map_err(|error| told(&error))?;
                let complete = metadata.annotations.as_ref().is_some_and(|notes| notes.contains_key(BIND_COMPLETED));
                let modes = read.spec.access_modes.unwrap_or_default();
                let claim = Claim {
                    volume: read.spec.volume_name.filter(|_| complete).unwrap_or_default(),
                    lost: read.status.phase.as_deref() == Some("Lost"),
                    leaves: metadata.deletion_timestamp.is_some(),
                    is_for_one: modes.iter().any(|mode| mode == "ReadWriteOncePod"),
                };
                Ok(self.claims.insert((namespace, name), claim.clone()) != Some(claim))
            }
            Storage::Volume => {
                let read: WrittenVolume = serde_json::from_str(object.text.get()).map_err(|error| told(&error))?;
                let place = place(read, metadata.labels.as_ref()).map_err(|error| told(&error))?;
                Ok(self.volumes.insert(name, place.clone()) != Some(place))
            }
        }
    }

    /// Forgets an object. Says whether it was known.
    pub(crate) fn gone(&mut self, kind: Storage, key: &(String, String)) -> bool {
        match kind {
            Storage::Claim => self.claims.remove(key).is_some(),
            Storage::Volume => self.volumes.remove(&key.1).is_some(),
        }
    }

    /// The objects of a kind that are known.
    pub(crate) fn known(&self, kind: Storage) -> Vec<(String, String)> {
        match kind {
            Storage::Claim => self.claims.keys().cloned().collect(),
            Storage::Volume => self.volumes.keys().map(|name| (String::new(), name.clone())).collect(),
        }
    }

    /// The volume that a claim is bound to.
    pub(crate) fn volume_of(&self, claim: &(String, String)) -> Option<&str> {
        self.claims.get(claim).map(|claim| claim.volume.as_str())
    }

    /// Where the volumes of a pod are, or which of its claims is the first that cannot be honoured, and of what kind that
    /// is.
    pub(crate) fn places(&self, namespace: &str, claims: &[Used]) -> Result<Vec<VolumePlace>, Flaw> {
        claims.iter().map(|(index, name)| self.place(namespace, *index, name)).collect()
    }

    fn place(&self, namespace: &str, index: usize, name: &str) -> Result<VolumePlace, Flaw> {
        let volumes = FieldPath::Root("spec.volumes");
        let told = |kind: RefusalKind, why: &str| {
            Err((kind, volumes.index(index).child("persistentVolumeClaim").child("claimName").invalid(name, why)))
        };
        let wrong = |why: &str| told(RefusalKind::Invalid, why);
        let Some(claim) = self.claims.get(&(namespace.to_owned(), name.to_owned())) else {
            return wrong("there is no such claim in the pod's namespace");
        };
        if claim.lost {
            return wrong("the volume of the claim is lost");
        }
        if claim.leaves {
            return wrong("the claim is being deleted");
        }
        if claim.volume.is_empty() {
            return told(RefusalKind::Unsupported, "the claim is not bound to a volume, and Muster binds none");
        }
        if claim.is_for_one {
            return told(RefusalKind::Unsupported, "the claim has the access mode ReadWriteOncePod");
        }
        match self.volumes.get(&claim.volume) {
            Some(place) => Ok(place.clone()),
            None => wrong(&format!("there is no volume {:?}, to which the claim is bound", claim.volume)),
        }
    }
}

fn place(written: WrittenVolume, labels: Option<&Labels>) -> Result<VolumePlace, InvalidField> {
    let path = FieldPath::Root("spec.nodeAffinity.required");
    let required = written.spec.node_affinity.and_then(|reach| reach.required);
    let required = required.map(|required| required.validate(&path)).transpose()?;
    Ok(VolumePlace {
        required_terms: required.map(|required| required.terms().iter().map(node_term).collect()),
        zones: labels.map(zones).unwrap_or_default(),
    })
}

/// The zone and the region that a volume's labels say, by the names that nodes may have for them.
fn zones(labels: &Labels) -> Vec<ZoneDemand> {
    let names = [
        ("failure-domain.beta.kubernetes.io/zone", Some("topology.kubernetes.io/zone")),
        ("failure-domain.beta.kubernetes.io/region", Some("topology.kubernetes.io/region")),
        ("topology.kubernetes.io/zone", None),
        ("topology.kubernetes.io/region", None),
    ];
    let demand = |(key, other): (&str, Option<&str>)| {
        let values: BTreeSet<String> = labels.get(key)?.split(ZONES_SPLIT).map(|zone| zone.trim().to_owned()).collect();
        // What cannot be read as a list of zones says nothing.
        if values.contains("") {
            return None;
        }
        Some(ZoneDemand { keys: [key].into_iter().chain(other).map(str::to_owned).collect(), values })
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

    fn why(volumes: &Volumes) -> String {
        let (_, error) = volumes.places("ml", &[(1, "data".to_owned())]).unwrap_err();
        assert_eq!(error.field, "spec.volumes[1].persistentVolumeClaim.claimName");
        error.reason
    }

    #[test]
    fn a_bound_claim_is_where_its_volume_is_and_every_other_is_told() {
        let mut volumes = Volumes::default();
        assert!(why(&volumes).starts_with("there is no such claim"));
        volumes.seen(Storage::Claim, &claim("v", false)).unwrap();
        assert!(why(&volumes).starts_with("the claim is not bound"));
        volumes.seen(Storage::Claim, &claim("v", true)).unwrap();
        assert!(why(&volumes).starts_with("there is no volume \"v\""));
        let terms = json!([{"matchExpressions": [{"key": "host", "operator": "In", "values": ["a"]}]}]);
        let volume = raw(&json!({
            "metadata": {"name": "v", "labels": {"topology.kubernetes.io/zone": "a__b"}},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
        }));
        assert_eq!(volumes.seen(Storage::Volume, &volume), Ok(true));
        assert_eq!(volumes.seen(Storage::Volume, &volume), Ok(false), "nothing new");
        let places = volumes.places("ml", &[(1, "data".to_owned())]).unwrap();
        assert_eq!(places[0].required_terms.as_ref().map(Vec::len), Some(1));
        assert_eq!(places[0].zones[0].values, ["a".to_owned(), "b".to_owned()].into());
        assert!(volumes.gone(Storage::Volume, &(String::new(), "v".to_owned())));
        assert_eq!(volumes.known(Storage::Claim).len(), 1);
    }

    #[test]
    fn a_claim_that_is_lost_leaves_or_is_for_one_pod_is_told() {
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
            volumes.seen(Storage::Claim, &with(path, value)).unwrap();
            assert!(why(&volumes).starts_with(expected));
        }
    }
}
