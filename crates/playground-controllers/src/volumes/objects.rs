//! What the controllers of volumes read of pods, claims, volumes and classes.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use muster_api::quantity::Quantity;
use muster_reflector::{Cache, Key};

use super::keys::{BIND_COMPLETED, BOUND_BY_CONTROLLER, DEFAULT_CLASS, OLD_CLASS};
use crate::owners::is_controlled_by;
use crate::pod_record::{PodRecord, VolumeRecord};

/// The name of the claim of a pod's volume; a volume with a template has a claim that is named after the pod.
pub(crate) fn claim_name(pod: &PodRecord, volume: &VolumeRecord) -> Option<String> {
    let named = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
    named.or_else(|| volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.name_any(), volume.name)))
}

/// The names of all claims of a pod.
pub(crate) fn claim_names(pod: &PodRecord) -> Vec<String> {
    pod.spec.volumes.iter().flatten().filter_map(|volume| claim_name(pod, volume)).collect()
}

/// Whether a claim was made for a volume of this pod.
pub(crate) fn is_made_for(claim: &PersistentVolumeClaim, pod: &PodRecord) -> bool {
    claim.namespace() == pod.namespace() && is_controlled_by(claim, pod)
}

/// The class that a claim asks for; it may be empty, which is not the same as none.
pub(crate) fn written_class(claim: &PersistentVolumeClaim) -> Option<&str> {
    let old = claim.annotations().get(OLD_CLASS).map(String::as_str);
    old.or_else(|| claim.spec.as_ref()?.storage_class_name.as_deref())
}

/// The class of a claim; empty if it has none.
pub(crate) fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    written_class(claim).unwrap_or_default()
}

/// The class of a volume; empty if it has none.
pub(crate) fn volume_class(volume: &PersistentVolume) -> &str {
    let old = volume.annotations().get(OLD_CLASS).map(String::as_str);
    old.or_else(|| volume.spec.as_ref()?.storage_class_name.as_deref()).unwrap_or_default()
}

/// The newest class that is marked as default; the first by name if several are equally old.
pub(crate) fn default_class(classes: &Cache<StorageClass>) -> Option<String> {
    let marked = |class: &StorageClass| {
        DEFAULT_CLASS.iter().any(|key| class.annotations().get(*key).is_some_and(|value| value == "true"))
    };
    let marked = classes.all().filter(|class| marked(class));
    let age = |class: &StorageClass| class.creation_timestamp().map(|time| time.0);
    // Classes are sorted by name, and `max_by_key` takes the last of equals.
    let classes: Vec<_> = marked.collect();
    classes.iter().rev().max_by_key(|class| age(class)).map(|class| class.name_any())
}

/// Whether volumes of the class are bound and made only when a pod needs them.
pub(crate) fn waits_for_consumer(class: Option<&StorageClass>) -> bool {
    class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
}

/// An amount; nothing and what cannot be read are zero.
pub(crate) fn amount(written: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity>) -> Quantity {
    written.and_then(|written| written.0.parse().ok()).unwrap_or_default()
}

/// How large a volume the claim requests.
pub(crate) fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    amount(resources.and_then(|resources| resources.requests.as_ref()?.get("storage")))
}

/// How large a volume is.
pub(crate) fn capacity(volume: &PersistentVolume) -> Quantity {
    amount(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage")))
}

/// The name of the volume of a claim; empty if it has none.
pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default()
}

/// The phase of a claim.
pub(crate) fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The phase of a volume.
pub(crate) fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether the binding of a claim was completed once.
pub(crate) fn has_been_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().contains_key(BIND_COMPLETED)
}

/// Whether a controller has bound the volume or claim, not a user.
pub(crate) fn is_bound_by_controller<K: ResourceExt>(object: &K) -> bool {
    object.annotations().contains_key(BOUND_BY_CONTROLLER)
}

/// The key of the claim that a volume is reserved for.
pub(crate) fn claim_of(volume: &PersistentVolume) -> Option<Key> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some((claim.namespace.clone().unwrap_or_default(), claim.name.clone().unwrap_or_default()))
}

/// The UID of the claim that a volume is reserved for; empty if only its name is known.
pub(crate) fn claim_uid_of(volume: &PersistentVolume) -> &str {
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    claim.and_then(|claim| claim.uid.as_deref()).unwrap_or_default()
}

/// Whether a volume is reserved for or bound to this claim.
pub(crate) fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let uid = claim_uid_of(volume);
    claim_of(volume) == Some(muster_reflector::key_of(claim))
        && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
}

/// Whether a volume and a claim differ in being a file system or a device.
pub(crate) fn differ_in_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    let of_claim = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    of_volume.unwrap_or("Filesystem") != of_claim.unwrap_or("Filesystem")
}

/// The name of the class of attributes, which must be the same on both.
pub(crate) fn differ_in_attributes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let of_claim = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    of_volume.unwrap_or_default() != of_claim.unwrap_or_default()
}

/// The access modes of a volume.
pub(crate) fn access_modes(volume: &PersistentVolume) -> &[String] {
    volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
}

/// Whether a volume has all access modes of a claim.
pub(crate) fn has_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    wanted.iter().all(|mode| access_modes(volume).contains(mode))
}
