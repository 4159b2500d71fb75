//! A controller of ReplicaSets in small: as many pods as each set wants, and a status that tells how many there are.
//!
//! Invariant: nothing is made or deleted for a set before its watch has shown what was made and deleted before, so that
//! there are never too many pods however late the watch is. It must not know who places or runs them.

mod order;
mod status;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use muster_api::selector::LabelSelector;
use muster_determinism::clock::Clock;
use muster_playground_client::mirror::{Key, Mirror, key_of, watch};
use muster_playground_client::refusal::{is_conflict, is_not_found};
use muster_playground_client::task::Task;

use super::owners::{self, Claim, controller_of, is_controlled_by, selector_of, told};
use super::pod_card::{PodCard, is_active, is_finished, is_going};
use super::reconcile::{Controller, Queue, run};
use super::recorder::{Recorder, Tone};
use super::set_pods::SetPods;
use super::unseen::Unseen;

/// The most pods that are made or deleted before another set has its turn.
const BURST: usize = 500;
/// The most requests under way at once.
const REQUESTS_MAX: usize = 16;

/// Keeps the sets until it is dropped.
#[derive(Debug)]
pub struct Replicas {
    pub(super) task: Task,
}

impl Replicas {
    /// Starts the client. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        let everything = watcher::Config::default;
        let events = stream::select_all([
            watch(Api::<ReplicaSet>::all(client.clone()), everything()).map(Event::Set).boxed(),
            watch(Api::<PodCard>::all(client.clone()), everything()).map(Event::Pod).boxed(),
        ]);
        let recorder = Recorder::new(client.clone(), clock, "replicaset-controller");
        let keeper = Keeper {
            client,
            clock,
            recorder,
            sets: Mirror::default(),
            pods: SetPods::new("ReplicaSet"),
            unseen: Unseen::default(),
        };
        Self { task: Task::start("replica set controller", run(keeper, events)) }
    }
}

#[allow(clippy::large_enum_variant)] // there is one at a time
enum Event {
    Set(watcher::Event<ReplicaSet>),
    Pod(watcher::Event<PodCard>),
}

struct Keeper {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    sets: Mirror<ReplicaSet>,
    pods: SetPods,
    unseen: Unseen,
}

impl Controller for Keeper {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut Queue) {
        match event {
            Event::Set(event) => {
                let changes = self.sets.take(event).into_iter();
                changes.filter_map(|change| change.new.or(change.old)).for_each(|set| queue.soon(key_of(&*set)));
            }
            Event::Pod(event) => {
                self.unseen.see(&event, queue);
                for change in self.pods.take(event) {
                    for pod in [change.old, change.new].into_iter().flatten() {
                        self.concern(&pod, queue);
                    }
                }
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.sets.is_complete() && self.pods.is_complete()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(set) = self.sets.get(key).cloned() else {
            self.unseen.forget(key);
            return Ok(None);
        };
        if self.unseen.is_in_doubt(key) {
            self.look(key, &set).await?;
        }
        let selector = selector_of(&set.spec.selector);
        let mut failure = None;
        if self.unseen.is_settled(key, self.pods.view()) {
            self.claim(key, &set, &selector).await?;
            if set.metadata.deletion_timestamp.is_none() {
                failure = self.manage(key, &set).await.err();
            }
        }
        let next = self.tell(&set, failure.as_ref()).await?;
        failure.map_or(Ok(next), Err)
    }
}

impl Keeper {
    /// Wakes the sets that a pod belongs to or could belong to.
    fn concern(&self, pod: &PodCard, queue: &mut Queue) {
        let namespace = pod.namespace().unwrap_or_default();
        match controller_of(pod) {
            Some(owner) if owner.kind == "ReplicaSet" && owner.api_version.starts_with("apps/") => {
                queue.soon((namespace, owner.name.clone()));
            }
            Some(_) => {}
            None => {
                let would_take = |set: &&Arc<ReplicaSet>| selector_of(&set.spec.selector).matches(pod.labels());
                self.sets.within(&namespace).filter(would_take).for_each(|set| queue.soon(key_of(&**set)));
            }
        }
    }

    /// The pods of a set that are not over.
    fn pods_of(&self, set: &ReplicaSet) -> impl Iterator<Item = &Arc<PodCard>> {
        self.pods.of(set).filter(|pod| !is_finished(pod))
    }

    /// Asks the server what has become of writes whose answers were lost.
    async fn look(&mut self, key: &Key, set: &ReplicaSet) -> Result<(), kube::Error> {
        let pods: Api<PodCard> = Api::namespaced(self.client.clone(), &key.0);
        let mut live = pods.list(&ListParams::default()).await?.items;
        live.retain(|pod| is_controlled_by(pod, set));
        self.unseen.compare(key, &live, self.pods.of(set).map(|pod| &**pod));
        Ok(())
    }

