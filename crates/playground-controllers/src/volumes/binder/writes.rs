//! The writes of a binding. Each is left out if the object already has what it would write.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};

use super::super::VolumeController;
use super::super::fresh_cache::store;
use super::super::keys::{BIND_COMPLETED, BOUND_BY_CONTROLLER};
use super::super::objects::{
    access_modes, claim_of, claim_phase, claim_uid_of, is_bound_by_controller, is_bound_to, volume_name, volume_phase,
};

const YES: &str = "yes";

impl VolumeController {
    /// The first write: the volume names the claim.
    pub(super) async fn reserve_volume(
        &mut self,
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
    ) -> Result<PersistentVolume, kube::Error> {
        let mut changed = volume.clone();
        let names_it = claim_of(volume) == Some(muster_reflector::key_of(claim))
            && claim.metadata.uid.as_deref() == Some(claim_uid_of(volume));
        if !names_it {
            changed.spec.get_or_insert_default().claim_ref = Some(claim.object_ref(&()));
        }
        if !is_bound_to(volume, claim) {
            // It was not reserved by a user.
            changed.annotations_mut().entry(BOUND_BY_CONTROLLER.to_owned()).or_insert_with(|| YES.to_owned());
        }
        if changed == *volume { Ok(changed) } else { self.replace_volume(&changed).await }
    }

    /// The second write, and every other change of a volume's phase.
    pub(super) async fn set_volume_phase(
        &mut self,
        volume: &PersistentVolume,
        phase: &str,
        message: &str,
    ) -> Result<PersistentVolume, kube::Error> {
        if volume_phase(volume) == phase {
            return Ok(volume.clone());
        }
        let mut changed = volume.clone();
        let status = changed.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        status.message = Some(message.to_owned()).filter(|message| !message.is_empty());
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let written = volumes.replace_status(&volume.name_any(), &PostParams::default(), &changed).await?;
        Ok((*store(&mut self.volumes, written)).clone())
    }

    /// The third write: the claim names the volume.
    pub(super) async fn set_volume_of_claim(
        &mut self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<PersistentVolumeClaim, kube::Error> {
        let mut changed = claim.clone();
        if volume_name(claim) != volume.name_any() {
            changed.spec.get_or_insert_default().volume_name = Some(volume.name_any());
            changed.annotations_mut().entry(BOUND_BY_CONTROLLER.to_owned()).or_insert_with(|| YES.to_owned());
        }
        changed.annotations_mut().entry(BIND_COMPLETED.to_owned()).or_insert_with(|| YES.to_owned());
        if changed == *claim { Ok(changed) } else { self.replace_claim(&changed).await }
    }

    /// The fourth write, and every other change of a claim's phase. With a volume, the claim shows what it has.
    pub(super) async fn set_claim_phase(
        &mut self,
        claim: &PersistentVolumeClaim,
        phase: &str,
        volume: Option<&PersistentVolume>,
    ) -> Result<PersistentVolumeClaim, kube::Error> {
        let was = claim_phase(claim).to_owned();
        let mut changed = claim.clone();
        let status = changed.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        if let Some(volume) = volume {
            let spec = volume.spec.clone().unwrap_or_default();
            status.access_modes = Some(access_modes(volume).to_vec());
            // The size of a bound claim is that of its file system, which may differ.
            if was != phase {
                status.capacity = spec.capacity;
            }
            if (was.as_str(), phase) == ("Pending", "Bound") {
                status.current_volume_attributes_class_name = spec.volume_attributes_class_name;
            }
        } else {
            (status.access_modes, status.capacity, status.current_volume_attributes_class_name) = (None, None, None);
        }
        if changed == *claim {
            return Ok(changed);
        }
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        let written = claims.replace_status(&claim.name_any(), &PostParams::default(), &changed).await?;
        Ok((*store(&mut self.claims, written)).clone())
    }

    /// Writes a changed volume.
    pub(super) async fn replace_volume(&mut self, volume: &PersistentVolume) -> Result<PersistentVolume, kube::Error> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let written = volumes.replace(&volume.name_any(), &PostParams::default(), volume).await?;
        Ok((*store(&mut self.volumes, written)).clone())
    }
}

/// Removes what binds a volume to its claim; of a user's reservation only the UID.
pub(super) fn forget_claim(volume: &mut PersistentVolume) {
    if is_bound_by_controller(volume) {
        volume.annotations_mut().remove(BOUND_BY_CONTROLLER);
        volume.spec.get_or_insert_default().claim_ref = None;
    } else if let Some(claim) = volume.spec.as_mut().and_then(|spec| spec.claim_ref.as_mut()) {
        claim.uid = None;
    }
}
