//! Storage that does not exist: a fake provisioner that makes volumes, and the attachments of CSI volumes to nodes.
//!
//! On a real cluster these are the containers of a CSI driver and the attach-detach controller, which needs real
//! kubelets; there these controllers run beside kube-controller-manager.
//! Must not depend on the scheduler, the kubelets or the other controllers.

mod attachments;
mod pools;
mod provisioner;
mod settings;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use kube::api::Api;
use kube::{Client, Resource, ResourceExt};
use muster_api::wire::Node;
use muster_clock::Clock;
use muster_playground_client::task::Task;
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Key, Selection, key_of};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::provisioner::{Made, Operation};
pub use self::settings::{
    ATTACH_SECONDS, DELAY_SECONDS, DETACH_SECONDS, FAKE_PROVISIONER, PLACE, POOL_SIZE, REFUSALS, REFUSE, REFUSE_ON,
    STUCK, TOPOLOGY, VOLUME_SIZE_MAX,
};
use super::pod_record::{PodRecord, node_name, without_tolerations};
use super::reconcile::{Controller, WorkQueue, run};
use super::recorder::EventQueue;
use super::volumes::fresh_cache;
use super::volumes::objects::{claim_names, claim_of, volume_class};

/// Namespaces of keys that are no claims. No namespace contains a colon.
const POOLS: &str = "pools:";
const ATTACHMENTS: &str = "node:";

/// The fake provisioner and the attachments. They run until this is dropped.
#[derive(Debug)]
pub struct StorageDrivers {
    pub(super) task: Task,
}

impl StorageDrivers {
    /// Starts them. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        let (made, results) = mpsc::unbounded_channel();
        let results = stream::unfold(results, async |mut results| Some((results.recv().await?, results)));
        let pods = all::<PodRecord>(&client).map(|event| Event::Pod(event.modify(without_tolerations)));
        let events = stream::select_all([
            results.map(Event::Made).boxed(),
            all(&client).map(Event::Class).boxed(),
            all(&client).map(Event::Node).boxed(),
            all(&client).map(Event::Driver).boxed(),
            all(&client).map(Event::CsiNode).boxed(),
            all(&client).map(Event::Pool).boxed(),
            all(&client).map(Event::Attachment).boxed(),
            all(&client).map(Event::Volume).boxed(),
            all(&client).map(Event::Claim).boxed(),
            pods.boxed(),
        ]);
        let controller = StorageController {
            provisioner_events: EventQueue::start(client.clone(), clock, "fake-provisioner"),
            attachment_events: EventQueue::start(client.clone(), clock, "attachdetach-controller"),
            client,
            pods: Cache::indexed_by(claim_names),
            claims: Cache::default(),
            volumes: Cache::default(),
            classes: Cache::default(),
            nodes: Cache::default(),
            drivers: Cache::default(),
            csi_nodes: Cache::default(),
            pools: Cache::default(),
            attachments: Cache::default(),
            operations: BTreeMap::new(),
            attachment_changes: BTreeMap::new(),
            writes: JoinSet::new(),
            made,
        };
        Self { task: Task::start("storage drivers", run(controller, events)) }
    }
}

/// A watch of all objects of a kind.
fn all<K>(client: &Client) -> BoxStream<'static, Delta<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    watch(Api::<K>::all(client.clone()), Selection::default()).boxed()
}

#[allow(clippy::large_enum_variant)] // only one exists at a time
enum Event {
    Pod(Delta<PodRecord>),
    Claim(Delta<PersistentVolumeClaim>),
    Volume(Delta<PersistentVolume>),
    Class(Delta<StorageClass>),
    Node(Delta<Node>),
    Driver(Delta<CSIDriver>),
    CsiNode(Delta<CSINode>),
    Pool(Delta<CSIStorageCapacity>),
    Attachment(Delta<VolumeAttachment>),
    /// The answer to a write of the provisioner.
    Made(Made),
}

struct StorageController {
    client: Client,
    provisioner_events: EventQueue,
    attachment_events: EventQueue,
    /// Pods with claims, by the names of these.
    pods: Cache<PodRecord>,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    nodes: Cache<Node>,
    drivers: Cache<CSIDriver>,
    csi_nodes: Cache<CSINode>,
    pools: Cache<CSIStorageCapacity>,
    attachments: Cache<VolumeAttachment>,
    /// The volumes that are being made, by claim.
    operations: BTreeMap<Key, Operation>,
    /// When attachments began to change, by name.
    attachment_changes: BTreeMap<String, Instant>,
    /// Volumes are written at the same time, since a real provisioner does not wait for one before the next.
    writes: JoinSet<()>,
    made: mpsc::UnboundedSender<Made>,
}

impl StorageController {
    fn enqueue_pools(&self, queue: &mut WorkQueue) {
        self.classes.all().for_each(|class| queue.add((POOLS.to_owned(), class.name_any())));
    }

