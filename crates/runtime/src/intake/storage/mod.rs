//! Objects of storage: claims, volumes, classes, drivers, free capacity and attachments, translated for the engine.
//!
//! Nothing is decided here. Of an object only what is needed to recognise a change is kept. An object that cannot be
//! used is gone for the engine if pods depend on it, so that these wait and name what they lack; of drivers and
//! attachments the last usable state counts, since without it a node would seem to have no limits.

mod attachment;
mod capacity;
mod claim;
mod class;
mod drivers;
mod migration;
mod volume;

use kube::core::ApiResource;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::selector::{LabelSelector, Labels, WrittenLabelSelector};
use muster_api::written_quantity::WrittenQuantity;
use muster_engine::model::labels::Requirement;
use muster_engine::model::storage::{AccessMode, StorageObservation, VolumeKind};
use muster_reflector::{Delta, Key, Table, key_of};
use serde::de::DeserializeOwned;

use super::class::requirement;
use super::raw::{RawObject, resource};

/// The annotation with the storage class, which takes precedence over the field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// A watched kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Storage {
    Claim,
    Volume,
    Class,
    NodeDrivers,
    Driver,
    Capacity,
    Attachment,
}

impl Storage {
    pub(crate) const ALL: [Self; 7] =
        [Self::Claim, Self::Volume, Self::Class, Self::NodeDrivers, Self::Driver, Self::Capacity, Self::Attachment];

    fn api(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Claim => ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Self::Volume => ("v1", "PersistentVolume", "persistentvolumes"),
            Self::Class => ("storage.k8s.io/v1", "StorageClass", "storageclasses"),
            Self::NodeDrivers => ("storage.k8s.io/v1", "CSINode", "csinodes"),
            Self::Driver => ("storage.k8s.io/v1", "CSIDriver", "csidrivers"),
            Self::Capacity => ("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities"),
            Self::Attachment => ("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments"),
        }
    }

    /// The plural in API paths.
    pub(crate) fn plural(self) -> &'static str {
        self.api().2
    }

    /// Its API resource.
    pub(crate) fn resource(self) -> ApiResource {
        let (api_version, kind, plural) = self.api();
        resource(api_version, kind, plural)
    }

    /// The object as it is observed, or why it cannot be used.
    fn read(self, object: &RawObject) -> Result<StorageObservation, String> {
        let seen = match self {
            Self::Claim => parse(object).and_then(|written| claim::seen(&object.metadata, written)),
            Self::Volume => parse(object).and_then(|written| volume::seen(&object.metadata, written)),
            Self::Class => parse(object).and_then(|written| class::seen(&object.metadata, written)),
            Self::NodeDrivers => parse(object).map(|written| drivers::node_seen(&object.metadata, written)),
            Self::Driver => parse(object).map(|written| drivers::driver_seen(&object.metadata, written)),
            Self::Capacity => parse(object).and_then(|written| capacity::seen(&object.metadata, written)),
            Self::Attachment => parse(object).map(|written| attachment::seen(&object.metadata, written)),
        };
        seen.map_err(|error| {
            let (namespace, name) = key_of(object);
            let separator = if namespace.is_empty() { "" } else { "/" };
            format!("{} {namespace}{separator}{name}: {error}", self.api().1)
        })
    }

    fn gone(self, (namespace, name): Key) -> StorageObservation {
        match self {
            Self::Claim => StorageObservation::ClaimGone(namespace, name),
            Self::Volume => StorageObservation::VolumeGone(name),
            Self::Class => StorageObservation::ClassGone(name),
            Self::NodeDrivers => StorageObservation::NodeDriversGone(name),
            Self::Driver => StorageObservation::DriverGone(name),
            Self::Capacity => StorageObservation::CapacityGone(namespace, name),
            Self::Attachment => StorageObservation::AttachmentGone(name),
        }
    }

    /// Whether pods wait for an object of this kind when it does not exist.
    fn is_waited_for(self) -> bool {
        match self {
            Self::Claim | Self::Volume | Self::Class | Self::Capacity => true,
            Self::NodeDrivers | Self::Driver | Self::Attachment => false,
        }
    }
}

/// What is kept of an object, to recognise a change of it.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    /// Its version: the observation has that too, so that every change matters.
    Version(Box<str>),
    /// All that was observed; the object may change in other ways, and often.
    Whole(Box<StorageObservation>),
}

impl Known {
    fn of(seen: &StorageObservation) -> Self {
        match seen {
            StorageObservation::ClaimSeen(claim) => Self::Version(claim.version.as_str().into()),
            StorageObservation::VolumeSeen(volume) => Self::Version(volume.version.as_str().into()),
            other => Self::Whole(Box::new(other.clone())),
        }
    }
}