    /// Takes in pods that nobody controls, and lets go of those that the selector no longer asks for.
    async fn claim(&mut self, key: &Key, set: &ReplicaSet, selector: &LabelSelector) -> Result<(), kube::Error> {
        let pods = self.pods.of(set).chain(self.pods.of_nobody(&key.0)).filter(|pod| is_active(pod));
        let judged = pods.map(|pod| (owners::claim(set, selector, &**pod), pod));
        let claims = judged.filter(|(claim, _)| matches!(claim, Claim::Adopt | Claim::Release));
        let claims: Vec<(Claim, Arc<PodCard>)> = claims.map(|(claim, pod)| (claim, Arc::clone(pod))).collect();
        if claims.iter().any(|(claim, _)| *claim == Claim::Adopt) {
            // The view of the set may be old: one that is on its way out must not take in anybody.
            let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &key.0);
            let now = sets.get_opt(&key.1).await?;
            if now.is_none_or(|now| now.uid() != set.uid() || now.metadata.deletion_timestamp.is_some()) {
                return Ok(());
            }
        }
        for (claim, pod) in claims {
            match owners::settle(&self.client, set, &*pod, claim).await {
                Ok(pod) => self.settled(key, &pod),
                Err(error) if is_not_found(&error) || is_conflict(&error) => {}
                Err(error) => return Err(self.doubted(key, error)),
            }
        }
        Ok(())
    }

    fn settled(&mut self, key: &Key, pod: &PodCard) {
        self.unseen.wrote(key, pod);
        self.pods.take(watcher::Event::Apply(pod.clone()));
    }

    fn doubted(&mut self, key: &Key, error: kube::Error) -> kube::Error {
        if owners::is_doubtful(&error) {
            self.unseen.doubt(key);
        }
        error
    }

    /// Makes or deletes pods.
    async fn manage(&mut self, key: &Key, set: &ReplicaSet) -> Result<(), kube::Error> {
        let wanted = set.spec.replicas.unwrap_or(1).max(0) as usize;
        let active: Vec<Arc<PodCard>> = self.pods_of(set).filter(|pod| !is_going(pod)).cloned().collect();
        match active.len().cmp(&wanted) {
            Ordering::Less => self.make(key, set, (wanted - active.len()).min(BURST)).await,
            Ordering::Equal => Ok(()),
            Ordering::Greater => {
                let many = (active.len() - wanted).min(BURST);
                self.delete(key, set, active, many).await
            }
        }
    }

    /// Makes pods, first one, then ever more at once as long as it goes well.
    async fn make(&mut self, key: &Key, set: &ReplicaSet, count: usize) -> Result<(), kube::Error> {
        let pods: Api<v1::Pod> = Api::namespaced(self.client.clone(), &key.0);
        let pod = pod_for(set);
        let parameters = PostParams::default();
        let (mut left, mut batch) = (count, 1);
        while left > 0 {
            let calls = stream::iter((0..batch.min(left)).map(|_| pods.create(&parameters, &pod)));
            let answers: Vec<_> = calls.buffer_unordered(REQUESTS_MAX).collect().await;
            left -= answers.len();
            batch *= 2;
            let mut failure = None;
            for answer in answers {
                match answer {
                    Ok(pod) => {
                        self.unseen.wrote(key, &pod);
                        self.say(set, Tone::Normal, "SuccessfulCreate", format!("Created pod: {}", pod.name_any()))
                            .await;
                    }
                    Err(error) => {
                        let message = format!("Error creating: {}", told(&error));
                        self.say(set, Tone::Warning, "FailedCreate", message).await;
                        failure = Some(self.doubted(key, error));
                    }
                }
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
        Ok(())
    }

    async fn delete(
        &mut self,
        key: &Key,
        set: &ReplicaSet,
        active: Vec<Arc<PodCard>>,
        count: usize,
    ) -> Result<(), kube::Error> {
        let pods: Api<PodCard> = Api::namespaced(self.client.clone(), &key.0);
        for pod in order::first_to_go(active, self.company(set).into_iter(), self.clock.now()).into_iter().take(count) {
            let only = Preconditions { uid: pod.uid(), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
            match pods.delete(&pod.name_any(), &parameters).await {
                Ok(_) => {
                    self.unseen.deleted(key, &*pod);
                    self.say(set, Tone::Normal, "SuccessfulDelete", format!("Deleted pod: {}", pod.name_any())).await;
                }
                Err(error) if is_not_found(&error) || is_conflict(&error) => self.unseen.deleted(key, &*pod),
                Err(error) => {
                    self.say(set, Tone::Warning, "FailedDelete", format!("Error deleting: {}", told(&error))).await;
                    return Err(self.doubted(key, error));
                }
            }
        }
        Ok(())
    }

    /// The active pods of this set and of all that have its controller: of those that share a node, one goes first.
    fn company(&self, set: &ReplicaSet) -> Vec<&PodCard> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let above = controller_of(set).map(|owner| &owner.uid);
        let is_near = |other: &ReplicaSet| {
            other.uid() == set.uid() || (above.is_some() && controller_of(other).map(|owner| &owner.uid) == above)
        };
        let near = self.sets.within(namespace).filter(|other| is_near(other));
        near.flat_map(|set| self.pods.of(&**set)).map(|pod| &**pod).filter(|pod| is_active(pod)).collect()
    }

    async fn say(&mut self, set: &ReplicaSet, tone: Tone, reason: &str, message: String) {
        self.recorder.say(set.object_ref(&()), tone, reason, message).await;
    }
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
            owner_references: Some(vec![owners::controlled_by(set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}
