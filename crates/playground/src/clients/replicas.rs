//! A controller of ReplicaSets in small: as many pods as each set wants, and a status that tells how many there are.
//!
//! Invariant: what it has made or deleted counts as such until its watch has shown it, so that it never makes too
//! many however late the watch is. It adopts no pods of others. It must not know who places or runs them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use muster_api::wire::Pod;
use muster_api::wire::condition::Condition;
use serde_json::json;

use super::mirror::{Key, Mirror, key_of, watch};
use super::reconcile::{Controller, Queue, is_conflict, is_not_found, run};
use super::task::Task;
use crate::clock::{self, Clock};

/// The most pods that are made or deleted before another set has its turn.
const BURST: usize = 500;
/// The most requests under way at once.
const REQUESTS_MAX: usize = 16;

/// Keeps the sets until it is dropped.
#[derive(Debug)]
pub struct Replicas {
    _task: Task,
}

impl Replicas {
    /// Starts the client. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        let everything = watcher::Config::default;
        let events = stream::select_all([
            watch(Api::<ReplicaSet>::all(client.clone()), everything()).map(Event::Set).boxed(),
            watch(Api::<Pod>::all(client.clone()), everything()).map(Event::Pod).boxed(),
        ]);
        let keeper = Keeper {
            client,
            clock,
            sets: Mirror::default(),
            pods: Mirror::default(),
            unseen: BTreeMap::new(),
            lists: 0,
        };
        Self { _task: Task::start(run(keeper, events)) }
    }
}

#[allow(clippy::large_enum_variant)] // there is one at a time
enum Event {
    Set(watcher::Event<ReplicaSet>),
    Pod(watcher::Event<Pod>),
}

/// What was done to a pod and has not been seen yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Made,
    Deleted,
}

struct Keeper {
    client: Client,
    clock: Clock,
    sets: Mirror<ReplicaSet>,
    pods: Mirror<Pod>,
    /// By set, then by the pod's UID: the deed, and how many lists had begun before it.
    unseen: BTreeMap<Key, BTreeMap<String, (Deed, u64)>>,
    /// How many lists of pods have begun.
    lists: u64,
}

impl Controller for Keeper {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut Queue) {
        match event {
            Event::Set(event) => {
                let changes = self.sets.take(event).into_iter();
                changes.filter_map(|change| change.new.or(change.old)).for_each(|set| queue.soon(key_of(&*set)));
            }
            Event::Pod(event) => self.see(event, queue),
        }
    }

    fn is_ready(&self) -> bool {
        self.sets.is_complete() && self.pods.is_complete()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(set) = self.sets.get(key).cloned() else {
            self.unseen.remove(key);
            return Ok(None);
        };
        let wanted = set.spec.replicas.unwrap_or(1).max(0) as usize;
        let unseen = self.unseen.get(key).cloned().unwrap_or_default();
        let made = unseen.values().filter(|(deed, _)| *deed == Deed::Made).count();
        let active: Vec<Pod> =
            self.pods_of(&set).filter(|pod| is_active(pod) && !unseen.contains_key(&uid_of(pod))).cloned().collect();
        let there = active.len() + made;
        if set.metadata.deletion_timestamp.is_none() {
            if there < wanted {
                self.make(key, &set, (wanted - there).min(BURST)).await?;
            } else if there > wanted {
                self.delete(key, active, (there - wanted).min(BURST)).await?;
            }
        }
        self.tell(&set).await
    }
}

impl Keeper {
    fn see(&mut self, event: watcher::Event<Pod>, queue: &mut Queue) {
        let listed = matches!(event, watcher::Event::InitDone);
        if matches!(event, watcher::Event::Init) {
            self.lists += 1;
        }
        for change in self.pods.take(event) {
            let gone = change.new.is_none();
            let Some(pod) = change.new.or(change.old) else { continue };
            let Some(set) = set_of(&pod) else { continue };
            if let Some(unseen) = self.unseen.get_mut(&set) {
                let uid = uid_of(&pod);
                match unseen.get(&uid) {
                    Some((Deed::Made, _)) => drop(unseen.remove(&uid)),
                    Some((Deed::Deleted, _)) if gone || !is_active(&pod) => drop(unseen.remove(&uid)),
                    _ => {}
                }
            }
            queue.soon(set);
        }
        if listed {
            // A list shows all that was done before it began; what it does not show is gone already.
            let lists = self.lists;
            for (set, unseen) in &mut self.unseen {
                unseen.retain(|_, (_, before)| *before >= lists);
                queue.soon(set.clone());
            }
        }
    }