/// The known objects of storage.
#[derive(Debug, Default)]
pub(super) struct StorageObjects {
    /// By kind.
    tables: [Table<Key, Known>; Storage::ALL.len()],
}

impl StorageObjects {
    pub(super) fn has_synced(&self) -> bool {
        self.tables.iter().all(Table::has_synced)
    }

    /// Applies an event. Returns what the engine observes, and an error if the object cannot be used.
    pub(super) fn on_delta(
        &mut self,
        kind: Storage,
        delta: Delta<RawObject>,
    ) -> (Vec<StorageObservation>, Option<String>) {
        let table = &mut self.tables[kind as usize];
        let (object, gone) = table.apply(delta, key_of);
        let gone = gone.into_iter().filter(|key| table.entries.remove(key).is_some());
        let mut observations: Vec<_> = gone.map(|key| kind.gone(key)).collect();
        let Some(object) = object else { return (observations, None) };
        let key = key_of(&object);
        match kind.read(&object) {
            Ok(seen) => {
                let known = Known::of(&seen);
                if table.entries.get(&key) != Some(&known) {
                    table.entries.insert(key, known);
                    observations.push(seen);
                }
                (observations, None)
            }
            Err(error) => {
                if kind.is_waited_for() && table.entries.remove(&key).is_some() {
                    observations.push(kind.gone(key));
                }
                (observations, Some(error))
            }
        }
    }
}

/// Why an object cannot be used: the parser's error, or an invalid field.
type ReadError = Box<dyn std::error::Error>;

fn parse<T: DeserializeOwned>(object: &RawObject) -> Result<T, ReadError> {
    Ok(serde_json::from_str(object.text.get())?)
}

/// The fields by which claims and volumes are matched, as written.
struct WrittenKind {
    storage_class_name: Option<String>,
    access_modes: Option<Vec<String>>,
    volume_mode: Option<String>,
    volume_attributes_class_name: Option<String>,
}

impl WrittenKind {
    fn validate(self, annotations: Option<&Labels>) -> Result<VolumeKind, InvalidField> {
        let by_annotation = annotations.and_then(|annotations| annotations.get(CLASS_ANNOTATION)).cloned();
        let spec = FieldPath::Root("spec");
        let path = spec.child("accessModes");
        let modes = self.access_modes.unwrap_or_default();
        let modes = modes.iter().enumerate().map(|(index, mode)| access_mode(mode, &path.index(index)));
        Ok(VolumeKind {
            storage_class: by_annotation.or(self.storage_class_name).unwrap_or_default(),
            access_modes: modes.collect::<Result<_, _>>()?,
            block: match self.volume_mode.as_deref() {
                None | Some("" | "Filesystem") => false,
                Some("Block") => true,
                Some(other) => {
                    return Err(spec.child("volumeMode").invalid(other, "must be Filesystem or Block"));
                }
            },
            attributes_class: self.volume_attributes_class_name.unwrap_or_default(),
        })
    }
}

fn access_mode(mode: &str, path: &FieldPath<'_>) -> Result<AccessMode, InvalidField> {
    match mode {
        "ReadWriteOnce" => Ok(AccessMode::ReadWriteOnce),
        "ReadOnlyMany" => Ok(AccessMode::ReadOnlyMany),
        "ReadWriteMany" => Ok(AccessMode::ReadWriteMany),
        "ReadWriteOncePod" => Ok(AccessMode::ReadWriteOncePod),
        other => Err(path.invalid(other, "is not a known access mode")),
    }
}

/// An amount of bytes, rounded up.
fn bytes(written: &WrittenQuantity, path: &FieldPath<'_>) -> Result<i64, InvalidField> {
    written.parse().map(muster_api::quantity::Quantity::value).map_err(|error| path.invalid(&written.0, error))
}

/// The requirements of a label selector; `None` if it is not set.
fn selector(
    written: Option<&WrittenLabelSelector>,
    path: &FieldPath<'_>,
) -> Result<Option<Vec<Requirement>>, InvalidField> {
    match WrittenLabelSelector::validate(written, path)? {
        LabelSelector::Nothing => Ok(None),
        LabelSelector::All(requirements) => Ok(Some(requirements.iter().map(requirement).collect())),
    }
}

#[cfg(test)]
mod tests {
    use muster_engine::model::storage::StorageObservation as Seen;
    use serde_json::{Value, json};

    use super::*;

    pub(super) fn read(kind: Storage, object: &Value) -> Result<Seen, String> {
        kind.read(&raw(object))
    }

