//! The fake provisioner: answers claims that name it as a CSI driver would, after a delay, with a volume or a refusal.
//!
//! Once it has begun it does not look at the claim again: the volume is made for the node of that moment, even if the
//! claim is deleted meanwhile. That is what makes a selected node an act that cannot be taken back.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use muster_api::wire::Node;
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_reflector::{Key, key_of};
use serde_json::json;
use tokio::time::Instant;

use super::StorageController;
use super::pools::Placement;
use super::settings::{REFUSALS, Refusals, Settings, driver_of, is_ours};
use crate::owners::error_message;
use crate::reconcile::WorkQueue;
use crate::recorder::EventType;
use crate::volumes::fresh_cache;
use crate::volumes::keys::{
    OLD_STORAGE_PROVISIONER, PROVISIONED_BY, PROVISIONER_FINALIZER, SELECTED_NODE, STORAGE_PROVISIONER,
};
use crate::volumes::objects::{claim_class, requested, volume_name, volume_phase, waits_for_consumer};

/// In the attributes of a volume: the claim that it was made for. It marks the volume as the provisioner's.
pub(super) const MADE_FOR: &str = "playground.muster.dev/made-for";
/// In the attributes of a volume: the pool that it is in.
pub(super) const POOL: &str = "playground.muster.dev/pool";
/// How long a claim that waits for no pod is left alone after a refusal.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// A volume that is being made.
pub(super) struct Operation {
    claim: PersistentVolumeClaim,
    class: StorageClass,
    /// The node that was selected when it began.
    pub(super) node: Option<String>,
    stage: Stage,
}

/// How far it has got.
enum Stage {
    /// Nothing happens before this time; never, if there is none.
    Waiting(Option<Instant>),
    /// The volume is being written.
    Writing(Box<PersistentVolume>),
}

impl Operation {
    /// The volume that is being written.
    pub(super) fn written(&self) -> Option<&PersistentVolume> {
        match &self.stage {
            Stage::Waiting(_) => None,
            Stage::Writing(volume) => Some(volume),
        }
    }
}

/// The answer to the write of a claim's volume.
pub(super) struct Made {
    key: Key,
    outcome: Result<PersistentVolume, kube::Error>,
}

/// Why there is no volume.
enum Failure {
    /// It is final: the scheduler has to decide again.
    Refused(String),
    /// Something does not exist yet.
    NotReady,
}

impl StorageController {
    /// Begins or completes the provisioning of a claim.
    pub(super) async fn provision(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let now = Instant::now();
        match self.operations.get(key).map(|operation| &operation.stage) {
            Some(Stage::Writing(_)) => Ok(None),
            Some(Stage::Waiting(Some(due))) if *due > now => Ok(Some(*due - now)),
            Some(Stage::Waiting(Some(_))) => self.answer(key).await,
            Some(Stage::Waiting(None)) | None => self.begin(key, now).await,
        }
    }

    /// Begins, if the claim asks for a volume of a class of this provisioner.
    async fn begin(&mut self, key: &Key, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let was_stuck_on = self.operations.remove(key).map(|operation| operation.node);
        let Some(claim) = self.claims.get(key).cloned() else { return Ok(None) };
        let Some(class) = self.classes.find("", claim_class(&claim)).cloned() else { return Ok(None) };
        let asked = [STORAGE_PROVISIONER, OLD_STORAGE_PROVISIONER].iter().find_map(|key| claim.annotations().get(*key));
        let node = claim.annotations().get(SELECTED_NODE).filter(|node| !node.is_empty()).cloned();
        let waits = waits_for_consumer(Some(&class));
        let is_asked = asked == Some(&class.provisioner) && is_ours(&class) && (node.is_some() || !waits);
        let is_made = self.volumes.find("", &name_for(&claim)).is_some();
        if !is_asked || is_made || !volume_name(&claim).is_empty() {
            return Ok(None);
        }
        if let Some(name) = &node
            && self.node(name).await?.is_none()
        {
            let why = format!("failed to get target node: node {name:?} not found");
            return self.refuse(&claim, &why, false).await.map(|()| None);
        }
        // Invalid settings are reported with the answer.
        let settings = Settings::of_claim(&class, &claim);
        let is_stuck = settings.as_ref().is_ok_and(|settings| settings.stuck);
        let mut delay = settings.map_or(RETRY_MIN, |settings| settings.delay);
        if node.is_none() && claim.annotations().contains_key(REFUSALS) {
            delay = delay.max(RETRY_MIN);
        }
        if was_stuck_on.as_ref() != Some(&node) {
            let message = format!("External provisioner is provisioning volume for claim \"{}/{}\"", key.0, key.1);
            self.provisioner_events.record(claim.object_ref(&()), EventType::Normal, "Provisioning", message);
        }
        let stage = Stage::Waiting((!is_stuck).then(|| now + delay));
        let operation = Operation { claim: (*claim).clone(), class: (*class).clone(), node, stage };
        self.operations.insert(key.clone(), operation);
        Ok((!is_stuck).then_some(delay))
    }