    /// Enqueues the attachments of a claim's volume to the nodes of its pods, and to those where it is attached.
    fn enqueue_attachments_of(&self, claim: &Key, volume: Option<&str>, queue: &mut WorkQueue) {
        let bound = self.claims.get(claim).and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
        let Some(volume) = volume.map(str::to_owned).or(bound) else { return };
        let nodes = self.pods.by_index(&claim.0, &claim.1).map(|pod| node_name(pod)).filter(|node| !node.is_empty());
        let attached = self.attachments.all().filter(|one| attachments::volume_of(one) == volume);
        for node in nodes.chain(attached.map(|one| one.spec.node_name.as_str())) {
            queue.add((format!("{ATTACHMENTS}{node}"), volume.clone()));
        }
    }

    /// Enqueues all attachments: what they depend on has changed.
    fn enqueue_all_attachments(&self, queue: &mut WorkQueue) {
        for volume in self.volumes.all() {
            if let Some(claim) = claim_of(volume) {
                self.enqueue_attachments_of(&claim, Some(&volume.name_any()), queue);
            }
        }
    }

    fn observe_volume(&mut self, event: Delta<PersistentVolume>, queue: &mut WorkQueue) {
        for change in fresh_cache::apply(&mut self.volumes, event) {
            let Some(volume) = change.latest() else { continue };
            queue.add(key_of(&**volume));
            queue.add((POOLS.to_owned(), volume_class(volume).to_owned()));
            if let Some(claim) = claim_of(volume) {
                self.enqueue_attachments_of(&claim, Some(&volume.name_any()), queue);
            }
        }
    }

    fn observe_attachment(&mut self, event: Delta<VolumeAttachment>, queue: &mut WorkQueue) {
        for change in fresh_cache::apply(&mut self.attachments, event) {
            let Some(attachment) = change.latest() else { continue };
            if change.new.is_none() {
                self.attachment_changes.remove(&attachment.name_any());
            }
            let node = format!("{ATTACHMENTS}{}", attachment.spec.node_name);
            let volume = attachments::volume_of(attachment);
            queue.add((node.clone(), volume.to_owned()));
            if change.new.is_none() {
                // Other nodes may have waited for the volume, and other volumes for a place on the node.
                queue.add((String::new(), volume.to_owned()));
                let claim = self.volumes.find("", volume).and_then(|volume| claim_of(volume));
                if let Some(claim) = claim {
                    self.enqueue_attachments_of(&claim, Some(volume), queue);
                }
                let same_node = self.attachments.all().filter(|one| one.spec.node_name == attachment.spec.node_name);
                same_node.for_each(|one| queue.add((node.clone(), attachments::volume_of(one).to_owned())));
            }
        }
    }
}

impl Controller for StorageController {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut WorkQueue) {
        match event {
            Event::Pod(event) => {
                for change in self.pods.apply_filtered(event, |pod| !claim_names(pod).is_empty()) {
                    let Some(pod) = change.latest() else { continue };
                    let namespace = pod.namespace().unwrap_or_default();
                    for claim in claim_names(pod) {
                        self.enqueue_attachments_of(&(namespace.clone(), claim), None, queue);
                    }
                }
            }
            Event::Claim(event) => {
                for change in fresh_cache::apply(&mut self.claims, event) {
                    let Some(claim) = change.latest() else { continue };
                    let key = key_of(&**claim);
                    self.enqueue_attachments_of(&key, None, queue);
                    queue.add(key);
                }
            }
            Event::Volume(event) => self.observe_volume(event, queue),
            Event::Attachment(event) => self.observe_attachment(event, queue),
            Event::Class(event) => {
                for change in self.classes.apply(event) {
                    let Some(class) = change.latest() else { continue };
                    queue.add((POOLS.to_owned(), class.name_any()));
                    // Claims may have waited for it.
                    self.claims.all().for_each(|claim| queue.add(key_of(&**claim)));
                }
            }
            Event::Node(event) => {
                let labels = |node: &Node| node.metadata.labels.clone();
                let changes = self.nodes.apply(event);
                if changes.iter().any(|one| one.old.as_deref().map(labels) != one.new.as_deref().map(labels)) {
                    self.enqueue_pools(queue);
                }
            }
            Event::Pool(event) => {
                for change in fresh_cache::apply(&mut self.pools, event) {
                    let Some(pool) = change.latest() else { continue };
                    queue.add((POOLS.to_owned(), pool.storage_class_name.clone()));
                }
            }
            Event::Driver(event) => {
                self.drivers.apply(event);
                self.enqueue_all_attachments(queue);
            }
            Event::CsiNode(event) => {
                self.csi_nodes.apply(event);
                self.enqueue_all_attachments(queue);
            }
            Event::Made(made) => self.on_made(made, queue),
        }
    }

    fn has_synced(&self) -> bool {
        let storage = self.classes.has_synced() && self.drivers.has_synced() && self.csi_nodes.has_synced();
        let shared = self.pools.has_synced() && self.attachments.has_synced() && self.nodes.has_synced();
        storage && shared && self.pods.has_synced() && self.claims.has_synced() && self.volumes.has_synced()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        if let Some(node) = key.0.strip_prefix(ATTACHMENTS) {
            return self.sync_attachment(node, &key.1).await;
        }
        match key.0.as_str() {
            POOLS => self.sync_pools(&key.1).await.map(|()| None),
            "" => self.delete_released(&key.1).await.map(|()| None),
            _ => self.provision(key).await,
        }
    }
}
