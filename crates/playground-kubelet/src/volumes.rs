//! The volumes of pods with claims: whether a node can mount them, and what stands in the way.
//!
//! Invariant: every pod that waits for volumes is indexed by its claims, so that a change of one of these is noticed.
//! Must not depend on the clock or on how pods run.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::ResourceExt;
use muster_api::invalid::FieldPath;
use muster_api::node_selector::WrittenNodeSelector;
use muster_api::selector::Labels;
use muster_playground_client::untyped::{self, UntypedPod};
use muster_reflector::{Cache, Delta, Key, key_of};

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const UNABLE: &str = "Unable to attach or mount volumes:";

/// A change of the objects that volumes depend on.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // only one exists at a time
pub(super) enum VolumeEvent {
    Claim(Delta<PersistentVolumeClaim>),
    Volume(Delta<PersistentVolume>),
    Driver(Delta<CSIDriver>),
    Attachment(Delta<VolumeAttachment>),
}

/// A volume of a pod that has a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimVolume {
    name: String,
    claim: String,
    /// Whether the claim has to be owned by the pod.
    is_ephemeral: bool,
}

/// The volumes of a pod that have claims.
pub(super) fn claim_volumes(pod: &UntypedPod) -> Vec<ClaimVolume> {
    let volumes = pod.spec["volumes"].as_array().into_iter().flatten();
    let with_claims = volumes.filter_map(|volume| {
        let name = volume["name"].as_str().unwrap_or_default().to_owned();
        if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            return Some(ClaimVolume { name, claim: claim.to_owned(), is_ephemeral: false });
        }
        let claim = format!("{}-{name}", pod.name_any());
        volume["ephemeral"].is_object().then_some(ClaimVolume { name, claim, is_ephemeral: true })
    });
    with_claims.collect()
}

/// Why a pod cannot start yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Not everything has been read yet.
    Unknown,
    /// What a kubelet reports at once.
    Failed(String),
    /// What a kubelet reports when it has waited for a while.
    Slow(String),
}

/// Claims, volumes, drivers and attachments, and the pods that wait for them.
#[derive(Debug, Default)]
pub(super) struct VolumeIndex {
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    drivers: Cache<CSIDriver>,
    attachments: Cache<VolumeAttachment>,
    /// Volumes and nodes that are attached.
    attached: BTreeSet<(String, String)>,
    /// The pods that wait for a claim.
    waiting: BTreeMap<Key, BTreeSet<Key>>,
}

impl VolumeIndex {
    /// Applies an event. Returns the pods that wait for what it changed.
    pub(super) fn observe(&mut self, event: VolumeEvent) -> BTreeSet<Key> {
        let was_synced = self.has_synced();
        let mut claims: Vec<Key> = Vec::new();
        let mut is_about_all = false;
        match event {
            VolumeEvent::Claim(event) => {
                claims.extend(self.claims.apply(event).iter().filter_map(|change| Some(key_of(&**change.latest()?))));
            }
            VolumeEvent::Volume(event) => {
                for change in self.volumes.apply(event) {
                    claims
                        .extend([change.old, change.new].into_iter().flatten().filter_map(|volume| claim_of(&volume)));
                }
            }
            VolumeEvent::Driver(event) => is_about_all = !self.drivers.apply(event).is_empty(),
            VolumeEvent::Attachment(event) => {
                for change in self.attachments.apply(event) {
                    let place = |one: &VolumeAttachment| (volume_of(one).to_owned(), one.spec.node_name.clone());
                    if let Some(old) = &change.old {
                        self.attached.remove(&place(old));
                    }
                    let now = change.new.as_deref().filter(|one| is_attached(one));
                    self.attached.extend(now.map(place));
                    let volume = change.latest().and_then(|one| self.volumes.find("", volume_of(one)));
                    claims.extend(volume.and_then(|volume| claim_of(volume)));
                }
            }
        }
        if is_about_all || (!was_synced && self.has_synced()) {
            return self.waiting.values().flatten().cloned().collect();
        }
        claims.iter().filter_map(|claim| self.waiting.get(claim)).flatten().cloned().collect()
    }

    fn has_synced(&self) -> bool {
        self.claims.has_synced()
            && self.volumes.has_synced()
            && self.drivers.has_synced()
            && self.attachments.has_synced()
    }

    /// Adds a pod that waits.
    pub(super) fn wait(&mut self, pod: &Key, volumes: &[ClaimVolume]) {
        for volume in volumes {
            self.waiting.entry((pod.0.clone(), volume.claim.clone())).or_default().insert(pod.clone());
        }
    }

    /// Removes a pod that waits no more.
    pub(super) fn leave(&mut self, pod: &Key, volumes: &[ClaimVolume]) {
        for volume in volumes {
            let claim = (pod.0.clone(), volume.claim.clone());
            if let Some(pods) = self.waiting.get_mut(&claim) {
                pods.remove(pod);
                if pods.is_empty() {
                    self.waiting.remove(&claim);
                }
            }
        }
    }

