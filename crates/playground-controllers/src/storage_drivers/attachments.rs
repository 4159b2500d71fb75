//! The attachments of CSI volumes: the attach-detach controller and the external attacher of each driver in small.
//!
//! A volume is attached to a node while a pod there uses it, if its driver requires that. A volume that only one node
//! may use is attached to one node at a time, and a node takes as many volumes of a driver as its CSINode says.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use serde_json::json;
use tokio::time::Instant;

use super::StorageController;
use super::settings::{ATTACH_SECONDS, DETACH_SECONDS, time_of};
use crate::digest::short_name;
use crate::pod_record::{PodRecord, is_finished, node_name};
use crate::recorder::EventType;
use crate::volumes::fresh_cache;
use crate::volumes::objects::{access_modes, claim_of, volume_name};

/// The volume of an attachment.
pub(super) fn volume_of(attachment: &VolumeAttachment) -> &str {
    attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default()
}

fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|status| status.attached)
}

impl StorageController {
    /// Attaches a volume to a node or detaches it, as the pods there need.
    pub(super) async fn sync_attachment(&mut self, node: &str, name: &str) -> Result<Option<Duration>, kube::Error> {
        let present = self.attachments.all().find(|one| volume_of(one) == name && one.spec.node_name == node);
        let present = present.map(|attachment| (**attachment).clone());
        let wanted = self.volumes.find("", name).cloned().filter(|volume| self.is_attachable(volume));
        let users: Vec<PodRecord> = wanted.iter().flat_map(|volume| self.users(volume, node)).cloned().collect();
        match (present, wanted) {
            (Some(attachment), _) if attachment.metadata.deletion_timestamp.is_some() => {
                self.finish_detaching(&attachment).await
            }
            (Some(attachment), _) if users.is_empty() => self.begin_detaching(&attachment).await.map(|()| None),
            (Some(attachment), _) if is_attached(&attachment) => Ok(None),
            (Some(attachment), Some(volume)) => self.finish_attaching(&attachment, &volume, &users).await,
            (None, Some(volume)) if !users.is_empty() => {
                self.begin_attaching(&volume, node, &users).await.map(|()| None)
            }
            _ => Ok(None),
        }
    }

    /// Whether the driver of a volume exists and wants its volumes to be attached.
    fn is_attachable(&self, volume: &PersistentVolume) -> bool {
        self.driver_of(volume).is_some_and(|driver| driver.spec.attach_required != Some(false))
    }

    fn driver_of(&self, volume: &PersistentVolume) -> Option<&CSIDriver> {
        let driver = &volume.spec.as_ref()?.csi.as_ref()?.driver;
        self.drivers.find("", driver).map(|driver| &**driver)
    }

    /// The pods on a node that use a volume.
    fn users<'a>(&'a self, volume: &PersistentVolume, node: &'a str) -> Vec<&'a PodRecord> {
        let Some(claim) = claim_of(volume) else { return Vec::new() };
        let is_bound = self.claims.get(&claim).is_some_and(|claim| volume_name(claim) == volume.name_any());
        let pods = self.pods.by_index(&claim.0, &claim.1).map(|pod| &**pod).filter(|_| is_bound);
        pods.filter(|pod| node_name(pod) == node && !is_finished(pod)).collect()
    }