    fn raw(object: &Value) -> RawObject {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn claim(version: &str, size: &str) -> RawObject {
        raw(&json!({
            "metadata": {"namespace": "ml", "name": "data", "resourceVersion": version},
            "spec": {"resources": {"requests": {"storage": size}}},
        }))
    }

    #[test]
    fn each_kind_is_observed_until_it_is_gone() {
        let mut objects = StorageObjects::default();
        for kind in Storage::ALL {
            let object = raw(&json!({
                "metadata": {"namespace": "ml", "name": "x", "resourceVersion": "1"},
                "provisioner": "p", "storageClassName": "c", "spec": {"drivers": [], "nodeName": "n", "source": {}},
            }));
            let (seen, error) = objects.on_delta(kind, Delta::Applied(object.clone()));
            assert_eq!((seen.len(), error), (1, None), "{kind:?}");
            assert_eq!(objects.on_delta(kind, Delta::Applied(object.clone())), (vec![], None), "nothing new");
            let (gone, _) = objects.on_delta(kind, Delta::Deleted(object.clone()));
            assert_eq!(gone, [kind.gone(key_of(&object))]);
            assert_eq!(objects.on_delta(kind, Delta::Deleted(object)), (vec![], None), "it was gone");
        }
    }

    #[test]
    fn nothing_is_complete_before_every_kind_was_listed_and_what_a_list_lacks_is_gone() {
        let mut objects = StorageObjects::default();
        objects.on_delta(Storage::Claim, Delta::Applied(claim("1", "1Gi")));
        for kind in Storage::ALL {
            assert!(!objects.has_synced());
            let (gone, _) = if kind == Storage::Attachment {
                objects.on_delta(kind, Delta::NotServed)
            } else {
                objects.on_delta(kind, Delta::ListStarted);
                objects.on_delta(kind, Delta::ListDone)
            };
            assert_eq!(gone.len(), usize::from(kind == Storage::Claim));
        }
        assert!(objects.has_synced());
    }

    #[test]
    fn every_version_of_a_claim_is_observed_and_of_a_driver_only_what_matters() {
        let mut objects = StorageObjects::default();
        let count = |objects: &mut StorageObjects, kind, object| objects.on_delta(kind, Delta::Applied(object)).0.len();
        for version in ["1", "2"] {
            assert_eq!(count(&mut objects, Storage::Claim, claim(version, "1Gi")), 1);
        }
        let driver = |version: &str, publishes: bool| {
            raw(&json!({
                "metadata": {"name": "d", "resourceVersion": version}, "spec": {"storageCapacity": publishes},
            }))
        };
        for (version, publishes, expected) in [("1", false, 1), ("2", false, 0), ("3", true, 1)] {
            assert_eq!(count(&mut objects, Storage::Driver, driver(version, publishes)), expected, "{version}");
        }
    }

    #[test]
    fn a_claim_that_became_unusable_is_gone_and_a_node_keeps_its_limits() {
        let mut objects = StorageObjects::default();
        objects.on_delta(Storage::Claim, Delta::Applied(claim("1", "1Gi")));
        let (gone, error) = objects.on_delta(Storage::Claim, Delta::Applied(claim("2", "much")));
        assert_eq!(gone, [Seen::ClaimGone("ml".to_owned(), "data".to_owned())]);
        let error = error.unwrap();
        assert!(
            error.starts_with(
                "PersistentVolumeClaim ml/data: spec.resources.requests[storage]: \"much\": must start with"
            ),
            "{error}"
        );
        assert_eq!(objects.on_delta(Storage::Claim, Delta::Applied(claim("3", "1Gi"))).0.len(), 1);
        let node = |drivers: Value| raw(&json!({"metadata": {"name": "n"}, "spec": {"drivers": drivers}}));
        objects.on_delta(Storage::NodeDrivers, Delta::Applied(node(json!([]))));
        let (gone, error) = objects.on_delta(Storage::NodeDrivers, Delta::Applied(node(json!("all"))));
        assert_eq!(gone, []);
        assert!(error.unwrap().starts_with("CSINode n: invalid type"), "the object is named");
    }

    #[test]
    fn the_annotation_with_the_class_goes_before_the_field() {
        for kind in [Storage::Claim, Storage::Volume] {
            let class = |annotations: Value, class: Value| {
                let object = json!({
                    "metadata": {"name": "x", "annotations": annotations}, "spec": {"storageClassName": class},
                });
                match read(kind, &object).unwrap() {
                    Seen::ClaimSeen(claim) => claim.kind.storage_class,
                    Seen::VolumeSeen(volume) => volume.kind.storage_class,
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(class(json!({CLASS_ANNOTATION: "a"}), json!("b")), "a", "{kind:?}");
            assert_eq!(class(json!({CLASS_ANNOTATION: ""}), json!("b")), "", "{kind:?}");
            assert_eq!(class(json!({}), json!("b")), "b", "{kind:?}");
            assert_eq!(class(Value::Null, Value::Null), "", "{kind:?}");
        }
    }
}
