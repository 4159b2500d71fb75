//! The volume controllers of kube-controller-manager in small: the binder of volumes and claims, the controller of
//! ephemeral volumes, and the protection of what is in use.
//!
//! They share one task and one set of watches; what each decides is in its own file.
//! Must not depend on how volumes are made or attached.

mod binder;
mod ephemeral;
pub(crate) mod fresh_cache;
pub(crate) mod keys;
mod matching;
pub(crate) mod objects;
mod protection;

use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::Api;
use kube::{Client, ResourceExt};
use muster_clock::Clock;
use muster_playground_client::task::Task;
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Key, Selection, key_of};

use self::objects::{claim_names, claim_of, volume_name};
use super::pod_record::{PodRecord, without_tolerations};
use super::reconcile::{Controller, WorkQueue, run};
use super::recorder::EventRecorder;

/// Namespaces of keys that are pods. No namespace contains a colon.
const PODS: &str = "pod:";

/// Settings of the volume controllers.
#[derive(Clone, Copy, Debug)]
pub struct VolumeSettings {
    /// How often the binder looks at claims and volumes that are not bound.
    pub sync_period: Duration,
}

impl Default for VolumeSettings {
    fn default() -> Self {
        Self { sync_period: Duration::from_secs(15) }
    }
}

/// The volume controllers. They run until this is dropped.
#[derive(Debug)]
pub struct Volumes {
    pub(super) task: Task,
}

impl Volumes {
    /// Starts the controllers. Needs a tokio runtime.
    pub fn start(client: Client, settings: VolumeSettings, clock: Clock) -> Self {
        let pods = watch(Api::<PodRecord>::all(client.clone()), Selection::default());
        let events = stream::select_all([
            watch(Api::<StorageClass>::all(client.clone()), Selection::default()).map(Event::Class).boxed(),
            watch(Api::<PersistentVolume>::all(client.clone()), Selection::default()).map(Event::Volume).boxed(),
            watch(Api::<PersistentVolumeClaim>::all(client.clone()), Selection::default()).map(Event::Claim).boxed(),
            pods.map(|event| Event::Pod(event.modify(without_tolerations))).boxed(),
        ]);
        let controller = VolumeController {
            settings,
            binder_events: EventRecorder::new(client.clone(), clock, "persistentvolume-controller"),
            ephemeral_events: EventRecorder::new(client.clone(), clock, "ephemeral_volume"),
            client,
            pods: Cache::indexed_by(claim_names),
            claims: Cache::default(),
            volumes: Cache::default(),
            classes: Cache::default(),
        };
        Self { task: Task::start("volume controllers", run(controller, events)) }
    }
}

#[allow(clippy::large_enum_variant)] // only one exists at a time
enum Event {
    Pod(Delta<PodRecord>),
    Claim(Delta<PersistentVolumeClaim>),
    Volume(Delta<PersistentVolume>),
    Class(Delta<StorageClass>),
}

struct VolumeController {
    client: Client,
    settings: VolumeSettings,
    binder_events: EventRecorder,
    ephemeral_events: EventRecorder,
    /// Pods with claims, by the names of these.
    pods: Cache<PodRecord>,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
}

fn pod_key(pod: &PodRecord) -> Key {
    let (namespace, name) = key_of(pod);
    (format!("{PODS}{namespace}"), name)
}

fn volume_key(name: &str) -> Key {
    (String::new(), name.to_owned())
}

impl Controller for VolumeController {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut WorkQueue) {
        match event {
            Event::Pod(event) => {
                for change in self.pods.apply_filtered(event, |pod| !claim_names(pod).is_empty()) {
                    let Some(pod) = change.latest() else { continue };
                    let namespace = pod.namespace().unwrap_or_default();
                    // A claim may have lost its last user.
                    for claim in claim_names(pod) {
                        queue.add((namespace.clone(), claim));
                    }
                    if change.new.is_some() {
                        queue.add(pod_key(pod));
                    }
                }
            }
            Event::Claim(event) => {
                for change in fresh_cache::apply(&mut self.claims, event) {
                    let Some(claim) = change.latest() else { continue };
                    let key = key_of(&**claim);
                    if change.new.is_none() {
                        // Its volume is released, and an ephemeral one is made again.
                        queue.add(volume_key(volume_name(claim)));
                        self.pods.by_index(&key.0, &key.1).for_each(|pod| queue.add(pod_key(pod)));
                    }
                    queue.add(key);
                }
            }
            Event::Volume(event) => {
                for change in fresh_cache::apply(&mut self.volumes, event) {
                    let Some(volume) = change.latest() else { continue };
                    queue.add(volume_key(&volume.name_any()));
                    if change.new.is_none()
                        && let Some(claim) = claim_of(volume)
                    {
                        queue.add(claim);
                    }
                }
            }
            Event::Class(event) => drop(self.classes.apply(event)),
        }
    }

    fn has_synced(&self) -> bool {
        self.pods.has_synced() && self.claims.has_synced() && self.volumes.has_synced() && self.classes.has_synced()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        if let Some(namespace) = key.0.strip_prefix(PODS) {
            return self.make_ephemeral_claims(&(namespace.to_owned(), key.1.clone())).await.map(|()| None);
        }
        let is_settled = if key.0.is_empty() {
            if self.release_volume(&key.1).await? {
                return Ok(None);
            }
            Box::pin(self.sync_volume(&key.1)).await?
        } else {
            if self.release_claim(key).await? {
                return Ok(None);
            }
            Box::pin(self.sync_claim(key)).await?
        };
        Ok((!is_settled).then_some(self.settings.sync_period))
    }
}
