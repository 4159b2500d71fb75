//! How the binder syncs a volume.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams};
use kube::{Resource, ResourceExt};
use muster_playground_client::api_errors::is_not_found;
use muster_reflector::Key;

use super::super::VolumeController;
use super::super::fresh_cache::store;
use super::super::keys::PROVISIONED_BY;
use super::super::objects::{claim_of, claim_uid_of, differ_in_mode, volume_name, volume_phase};
use crate::recorder::EventType;

impl VolumeController {
    /// Syncs a volume. Returns whether nothing is left to do until something changes.
    pub(in super::super) async fn sync_volume(&mut self, name: &str) -> Result<bool, kube::Error> {
        let Some(volume) = self.volumes.find("", name).cloned() else { return Ok(true) };
        let Some(key) = claim_of(&volume) else {
            return self.set_volume_phase(&volume, "Available", "").await.map(|_| true);
        };
        if claim_uid_of(&volume).is_empty() {
            // It is reserved for a claim, whose sync binds it.
            return self.set_volume_phase(&volume, "Available", "").await.map(|_| true);
        }
        let Some(claim) = self.claim_of_volume(&volume, &key).await? else {
            let volume = self.release(&volume).await?;
            return self.reclaim(&volume).await.map(|()| true);
        };
        let bound_to = volume_name(&claim);
        if bound_to.is_empty() && differ_in_mode(&volume, &claim) {
            self.report_mode(&volume, &claim).await;
            return Ok(false);
        } else if bound_to.is_empty() {
            // The scheduler or a provisioner has begun this binding.
            return Box::pin(self.sync_claim(&key)).await;
        } else if bound_to == name {
            return self.set_volume_phase(&volume, "Bound", "").await.map(|_| true);
        }
        // The claim was satisfied by another volume.
        if volume.annotations().contains_key(PROVISIONED_BY) && reclaim_policy(&volume) == "Delete" {
            let volume = self.release(&volume).await?;
            return self.reclaim(&volume).await.map(|()| true);
        }
        self.unbind(&volume).await.map(|()| true)
    }

    /// The claim that the volume is bound to, if it exists. The cache may not show the newest.
    async fn claim_of_volume(
        &mut self,
        volume: &PersistentVolume,
        key: &Key,
    ) -> Result<Option<PersistentVolumeClaim>, kube::Error> {
        let is_it = |claim: &PersistentVolumeClaim| claim.metadata.uid.as_deref() == Some(claim_uid_of(volume));
        if let Some(claim) = self.claims.get(key).filter(|claim| is_it(claim)) {
            return Ok(Some((**claim).clone()));
        }
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.0);
        let claim = claims.get_opt(&key.1).await?.filter(is_it);
        Ok(claim.map(|claim| (*store(&mut self.claims, claim)).clone()))
    }

    async fn report_mode(&mut self, volume: &PersistentVolume, claim: &PersistentVolumeClaim) {
        let message = format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible volumeMode.",
            claim.name_any()
        );
        self.binder_events.record(volume.object_ref(&()), EventType::Warning, "VolumeMismatch", message).await;
        let message = format!(
            "Cannot bind PersistentVolume {:?} to requested PersistentVolumeClaim due to incompatible volumeMode.",
            volume.name_any()
        );
        self.claim_event(claim, EventType::Warning, "VolumeMismatch", message).await;
    }

    /// Marks a volume whose claim is gone. A failure stays visible.
    async fn release(&mut self, volume: &PersistentVolume) -> Result<PersistentVolume, kube::Error> {
        match volume_phase(volume) {
            "Released" | "Failed" => Ok(volume.clone()),
            _ => self.set_volume_phase(volume, "Released", "").await,
        }
    }

    /// Does with a released volume what its policy says. What a provisioner made, the provisioner deletes.
    async fn reclaim(&mut self, volume: &PersistentVolume) -> Result<(), kube::Error> {
        let spec = volume.spec.clone().unwrap_or_default();
        match reclaim_policy(volume) {
            "Delete" if volume.annotations().contains_key(PROVISIONED_BY) || spec.csi.is_some() => Ok(()),
            "Delete" => match spec.host_path {
                Some(path) if path.path.len() > "/tmp/".len() && path.path.starts_with("/tmp/") => {
                    let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
                    match volumes.delete(&volume.name_any(), &DeleteParams::default()).await {
                        Err(error) if is_not_found(&error) => Ok(()),
                        answer => answer.map(drop),
                    }
                }
                Some(path) => {
                    let path = path.path;
                    let why = format!("host_path deleter only supports /tmp/.+ but received provided {path}");
                    self.fail_volume(volume, "VolumeFailedDelete", why).await
                }
                None => {
                    let name = volume.name_any();
                    let why = format!(
                        "error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched"
                    );
                    self.fail_volume(volume, "VolumeFailedDelete", why).await
                }
            },
            "Recycle" => {
                let why = "No recycler plugin found for the volume!".to_owned();
                self.fail_volume(volume, "VolumeFailedRecycle", why).await
            }
            _ => Ok(()),
        }
    }

    async fn fail_volume(&mut self, volume: &PersistentVolume, reason: &str, why: String) -> Result<(), kube::Error> {
        if volume_phase(volume) == "Failed" {
            return Ok(());
        }
        let failed = self.set_volume_phase(volume, "Failed", &why).await?;
        self.binder_events.record(failed.object_ref(&()), EventType::Warning, reason, why).await;
        Ok(())
    }

    /// Undoes a binding: a user's reservation stays, without the UID of the claim.
    async fn unbind(&mut self, volume: &PersistentVolume) -> Result<(), kube::Error> {
        let mut free = volume.clone();
        super::writes::forget_claim(&mut free);
        let free = self.replace_volume(&free).await?;
        self.set_volume_phase(&free, "Available", "").await.map(drop)
    }
}

fn reclaim_policy(volume: &PersistentVolume) -> &str {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    policy.unwrap_or("Retain")
}