    fn pods_of<'a>(&'a self, set: &'a ReplicaSet) -> impl Iterator<Item = &'a Pod> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let owned = move |pod: &Pod| {
            let mut owners = pod.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == set.metadata.uid.as_ref())
        };
        self.pods.within(namespace).map(|pod| &**pod).filter(move |pod| owned(pod))
    }

    fn note(&mut self, set: &Key, uid: String, deed: Deed) {
        self.unseen.entry(set.clone()).or_default().insert(uid, (deed, self.lists));
    }

    async fn make(&mut self, key: &Key, set: &ReplicaSet, count: usize) -> Result<(), kube::Error> {
        let pods: Api<v1::Pod> = Api::namespaced(self.client.clone(), &key.0);
        let pod = pod_for(set);
        let parameters = PostParams::default();
        let calls = stream::iter((0..count).map(|_| pods.create(&parameters, &pod)));
        let answers: Vec<_> = calls.buffer_unordered(REQUESTS_MAX).collect().await;
        let mut failure = None;
        for answer in answers {
            match answer {
                Ok(pod) => self.note(key, pod.uid().unwrap_or_default(), Deed::Made),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn delete(&mut self, key: &Key, mut active: Vec<Pod>, count: usize) -> Result<(), kube::Error> {
        active.sort_by_cached_key(worth);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.0);
        for pod in active.iter().take(count) {
            let only = Preconditions { uid: pod.uid(), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
            match pods.delete(&pod.name_any(), &parameters).await {
                Ok(_) => self.note(key, uid_of(pod), Deed::Deleted),
                Err(error) if is_not_found(&error) || is_conflict(&error) => {
                    self.note(key, uid_of(pod), Deed::Deleted);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says how many pods there are. Answers when more of them count as available.
    async fn tell(&mut self, set: &ReplicaSet) -> Result<Option<Duration>, kube::Error> {
        let now = self.clock.now();
        let patience_seconds = set.spec.min_ready_seconds.unwrap_or_default();
        let active: Vec<&Pod> = self.pods_of(set).filter(|pod| is_active(pod)).collect();
        let ready: Vec<Timestamp> = active.iter().filter_map(|pod| ready_since(pod)).collect();
        let available_at = ready.iter().map(|since| clock::after(*since, i64::from(patience_seconds)));
        let available = available_at.clone().filter(|time| *time <= now).count();
        let mut status = set.status.clone().unwrap_or_default();
        status.replicas = active.len() as i32;
        status.fully_labeled_replicas = Some(active.len() as i32);
        status.ready_replicas = Some(ready.len() as i32);
        status.available_replicas = Some(available as i32);
        status.observed_generation = set.metadata.generation;
        if set.status.as_ref().map(counts) != Some(counts(&status)) {
            let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &set.namespace().unwrap_or_default());
            let patch = Patch::Merge(json!({"metadata": {"uid": set.uid()}, "status": status}));
            match sets.patch_status(&set.name_any(), &PatchParams::default(), &patch).await {
                // It is gone, and the watch is late to say so: pods made for it would be collected and made again for ever.
                Err(error) if is_not_found(&error) => drop(self.sets.take(watcher::Event::Delete(set.clone()))),
                Err(error) if is_conflict(&error) => {}
                answer => drop(answer?),
            }
        }
        let next = available_at.filter(|time| *time > now).min();
        Ok(next.map(|time| Duration::try_from(time.duration_since(now)).unwrap_or_default()))
    }
}

/// The numbers of a status; one that is left out is zero.
fn counts(status: &ReplicaSetStatus) -> [i64; 5] {
    let number = |count: Option<i32>| i64::from(count.unwrap_or_default());
    [
        i64::from(status.replicas),
        number(status.fully_labeled_replicas),
        number(status.ready_replicas),
        number(status.available_replicas),
        status.observed_generation.unwrap_or_default(),
    ]
}

fn uid_of(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// Whether it runs or will run.
fn is_active(pod: &Pod) -> bool {
    !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") && pod.metadata.deletion_timestamp.is_none()
}

/// The set that a pod says it belongs to.
fn set_of(pod: &Pod) -> Option<Key> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let is_set = owner.kind == "ReplicaSet" && owner.api_version.starts_with("apps/");
    is_set.then(|| (pod.namespace().unwrap_or_default(), owner.name.clone()))
}

fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = Condition::find(&pod.status.conditions, "Ready").filter(|one| one.is_true())?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

/// What comes first goes first: unbound, not running, not ready, young.
fn worth(pod: &Pod) -> (bool, bool, bool, std::cmp::Reverse<Option<Timestamp>>, String) {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (
        !pod.spec.node_name.is_empty(),
        pod.status.phase == "Running",
        ready_since(pod).is_some(),
        std::cmp::Reverse(created),
        pod.name_any(),
    )
}

fn pod_for(set: &ReplicaSet) -> v1::Pod {
    let template = set.spec.template.clone().unwrap_or_default();
    let metadata = template.metadata.unwrap_or_default();
    v1::Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", set.name_any())),
            labels: metadata.labels,
            annotations: metadata.annotations,
            finalizers: metadata.finalizers,
            owner_references: set.controller_owner_ref(&()).map(|mut owner| {
                owner.block_owner_deletion = Some(true);
                vec![owner]
            }),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}
