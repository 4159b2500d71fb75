//! A controller of LeaderWorkerSets in small: groups of pods, each with a leader and its workers, that are made, updated
//! and restarted as one.
//!
//! The tree is upstream's: a set of leaders (a StatefulSet), and for each leader pod a set of workers that it owns. The
//! pods themselves are made by the controller of stateful sets, with what [`pod_rule`] adds.
//! Invariant: nothing is decided for a set before the watches have shown what was written for it.

mod definition;
mod groups;
mod keys;
mod object;
pub(crate) mod pod_rule;
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
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};

use super::owners;
use super::pod_card::PodCard;
use super::reconcile::{Controller, Queue, run};
use super::recorder::{Recorder, Tone};
use super::unseen::Unseen;
use muster_determinism::clock::Clock;
use muster_playground_client::mirror::{Key, Mirror, key_of, watch};
use muster_playground_client::refusal::is_conflict;
use muster_playground_client::task::Task;
use object::LeaderWorkerSet;

pub use definition::definition;

/// How long to wait before the definition is written again.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the sets until it is dropped.
#[derive(Debug)]
pub struct LeaderWorkerSets {
    pub(super) task: Task,
}

impl LeaderWorkerSets {
    /// Starts the client, which first installs the [`definition`] unless there is one already. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        let work = async move {
            install(&client).await;
            let events = events(&client);
            Box::pin(run(Keeper::new(client, clock), events)).await;
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
    let labelled = || watcher::Config::default().labels(keys::NAME);
    stream::select_all([
        watch(Api::<LeaderWorkerSet>::all(client.clone()), watcher::Config::default()).map(Event::Lws).boxed(),
        watch(Api::<StatefulSet>::all(client.clone()), labelled()).map(Event::Set).boxed(),
        watch(Api::<PodCard>::all(client.clone()), labelled()).map(Event::Pod).boxed(),
        watch(Api::<ControllerRevision>::all(client.clone()), labelled()).map(Event::Revision).boxed(),
        watch(Api::<Service>::all(client.clone()), labelled()).map(Event::Service).boxed(),
    ])
}

#[allow(clippy::large_enum_variant)] // there is one at a time
enum Event {
    Lws(watcher::Event<LeaderWorkerSet>),
    Set(watcher::Event<StatefulSet>),
    Pod(watcher::Event<PodCard>),
    Revision(watcher::Event<ControllerRevision>),
    Service(watcher::Event<Service>),
}

/// One kind of object of the tree: what the watch has shown, and what it has not shown yet.
struct Part<K> {
    seen: Mirror<K>,
    unseen: Unseen,
}

impl<K: Resource<DynamicType = ()>> Part<K> {
    fn new() -> Self {
        Self { seen: Mirror::default(), unseen: Unseen::default() }
    }

    /// Takes in an event, and wakes the sets whose name the objects carry.
    fn take(&mut self, event: watcher::Event<K>, queue: &mut Queue) {
        self.unseen.see(&event, queue);
        for change in self.seen.take(event) {
            for object in [change.old, change.new].into_iter().flatten() {
                if let Some(name) = object.labels().get(keys::NAME) {
                    queue.soon((object.namespace().unwrap_or_default(), name.clone()));
                }
            }
        }
    }

    /// The objects of a set, by the name that they carry.
    fn of<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a K> {
        let objects = self.seen.within(&key.0).map(|object| &**object);
        objects.filter(move |object| object.labels().get(keys::NAME) == Some(&key.1))
    }

    fn get(&self, key: &Key, name: &str) -> Option<&K> {
        self.seen.get(&(key.0.clone(), name.to_owned())).map(|object| &**object)
    }
}

struct Keeper {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    lws: Mirror<LeaderWorkerSet>,
    sets: Part<StatefulSet>,
    pods: Part<PodCard>,
    revisions: Part<ControllerRevision>,
    services: Part<Service>,
}

