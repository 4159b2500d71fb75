//! How the binder syncs a claim.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};
use muster_reflector::Key;

use super::super::VolumeController;
use super::super::fresh_cache::store;
use super::super::keys::{OLD_STORAGE_PROVISIONER, SELECTED_NODE, STORAGE_PROVISIONER};
use super::super::matching;
use super::super::objects::{
    claim_class, claim_of, claim_phase, claim_uid_of, default_class, has_been_bound, is_bound_to, volume_name,
    waits_for_consumer, written_class,
};
use crate::pod_record::{is_finished, node_name};
use crate::recorder::EventType;

/// Provisioners that are part of Kubernetes, none of which exists here.
const IN_TREE: &str = "kubernetes.io/";

impl VolumeController {
    /// Syncs a claim. Returns whether nothing is left to do until something changes.
    pub(in super::super) async fn sync_claim(&mut self, key: &Key) -> Result<bool, kube::Error> {
        let Some(claim) = self.claims.get(key).cloned() else { return Ok(true) };
        if has_been_bound(&claim) {
            return self.sync_bound_claim(&claim).await.map(|()| true);
        }
        Box::pin(self.sync_unbound_claim(&claim)).await.map(|()| false)
    }

    async fn sync_unbound_claim(&mut self, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        if !volume_name(claim).is_empty() {
            return self.sync_claim_with_volume(claim).await;
        }
        let waits = waits_for_consumer(self.classes.find("", claim_class(claim)).map(|class| &**class));
        let volumes = self.volumes.all().map(|volume| &**volume);
        if let Some(volume) = matching::find(claim, volumes, waits).cloned() {
            return self.bind(&volume, claim).await;
        }
        if written_class(claim).is_none()
            && let Some(class) = default_class(&self.classes)
        {
            let mut changed = claim.clone();
            changed.spec.get_or_insert_default().storage_class_name = Some(class);
            return self.replace_claim(&changed).await.map(drop);
        }
        if waits && !claim.annotations().contains_key(SELECTED_NODE) {
            let (reason, message) = self.waiting_event(claim);
            self.claim_event(claim, EventType::Normal, reason, message).await;
        } else if !claim_class(claim).is_empty() {
            return self.request_provisioning(claim).await;
        } else {
            let message = "no persistent volumes available for this claim and no storage class is set";
            self.claim_event(claim, EventType::Normal, "FailedBinding", message.to_owned()).await;
        }
        self.set_claim_phase(claim, "Pending", None).await.map(drop)
    }

