//! A small LeaderWorkerSet controller: groups of pods, each with a leader and its workers, that are created, updated
//! and restarted as one.
//!
//! The object tree is upstream's: a StatefulSet of leaders, and for each leader pod a StatefulSet of workers that it
//! owns. The StatefulSet controller creates the pods, with the fields that [`pod_webhook`] adds.
//! Invariant: nothing is decided for a set before its expectations are satisfied.

mod definition;
mod groups;
mod keys;
mod object;
pub(crate) mod pod_webhook;
mod revision;
mod rollout;
mod sets;
mod status;

use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt};

use super::expectations::Expectations;
use super::owners;
use super::pod_record::PodRecord;
use super::reconcile::{Controller, WorkQueue, run};
use super::recorder::{EventRecorder, EventType};
use muster_clock::Clock;
use muster_playground_client::api_errors::is_conflict;
use muster_playground_client::task::Task;
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Key, Selection, key_of};
use object::LeaderWorkerSet;

pub use definition::definition;

/// How long to wait before a failed installation of the definition is retried.
const RETRY: Duration = Duration::from_secs(1);

/// The LeaderWorkerSet controller. It runs until this is dropped.
#[derive(Debug)]
pub struct LeaderWorkerSets {
    pub(super) task: Task,
}

impl LeaderWorkerSets {
    /// Starts the controller, which first installs the [`definition`] unless it exists. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        let work = async move {
            install(&client).await;
            let events = events(&client);
            Box::pin(run(LeaderWorkerSetController::new(client, clock), events)).await;
        };
        Self { task: Task::start("leader worker set controller", work) }
    }
}

async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = serde_json::from_value(definition()).expect("our own definition");
    loop {
        match definitions.create(&PostParams::default(), &definition).await {
            Err(error) if !is_conflict(&error) => tokio::time::sleep(RETRY).await,
            _ => return,
        }
    }
}

fn events(client: &Client) -> impl futures::Stream<Item = Event> + Unpin + use<> {
    let labelled = || Selection::labels(keys::NAME);
    stream::select_all([
        watch(Api::<LeaderWorkerSet>::all(client.clone()), Selection::default()).map(Event::Lws).boxed(),
        watch(Api::<StatefulSet>::all(client.clone()), labelled()).map(Event::Set).boxed(),
        watch(Api::<PodRecord>::all(client.clone()), labelled()).map(Event::Pod).boxed(),
        watch(Api::<ControllerRevision>::all(client.clone()), labelled()).map(Event::Revision).boxed(),
        watch(Api::<Service>::all(client.clone()), labelled()).map(Event::Service).boxed(),
    ])
}

#[allow(clippy::large_enum_variant)] // only one exists at a time
enum Event {
    Lws(Delta<LeaderWorkerSet>),
    Set(Delta<StatefulSet>),
    Pod(Delta<PodRecord>),
    Revision(Delta<ControllerRevision>),
    Service(Delta<Service>),
}

/// One kind of object of the tree: its cache and its expectations.
struct CachedKind<K> {
    cache: Cache<K>,
    expectations: Expectations,
}

impl<K: Resource<DynamicType = ()>> CachedKind<K> {
    fn new() -> Self {
        Self { cache: Cache::default(), expectations: Expectations::default() }
    }

    /// Applies an event, and enqueues the sets that the objects' labels name.
    fn apply(&mut self, event: Delta<K>, queue: &mut WorkQueue) {
        self.expectations.observe(&event, queue);
        for change in self.cache.apply(event) {
            for object in [change.old, change.new].into_iter().flatten() {
                if let Some(name) = object.labels().get(keys::NAME) {
                    queue.add((object.namespace().unwrap_or_default(), name.clone()));
                }
            }
        }
    }

    /// The objects of a set, by label.
    fn of<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a K> {
        let objects = self.cache.in_namespace(&key.0).map(|object| &**object);
        objects.filter(move |object| object.labels().get(keys::NAME) == Some(&key.1))
    }

    fn get(&self, key: &Key, name: &str) -> Option<&K> {
        self.cache.find(&key.0, name).map(|object| &**object)
    }
}

struct LeaderWorkerSetController {
    client: Client,
    clock: Clock,
    recorder: EventRecorder,
    lws: Cache<LeaderWorkerSet>,
    sets: CachedKind<StatefulSet>,
    pods: CachedKind<PodRecord>,
    revisions: CachedKind<ControllerRevision>,
    services: CachedKind<Service>,
}