    async fn node(&self, name: &str) -> Result<Option<Node>, kube::Error> {
        if let Some(node) = self.nodes.find("", name) {
            return Ok(Some((**node).clone()));
        }
        // The cache may not show the newest nodes.
        Api::<Node>::all(self.client.clone()).get_opt(name).await
    }

    /// Makes the volume, or refuses to.
    async fn answer(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(operation) = self.operations.get(key) else { return Ok(None) };
        let (claim, class) = (operation.claim.clone(), operation.class.clone());
        let selected = operation.node.clone();
        let node = match &selected {
            Some(name) => self.node(name).await?,
            None => None,
        };
        let decision = match selected.filter(|_| node.is_none()) {
            Some(name) => Err(Failure::Refused(format!("failed to get target node: node {name:?} not found"))),
            None => self.decide(&claim, &class, node.as_ref()),
        };
        match decision {
            Ok((settings, placement)) => {
                let volume = new_volume(&claim, &class, &settings, &placement);
                let (client, made, key) = (self.client.clone(), self.made.clone(), key.clone());
                let written = volume.clone();
                if let Some(operation) = self.operations.get_mut(&key) {
                    operation.stage = Stage::Writing(Box::new(volume));
                }
                // Finished writes are not needed any more.
                while self.writes.try_join_next().is_some() {}
                self.writes.spawn(async move {
                    let volumes: Api<PersistentVolume> = Api::all(client);
                    let outcome = match volumes.create(&PostParams::default(), &written).await {
                        Err(error) if is_conflict(&error) => volumes.get(&written.name_any()).await,
                        outcome => outcome,
                    };
                    made.send(Made { key, outcome }).ok();
                });
                Ok(None)
            }
            Err(Failure::NotReady) => Ok(Some(RETRY_MIN)),
            Err(Failure::Refused(why)) => {
                let why = format!("failed to provision volume with StorageClass {:?}: {why}", class.name_any());
                // The newest state of the claim, if it still is the same one.
                let current = self.claims.get(key).filter(|current| current.metadata.uid == claim.metadata.uid);
                if let Some(current) = current.cloned() {
                    self.refuse(&current, &why, true).await?;
                }
                self.operations.remove(key);
                Ok(None)
            }
        }
    }

    /// Whether there is a volume, and where.
    fn decide(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        node: Option<&Node>,
    ) -> Result<(Settings, Placement), Failure> {
        let settings = Settings::of_claim(class, claim).map_err(Failure::Refused)?;
        let refused = self.claims.get(&key_of(claim)).map_or(0, |claim| refusals(claim));
        let name = node.map(ResourceExt::name_any).unwrap_or_default();
        match settings.refuse {
            Refusals::Always => return Err(Failure::Refused("refused on purpose, as always".to_owned())),
            Refusals::Times(times) if refused < times => {
                return Err(Failure::Refused(format!("refused on purpose, {} of {times}", refused + 1)));
            }
            Refusals::Times(_) => {}
        }
        if settings.refuse_on.contains(&name) {
            return Err(Failure::Refused(format!("refused on purpose on node {name:?}")));
        }
        if settings.pool_size.is_some() && !self.has_pools(&class.name_any()) {
            return Err(Failure::NotReady);
        }
        let placement = self.place(class, &settings, node, requested(claim)).map_err(Failure::Refused)?;
        Ok((settings, placement))
    }