impl Controller for Keeper {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut Queue) {
        match event {
            Event::Lws(event) => {
                let changes = self.lws.take(event).into_iter();
                changes.filter_map(|change| change.new.or(change.old)).for_each(|one| queue.soon(key_of(&*one)));
            }
            Event::Set(event) => self.sets.take(event, queue),
            Event::Pod(event) => self.pods.take(event, queue),
            Event::Revision(event) => self.revisions.take(event, queue),
            Event::Service(event) => self.services.take(event, queue),
        }
    }

    fn is_ready(&self) -> bool {
        self.lws.is_complete()
            && self.sets.seen.is_complete()
            && self.pods.seen.is_complete()
            && self.revisions.seen.is_complete()
            && self.services.seen.is_complete()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(lws) = self.lws.get(key).cloned() else {
            self.sets.unseen.forget(key);
            self.pods.unseen.forget(key);
            self.revisions.unseen.forget(key);
            self.services.unseen.forget(key);
            return Ok(None);
        };
        if lws.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        if self.sets.unseen.is_in_doubt(key) {
            self.look(key).await?;
        }
        let is_settled = self.sets.unseen.is_settled(key, &self.sets.seen)
            && self.pods.unseen.is_settled(key, &self.pods.seen)
            && self.revisions.unseen.is_settled(key, &self.revisions.seen)
            && self.services.unseen.is_settled(key, &self.services.seen);
        if !is_settled {
            return Ok(None);
        }
        let done = match self.tend(key, &lws).await {
            Ok(()) => self.tend_groups(key, &lws).await,
            Err(error) => Err(error),
        };
        if done.as_ref().is_err_and(owners::is_doubtful) {
            self.sets.unseen.doubt(key);
        }
        done.map(|()| None)
    }
}

impl Keeper {
    fn new(client: Client, clock: Clock) -> Self {
        Self {
            recorder: Recorder::new(client.clone(), clock, "leaderworkerset"),
            client,
            clock,
            lws: Mirror::default(),
            sets: Part::new(),
            pods: Part::new(),
            revisions: Part::new(),
            services: Part::new(),
        }
    }

    /// Asks the server what has become of writes whose answers were lost.
    async fn look(&mut self, key: &Key) -> Result<(), kube::Error> {
        let named = ListParams::default().labels(&format!("{}={}", keys::NAME, key.1));
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.0);
        let live = revisions.list(&named).await?.items;
        self.revisions.unseen.compare(
            key,
            &live,
            self.revisions.seen.within(&key.0).map(|one| &**one).filter(named_as(key)),
        );
        let pods: Api<PodCard> = Api::namespaced(self.client.clone(), &key.0);
        let live = pods.list(&named).await?.items;
        self.pods.unseen.compare(key, &live, self.pods.seen.within(&key.0).map(|one| &**one).filter(named_as(key)));
        let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.0);
        let live = sets.list(&named).await?.items;
        self.sets.unseen.compare(key, &live, self.sets.seen.within(&key.0).map(|one| &**one).filter(named_as(key)));
        Ok(())
    }

    /// Keeps the leaders: their template, how many there are, and how far an update may go.
    async fn tend(&mut self, key: &Key, lws: &LeaderWorkerSet) -> Result<(), kube::Error> {
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
            self.serve(key, &key.1, &selector, owners::controlled_by(lws)).await?;
        }
        if self.tell(key, lws, &revision).await? {
            self.forget_revisions(key, &revision).await?;
        }
        Ok(())
    }

    async fn say(&mut self, lws: &LeaderWorkerSet, tone: Tone, reason: &str, message: String) {
        self.recorder.say(lws.object_ref(&()), tone, reason, message).await;
    }
}

fn named_as<K: Resource>(key: &Key) -> impl Fn(&&K) -> bool {
    move |object| object.labels().get(keys::NAME) == Some(&key.1)
}