    /// Checks whether all volumes of a pod can be mounted on this node.
    pub(super) fn check(
        &self,
        pod: &UntypedPod,
        volumes: &[ClaimVolume],
        node: &str,
        labels: &Labels,
    ) -> Result<(), Obstacle> {
        if !self.has_synced() {
            return Err(Obstacle::Unknown);
        }
        let mut found = Vec::new();
        let mut failed = Vec::new();
        for volume in volumes {
            match self.volume_for(pod, volume) {
                Ok(bound) => found.push((volume, bound)),
                Err(why) => failed.push((volume.name.as_str(), why)),
            }
        }
        if !failed.is_empty() {
            let names: Vec<&str> = failed.iter().map(|(name, _)| *name).collect();
            let why: Vec<String> = failed.iter().map(|(_, why)| why.clone()).collect();
            let names = names.join(" ");
            return Err(Obstacle::Failed(format!(
                "{UNABLE} unmounted volumes=[{names}], unattached volumes=[], failed to process volumes=[{names}]: {}",
                why.join("; ")
            )));
        }
        let unattached = found.iter().filter(|(_, bound)| !self.is_attached(bound, node));
        let unattached: Vec<&str> = unattached.map(|(volume, _)| volume.name.as_str()).collect();
        if !unattached.is_empty() {
            let names = unattached.join(" ");
            return Err(Obstacle::Slow(format!(
                "{UNABLE} unmounted volumes=[{names}], unattached volumes=[{names}], failed to process volumes=[]: \
                 context deadline exceeded"
            )));
        }
        match found.iter().find(|(_, bound)| !is_accessible(bound, labels)) {
            Some((_, bound)) => Err(Obstacle::Failed(format!(
                "MountVolume.NodeAffinity check failed for volume {:?} : no matching NodeSelectorTerms",
                bound.name_any()
            ))),
            None => Ok(()),
        }
    }

    /// The volume that a claim of the pod is bound to.
    fn volume_for(&self, pod: &UntypedPod, volume: &ClaimVolume) -> Result<&PersistentVolume, String> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), &volume.claim);
        let error = |why: String| format!("error processing PVC {namespace}/{name}: {why}");
        let Some(claim) = self.claims.find(&namespace, name) else {
            let why = format!("persistentvolumeclaims {name:?} not found");
            return Err(error(format!("failed to fetch PVC from API server: {why}")));
        };
        let status = claim.status.as_ref();
        let is_protected = claim.finalizers().iter().any(|finalizer| finalizer == CLAIM_PROTECTION);
        if claim.metadata.deletion_timestamp.is_some() && !is_protected {
            return Err(error("PVC is being deleted".to_owned()));
        }
        if status.and_then(|status| status.phase.as_deref()) != Some("Bound") {
            return Err(error("PVC is not bound".to_owned()));
        }
        let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        if bound.is_empty() {
            return Err(error("PVC has empty pvc.Spec.VolumeName".to_owned()));
        }
        if volume.is_ephemeral && !is_controlled_by(claim, pod) {
            let pod = pod.name_any();
            return Err(format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"));
        }
        let Some(found) = self.volumes.find("", bound) else {
            let why = format!("persistentvolumes {bound:?} not found");
            return Err(error(format!("failed to fetch PV {bound} from API server: {why}")));
        };
        let Some(reference) = found.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else {
            let why = "but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim";
            return Err(error(format!("found PV object {bound} {why}")));
        };
        let (uid, expected) = (reference.uid.clone().unwrap_or_default(), claim.uid().unwrap_or_default());
        if uid != expected {
            let why = format!("its pv.Spec.ClaimRef.UID {uid} does not point to claim.UID {expected}");
            return Err(error(format!("found PV object {bound} but {why}")));
        }
        Ok(found)
    }

    /// Whether a volume is attached to the node, or needs not be.
    fn is_attached(&self, volume: &PersistentVolume, node: &str) -> bool {
        let Some(csi) = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) else { return true };
        let Some(driver) = self.drivers.find("", &csi.driver) else { return true };
        driver.spec.attach_required == Some(false) || self.attached.contains(&(volume.name_any(), node.to_owned()))
    }
}

fn volume_of(attachment: &VolumeAttachment) -> &str {
    attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default()
}

fn is_attached(attachment: &VolumeAttachment) -> bool {
    let attached = attachment.status.as_ref().is_some_and(|status| status.attached);
    attached && attachment.metadata.deletion_timestamp.is_none()
}

fn claim_of(volume: &PersistentVolume) -> Option<Key> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some((claim.namespace.clone()?, claim.name.clone()?))
}

fn is_controlled_by(claim: &PersistentVolumeClaim, pod: &UntypedPod) -> bool {
    let mut owners = claim.owner_references().iter();
    owners.any(|owner| owner.controller == Some(true) && owner.uid == untyped::uid(pod))
}

/// Whether a node with these labels can access the volume.
fn is_accessible(volume: &PersistentVolume, labels: &Labels) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else { return true };
    let written = serde_json::to_value(required).and_then(serde_json::from_value::<WrittenNodeSelector>);
    let path = FieldPath::Root("spec.nodeAffinity.required");
    let read = written.ok().and_then(|written| written.validate(&path).ok());
    // Only the labels of the node are known to this check, not its name.
    read.is_some_and(|selector| selector.matches(labels, ""))
}
