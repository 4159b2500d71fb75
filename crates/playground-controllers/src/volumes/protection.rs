//! The protection of volumes and claims in use: a finalizer that admission adds, and that is removed when a deleted
//! object has no users left.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, ListParams, PostParams};
use kube::{Resource, ResourceExt};
use muster_playground_client::api_errors::is_not_found;
use muster_reflector::Key;

use super::VolumeController;
use super::fresh_cache::store;
use super::keys::{CLAIM_PROTECTION, VOLUME_PROTECTION};
use super::objects::{claim_name, is_made_for, volume_phase};
use crate::pod_record::{PodRecord, is_terminating, node_name};

impl VolumeController {
    /// Removes the protection of a deleted claim that no pod on a node uses. Returns whether it was removed.
    pub(super) async fn release_claim(&mut self, key: &Key) -> Result<bool, kube::Error> {
        let Some(claim) = self.claims.get(key).filter(|claim| is_protected(&***claim, CLAIM_PROTECTION)).cloned()
        else {
            return Ok(false);
        };
        if self.pods.by_index(&key.0, &key.1).any(|pod| uses(pod, &claim)) {
            return Ok(false);
        }
        // The cache may not show the newest pods.
        let pods: Api<PodRecord> = Api::namespaced(self.client.clone(), &key.0);
        if pods.list(&ListParams::default()).await?.items.iter().any(|pod| uses(pod, &claim)) {
            return Ok(false);
        }
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.0);
        let released = without_finalizer(&*claim, CLAIM_PROTECTION);
        match claims.replace(&key.1, &PostParams::default(), &released).await {
            Ok(_) => Ok(true),
            Err(error) if is_not_found(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Removes the protection of a deleted volume that is not bound. Returns whether it was removed.
    pub(super) async fn release_volume(&mut self, name: &str) -> Result<bool, kube::Error> {
        let volume = self.volumes.find("", name);
        let Some(volume) = volume.filter(|volume| is_protected(&***volume, VOLUME_PROTECTION)).cloned() else {
            return Ok(false);
        };
        if volume_phase(&volume) == "Bound" {
            return Ok(false);
        }
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let released = without_finalizer(&*volume, VOLUME_PROTECTION);
        match volumes.replace(name, &PostParams::default(), &released).await {
            Ok(volume) if volume.finalizers().is_empty() => Ok(true),
            Ok(volume) => {
                // Its provisioner holds it.
                store(&mut self.volumes, volume);
                Ok(false)
            }
            Err(error) if is_not_found(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Whether a deleted object still has the finalizer.
fn is_protected<K: Resource>(object: &K, finalizer: &str) -> bool {
    object.meta().deletion_timestamp.is_some() && object.finalizers().iter().any(|one| one == finalizer)
}

fn without_finalizer<K: Resource + Clone>(object: &K, finalizer: &str) -> K {
    let mut object = object.clone();
    object.finalizers_mut().retain(|one| one != finalizer);
    object
}

/// Whether a pod on a node uses the claim; one that its kubelet is done with does not use its ephemeral ones.
fn uses(pod: &PodRecord, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.name_any();
    let is_shut_down = is_terminating(pod) && pod.metadata.deletion_grace_period_seconds == Some(0);
    let mut volumes = pod.spec.volumes.iter().flatten();
    !node_name(pod).is_empty()
        && volumes.any(|volume| {
            let is_it = claim_name(pod, volume).as_deref() == Some(&name);
            is_it && (volume.ephemeral.is_none() || (!is_shut_down && is_made_for(claim, pod)))
        })
}