    /// What a claim waits for that the scheduler has not decided about.
    fn waiting_event(&self, claim: &PersistentVolumeClaim) -> (&'static str, String) {
        let namespace = claim.namespace().unwrap_or_default();
        let pods = self.pods.by_index(&namespace, claim.name_any().as_str());
        let waiting = pods.filter(|pod| !is_finished(pod) && node_name(pod).is_empty());
        let names: Vec<String> = waiting.map(|pod| pod.name_any()).collect();
        match &*names {
            [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
            [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
            pods => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
        }
    }

    /// Asks an external provisioner for a volume, by annotations of the claim.
    async fn request_provisioning(&mut self, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        let name = claim_class(claim);
        let why = match self.classes.find("", name) {
            None => format!("storageclass.storage.k8s.io {name:?} not found"),
            Some(class) if class.provisioner.starts_with(IN_TREE) => {
                format!("no volume plugin matched name: {}", class.provisioner)
            }
            Some(class) => {
                let provisioner = class.provisioner.clone();
                let claim = self.set_provisioner(claim, &provisioner).await?;
                let message = format!(
                    "Waiting for a volume to be created either by the external provisioner '{provisioner}' or \
                     manually by the system administrator. If volume creation is delayed, please verify that the \
                     provisioner is running and correctly registered."
                );
                self.claim_event(&claim, EventType::Normal, "ExternalProvisioning", message).await;
                return Ok(());
            }
        };
        self.claim_event(claim, EventType::Warning, "ProvisioningFailed", why).await;
        Ok(())
    }

    async fn set_provisioner(
        &mut self,
        claim: &PersistentVolumeClaim,
        provisioner: &str,
    ) -> Result<PersistentVolumeClaim, kube::Error> {
        if claim.annotations().get(STORAGE_PROVISIONER).is_some_and(|written| written == provisioner) {
            return Ok(claim.clone());
        }
        let mut changed = claim.clone();
        for key in [OLD_STORAGE_PROVISIONER, STORAGE_PROVISIONER] {
            changed.annotations_mut().insert(key.to_owned(), provisioner.to_owned());
        }
        self.replace_claim(&changed).await
    }

    /// A claim that names a volume, which may be bound by a user or half bound by this controller.
    async fn sync_claim_with_volume(&mut self, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        let Some(volume) = self.volumes.find("", volume_name(claim)).cloned() else {
            return self.set_claim_phase(claim, "Pending", None).await.map(drop);
        };
        let why = if claim_of(&volume).is_none() {
            match matching::mismatch(&volume, claim) {
                None => return self.bind(&volume, claim).await,
                Some(why) => {
                    ("VolumeMismatch", format!("Cannot bind to requested volume {:?}: {why}", volume.name_any()))
                }
            }
        } else if is_bound_to(&volume, claim) {
            return self.bind(&volume, claim).await;
        } else {
            ("FailedBinding", format!("volume {:?} already bound to a different claim.", volume.name_any()))
        };
        self.claim_event(claim, EventType::Warning, why.0, why.1).await;
        self.set_claim_phase(claim, "Pending", None).await.map(drop)
    }

    /// A claim that was bound stays bound, or is lost for ever.
    async fn sync_bound_claim(&mut self, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        let name = volume_name(claim);
        if name.is_empty() {
            let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
            return self.lose_claim(claim, "ClaimLost", message).await;
        }
        let Some(volume) = self.volumes.find("", name).cloned() else {
            let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            return self.lose_claim(claim, "ClaimLost", message).await;
        };
        if claim_of(&volume).is_none() || claim.metadata.uid.as_deref() == Some(claim_uid_of(&volume)) {
            return self.bind(&volume, claim).await;
        }
        let message = "Two claims are bound to the same volume, this one is bound incorrectly";
        self.lose_claim(claim, "ClaimMisbound", message).await
    }

    async fn lose_claim(
        &mut self,
        claim: &PersistentVolumeClaim,
        reason: &str,
        message: &str,
    ) -> Result<(), kube::Error> {
        if claim_phase(claim) != "Lost" {
            let lost = self.set_claim_phase(claim, "Lost", None).await?;
            self.claim_event(&lost, EventType::Warning, reason, message.to_owned()).await;
        }
        Ok(())
    }

    /// Completes the binding of a volume and a claim: the writes that are missing, in their order.
    pub(super) async fn bind(
        &mut self,
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), kube::Error> {
        let volume = self.reserve_volume(volume, claim).await?;
        let volume = self.set_volume_phase(&volume, "Bound", "").await?;
        let claim = self.set_volume_of_claim(claim, &volume).await?;
        self.set_claim_phase(&claim, "Bound", Some(&volume)).await.map(drop)
    }

    pub(super) async fn claim_event(
        &mut self,
        claim: &PersistentVolumeClaim,
        event_type: EventType,
        reason: &str,
        message: String,
    ) {
        self.binder_events.record(claim.object_ref(&()), event_type, reason, message).await;
    }

    /// Writes a changed claim.
    pub(super) async fn replace_claim(
        &mut self,
        claim: &PersistentVolumeClaim,
    ) -> Result<PersistentVolumeClaim, kube::Error> {
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        let written = claims.replace(&claim.name_any(), &PostParams::default(), claim).await?;
        Ok((*store(&mut self.claims, written)).clone())
    }
}