    /// A final failure: without the selected node the scheduler decides again.
    async fn refuse(&mut self, claim: &PersistentVolumeClaim, why: &str, counts: bool) -> Result<(), kube::Error> {
        let mut annotations = json!({SELECTED_NODE: null});
        if counts {
            annotations[REFUSALS] = (refusals(claim).saturating_add(1)).to_string().into();
        }
        let patch = json!({"metadata": {
            "uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version, "annotations": annotations,
        }});
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        match claims.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(changed) => drop(fresh_cache::store(&mut self.claims, changed)),
            Err(error) if is_not_found(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        let event = (EventType::Warning, "ProvisioningFailed");
        self.provisioner_events.record(claim.object_ref(&()), event.0, event.1, why.to_owned());
        Ok(())
    }

    /// A volume was written, or could not be.
    pub(super) fn on_made(&mut self, made: Made, queue: &mut WorkQueue) {
        let Some(operation) = self.operations.get_mut(&made.key) else { return };
        match made.outcome {
            Ok(volume) => {
                let message = format!("Successfully provisioned volume {}", volume.name_any());
                let claim = operation.claim.object_ref(&());
                self.provisioner_events.record(claim, EventType::Normal, "ProvisioningSucceeded", message);
                self.operations.remove(&made.key);
                fresh_cache::store(&mut self.volumes, volume);
            }
            Err(error) => {
                // It may have been written all the same: its name tells.
                let message = format!("failed to save volume: {}", error_message(&error));
                let claim = operation.claim.object_ref(&());
                self.provisioner_events.record(claim, EventType::Warning, "ProvisioningFailed", message);
                let due = Instant::now() + RETRY_MIN;
                operation.stage = Stage::Waiting(Some(due));
                queue.add_at(made.key, due);
            }
        }
    }

    /// Deletes a released volume of this provisioner once it is attached nowhere.
    pub(super) async fn delete_released(&mut self, name: &str) -> Result<(), kube::Error> {
        let Some(volume) = self.volumes.find("", name).cloned() else { return Ok(()) };
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        let is_attached = self.attachments.all().any(|one| super::attachments::volume_of(one) == name);
        if attribute(&volume, MADE_FOR).is_none() || volume_phase(&volume) != "Released" || policy != Some("Delete") {
            return Ok(());
        }
        if is_attached {
            return Ok(());
        }
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let result = if volume.metadata.deletion_timestamp.is_none() {
            volumes.delete(name, &DeleteParams::default()).await.map(drop)
        } else if volume.finalizers().iter().any(|finalizer| finalizer == PROVISIONER_FINALIZER) {
            let mut released = (*volume).clone();
            released.finalizers_mut().retain(|finalizer| finalizer != PROVISIONER_FINALIZER);
            volumes.replace(name, &PostParams::default(), &released).await.map(drop)
        } else {
            Ok(())
        };
        match result {
            Err(error) if is_not_found(&error) => Ok(()),
            result => result,
        }
    }
}

/// How often a claim was refused.
fn refusals(claim: &PersistentVolumeClaim) -> u32 {
    claim.annotations().get(REFUSALS).and_then(|written| written.parse().ok()).unwrap_or_default()
}

/// An attribute that the provisioner gave a volume.
pub(super) fn attribute<'a>(volume: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    let attributes = volume.spec.as_ref()?.csi.as_ref()?.volume_attributes.as_ref()?;
    attributes.get(key).map(String::as_str)
}

/// The name of the volume of a claim, by which a second attempt finds the first.
fn name_for(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default())
}

fn new_volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    settings: &Settings,
    placement: &Placement,
) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let (namespace, name) = key_of(claim);
    let mut attributes = json!({MADE_FOR: format!("{namespace}/{name}")});
    if let Some(pool) = &placement.pool {
        attributes[POOL] = pool.clone().into();
    }
    let policy = class.reclaim_policy.as_deref().unwrap_or("Delete");
    let affinity = settings.topology.as_ref().zip(placement.value.as_ref()).map(|(key, value)| {
        let requirement = json!({"key": key, "operator": "In", "values": [value]});
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}})
    });
    let volume = json!({
        "metadata": {
            "name": name_for(claim),
            "annotations": {PROVISIONED_BY: class.provisioner},
            "finalizers": if policy == "Delete" { vec![PROVISIONER_FINALIZER] } else { Vec::new() },
        },
        "spec": {
            "capacity": {"storage": spec.resources.and_then(|resources| resources.requests?.get("storage").cloned())},
            "accessModes": spec.access_modes,
            "volumeMode": spec.volume_mode,
            "volumeAttributesClassName": spec.volume_attributes_class_name,
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": class.name_any(),
            "mountOptions": class.mount_options,
            "claimRef": claim.object_ref(&()),
            "csi": {
                "driver": driver_of(class), "volumeHandle": name_for(claim), "volumeAttributes": attributes,
            },
            "nodeAffinity": affinity,
        },
    });
    serde_json::from_value(volume).unwrap_or_default()
}