    async fn begin_attaching(
        &mut self,
        volume: &PersistentVolume,
        node: &str,
        users: &[PodRecord],
    ) -> Result<(), kube::Error> {
        let name = volume.name_any();
        let is_shared = access_modes(volume).iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany");
        if !is_shared && self.attachments.all().any(|one| volume_of(one) == name) {
            let why = format!(
                "Multi-Attach error for volume {name:?} Volume is already exclusively attached to one node and can't \
                 be attached to another"
            );
            self.report(users, &why);
            return Ok(());
        }
        let Some(csi) = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) else { return Ok(()) };
        let attachment = json!({
            "metadata": {
                "name": format!("csi-{}", short_name(&json!([csi.volume_handle, csi.driver, node]), None)),
                "finalizers": [format!("external-attacher/{}", csi.driver.replace(['.', '/'], "-"))],
            },
            "spec": {"attacher": csi.driver, "nodeName": node, "source": {"persistentVolumeName": name}},
        });
        let attachment: VolumeAttachment = serde_json::from_value(attachment).map_err(kube::Error::SerdeError)?;
        let attachments: Api<VolumeAttachment> = Api::all(self.client.clone());
        match attachments.create(&PostParams::default(), &attachment).await {
            Ok(attachment) => {
                self.attachment_changes.insert(attachment.name_any(), Instant::now());
                fresh_cache::store(&mut self.attachments, attachment);
                Ok(())
            }
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn finish_attaching(
        &mut self,
        attachment: &VolumeAttachment,
        volume: &PersistentVolume,
        users: &[PodRecord],
    ) -> Result<Option<Duration>, kube::Error> {
        if let Some(wait) = self.left_of(attachment, volume, ATTACH_SECONDS) {
            return Ok(Some(wait));
        }
        let name = attachment.name_any();
        let attachments: Api<VolumeAttachment> = Api::all(self.client.clone());
        let full = self.limit_reached(attachment);
        let status = match &full {
            None => json!({"attached": true, "attachError": null}),
            Some(why) => json!({"attached": false, "attachError": {"message": why}}),
        };
        if let Some(why) = &full {
            self.report(users, &format!("AttachVolume.Attach failed for volume {:?} : {why}", volume.name_any()));
            let known = attachment.status.as_ref().and_then(|status| status.attach_error.as_ref()?.message.as_ref());
            if known == Some(why) {
                return Ok(None);
            }
        }
        let patch = json!({
            "metadata": {"resourceVersion": attachment.metadata.resource_version}, "status": status,
        });
        match attachments.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(attachment) => {
                if full.is_none() {
                    self.attachment_changes.remove(&name);
                }
                fresh_cache::store(&mut self.attachments, attachment);
                Ok(None)
            }
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Why a node takes no more volumes of a driver.
    fn limit_reached(&self, attachment: &VolumeAttachment) -> Option<String> {
        let (driver, node) = (&attachment.spec.attacher, &attachment.spec.node_name);
        let drivers = &self.csi_nodes.find("", node)?.spec.drivers;
        let limit = drivers.iter().find(|one| one.name == *driver)?.allocatable.as_ref()?.count?;
        let others = self.attachments.all().filter(|one| one.name_any() != attachment.name_any());
        let others = others.filter(|one| one.spec.attacher == *driver && one.spec.node_name == *node);
        let attached = others.filter(|one| is_attached(one)).count();
        let is_full = i32::try_from(attached).unwrap_or(i32::MAX) >= limit;
        let why = "rpc error: code = ResourceExhausted desc =";
        is_full
            .then(|| format!("{why} node {node} has {attached} volumes of {driver} attached, and its limit is {limit}"))
    }

    async fn begin_detaching(&mut self, attachment: &VolumeAttachment) -> Result<(), kube::Error> {
        let name = attachment.name_any();
        self.attachment_changes.insert(name.clone(), Instant::now());
        let attachments: Api<VolumeAttachment> = Api::all(self.client.clone());
        match attachments.delete(&name, &DeleteParams::default()).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    async fn finish_detaching(&mut self, attachment: &VolumeAttachment) -> Result<Option<Duration>, kube::Error> {
        let volume = self.volumes.find("", volume_of(attachment)).cloned();
        let wait = match &volume {
            Some(volume) => self.left_of(attachment, volume, DETACH_SECONDS),
            None => None,
        };
        if wait.is_some() {
            return Ok(wait);
        }
        let mut free = attachment.clone();
        free.metadata.finalizers = None;
        let attachments: Api<VolumeAttachment> = Api::all(self.client.clone());
        match attachments.replace(&attachment.name_any(), &PostParams::default(), &free).await {
            Err(error) if is_not_found(&error) => Ok(None),
            answer => answer.map(|_| None),
        }
    }

    /// How long it still takes, by an annotation of the volume or else of its driver.
    fn left_of(
        &mut self,
        attachment: &VolumeAttachment,
        volume: &PersistentVolume,
        key: &'static str,
    ) -> Option<Duration> {
        let time = time_of(volume, key).or_else(|| time_of(self.driver_of(volume)?, key)).unwrap_or_default();
        let began = *self.attachment_changes.entry(attachment.name_any()).or_insert_with(Instant::now);
        let left = (began + time).saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    fn report(&self, users: &[PodRecord], why: &str) {
        for pod in users {
            let pod = pod.object_ref(&());
            self.attachment_events.record(pod, EventType::Warning, "FailedAttachVolume", why.to_owned());
        }
    }
}