impl Controller for LeaderWorkerSetController {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut WorkQueue) {
        match event {
            Event::Lws(event) => {
                let changes = self.lws.apply(event).into_iter();
                changes.filter_map(|change| change.new.or(change.old)).for_each(|one| queue.add(key_of(&*one)));
            }
            Event::Set(event) => self.sets.apply(event, queue),
            Event::Pod(event) => self.pods.apply(event, queue),
            Event::Revision(event) => self.revisions.apply(event, queue),
            Event::Service(event) => self.services.apply(event, queue),
        }
    }

    fn has_synced(&self) -> bool {
        self.lws.has_synced()
            && self.sets.cache.has_synced()
            && self.pods.cache.has_synced()
            && self.revisions.cache.has_synced()
            && self.services.cache.has_synced()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(lws) = self.lws.get(key).cloned() else {
            self.sets.expectations.forget(key);
            self.pods.expectations.forget(key);
            self.revisions.expectations.forget(key);
            self.services.expectations.forget(key);
            return Ok(None);
        };
        if lws.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        if self.sets.expectations.is_unknown(key) {
            self.resolve_unknown(key).await?;
        }
        let is_satisfied = self.sets.expectations.is_satisfied(key, &self.sets.cache)
            && self.pods.expectations.is_satisfied(key, &self.pods.cache)
            && self.revisions.expectations.is_satisfied(key, &self.revisions.cache)
            && self.services.expectations.is_satisfied(key, &self.services.cache);
        if !is_satisfied {
            return Ok(None);
        }
        let done = match self.sync_leaders(key, &lws).await {
            Ok(()) => self.sync_groups(key, &lws).await,
            Err(error) => Err(error),
        };
        if done.as_ref().is_err_and(owners::is_outcome_unknown) {
            self.sets.expectations.mark_unknown(key);
        }
        done.map(|()| None)
    }
}

impl LeaderWorkerSetController {
    fn new(client: Client, clock: Clock) -> Self {
        Self {
            recorder: EventRecorder::new(client.clone(), clock, "leaderworkerset"),
            client,
            clock,
            lws: Cache::default(),
            sets: CachedKind::new(),
            pods: CachedKind::new(),
            revisions: CachedKind::new(),
            services: CachedKind::new(),
        }
    }

    /// Reads from the server what became of writes whose responses were lost.
    async fn resolve_unknown(&mut self, key: &Key) -> Result<(), kube::Error> {
        let named = ListParams::default().labels(&format!("{}={}", keys::NAME, key.1));
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.0);
        let live = revisions.list(&named).await?.items;
        self.revisions.expectations.resolve_unknown(
            key,
            &live,
            self.revisions.cache.in_namespace(&key.0).map(|one| &**one).filter(named_as(key)),
        );
        let pods: Api<PodRecord> = Api::namespaced(self.client.clone(), &key.0);
        let live = pods.list(&named).await?.items;
        self.pods.expectations.resolve_unknown(
            key,
            &live,
            self.pods.cache.in_namespace(&key.0).map(|one| &**one).filter(named_as(key)),
        );
        let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.0);
        let live = sets.list(&named).await?.items;
        self.sets.expectations.resolve_unknown(
            key,
            &live,
            self.sets.cache.in_namespace(&key.0).map(|one| &**one).filter(named_as(key)),
        );
        Ok(())
    }

    /// Syncs the StatefulSet of leaders: template, size and partition.
    async fn sync_leaders(&mut self, key: &Key, lws: &LeaderWorkerSet) -> Result<(), kube::Error> {
        let leaders = self.sets.get(key, &key.1).cloned();
        if leaders.as_ref().is_some_and(|leaders| leaders.metadata.deletion_timestamp.is_some()) {
            return Ok(());
        }
        let (revision, is_updated) = self.revision(key, lws, leaders.as_ref()).await?;
        let steps =
            rollout::steps(lws, leaders.as_ref(), &self.states(key, lws, leaders.as_ref(), &revision), is_updated);
        self.write_leaders(key, lws, leaders.as_ref(), &steps, &revision, is_updated).await?;
        if !object::is_subdomain_unique(lws.spec.network_config.as_ref()) {
            let selector = [(keys::NAME, key.1.as_str())];
            self.create_service(key, &key.1, &selector, owners::controlled_by(lws)).await?;
        }
        if self.update_status(key, lws, &revision).await? {
            self.delete_old_revisions(key, &revision).await?;
        }
        Ok(())
    }

    async fn record_event(&mut self, lws: &LeaderWorkerSet, event_type: EventType, reason: &str, message: String) {
        self.recorder.record(lws.object_ref(&()), event_type, reason, message).await;
    }
}

fn named_as<K: Resource>(key: &Key) -> impl Fn(&&K) -> bool {
    move |object| object.labels().get(keys::NAME) == Some(&key.1)
}
