//! A controller of Deployments in small: a replica set for each template, and a rollout from the old ones to the new one.
//!
//! Invariant: nothing is decided for a deployment before the watch has shown what was written for it, so that the replica
//! sets together never want more than replicas and surge, nor leave fewer available than allowed.
//! It must not know pods: what replica sets say of theirs is enough.

mod annotations;
mod numbers;
mod rollout;
mod scale;
mod sets;
mod status;

use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use muster_determinism::clock::Clock;
use muster_playground_client::mirror::{Key, Mirror, key_of, watch};
use muster_playground_client::refusal::{is_conflict, is_not_found};
use muster_playground_client::task::Task;

use super::owners::{self, Claim, controller_of, is_controlled_by, selector_of};
use super::reconcile::{Controller, Queue, run};
use super::recorder::{Recorder, Tone};
use super::unseen::Unseen;

pub(crate) use numbers::share;

/// Keeps the deployments until it is dropped.
#[derive(Debug)]
pub struct Deployments {
    pub(super) task: Task,
}

impl Deployments {
    /// Starts the client. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        let everything = watcher::Config::default;
        let events = stream::select_all([
            watch(Api::<Deployment>::all(client.clone()), everything()).map(Event::Deployment).boxed(),
            watch(Api::<ReplicaSet>::all(client.clone()), everything()).map(Event::Set).boxed(),
        ]);
        let recorder = Recorder::new(client.clone(), clock, "deployment-controller");
        let keeper = Keeper {
            client,
            clock,
            recorder,
            deployments: Mirror::default(),
            sets: Mirror::default(),
            unseen: Unseen::default(),
        };
        Self { task: Task::start("deployment controller", run(keeper, events)) }
    }
}

#[allow(clippy::large_enum_variant)] // there is one at a time
enum Event {
    Deployment(watcher::Event<Deployment>),
    Set(watcher::Event<ReplicaSet>),
}

struct Keeper {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    deployments: Mirror<Deployment>,
    sets: Mirror<ReplicaSet>,
    unseen: Unseen,
}

impl Controller for Keeper {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut Queue) {
        match event {
            Event::Deployment(event) => {
                let changes = self.deployments.take(event).into_iter();
                changes.filter_map(|change| change.new.or(change.old)).for_each(|one| queue.soon(key_of(&*one)));
            }
            Event::Set(event) => {
                self.unseen.see(&event, queue);
                for change in self.sets.take(event) {
                    for set in [change.old, change.new].into_iter().flatten() {
                        self.concern(&set, queue);
                    }
                }
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.deployments.is_complete() && self.sets.is_complete()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(deployment) = self.deployments.get(key).cloned() else {
            self.unseen.forget(key);
            return Ok(None);
        };
        if self.unseen.is_in_doubt(key) {
            self.look(key, &deployment).await?;
        }
        if !self.unseen.is_settled(key, &self.sets) {
            return Ok(None);
        }
        match Box::pin(self.roll(key, &deployment)).await {
            Err(error) => {
                if owners::is_doubtful(&error) {
                    self.unseen.doubt(key);
                }
                Err(error)
            }
            done => done,
        }
    }
}

impl Keeper {
    /// Wakes the deployments that a set belongs to or could belong to.
    fn concern(&self, set: &ReplicaSet, queue: &mut Queue) {
        let namespace = set.namespace().unwrap_or_default();
        match controller_of(set) {
            Some(owner) if owner.kind == "Deployment" && owner.api_version.starts_with("apps/") => {
                queue.soon((namespace, owner.name.clone()));
            }
            Some(_) => {}
            None => {
                let near = self.deployments.within(&namespace);
                let would_take = near.filter(|one| selector_of(&one.spec.selector).matches(set.labels()));
                would_take.for_each(|one| queue.soon(key_of(&**one)));
            }
        }
    }

    fn sets_api(&self, key: &Key) -> Api<ReplicaSet> {
        Api::namespaced(self.client.clone(), &key.0)
    }

    /// Asks the server what has become of writes whose answers were lost.
    async fn look(&mut self, key: &Key, deployment: &Deployment) -> Result<(), kube::Error> {
        let mut live = self.sets_api(key).list(&ListParams::default()).await?.items;
        live.retain(|set| is_controlled_by(set, deployment));
        let seen = self.sets.within(&key.0).map(|set| &**set).filter(|set| is_controlled_by(*set, deployment));
        self.unseen.compare(key, &live, seen);
        Ok(())
    }

    /// The replica sets of a deployment, after it took in and let go of what it should; the oldest first.
    async fn claimed(&mut self, key: &Key, deployment: &Deployment) -> Result<Vec<ReplicaSet>, kube::Error> {
        let selector = selector_of(&deployment.spec.selector);
        let judged =
            self.sets.within(&key.0).map(|set| (owners::claim(deployment, &selector, &**set), (**set).clone()));
        let judged: Vec<(Claim, ReplicaSet)> = judged.filter(|(claim, _)| *claim != Claim::Leave).collect();
        if judged.iter().any(|(claim, _)| *claim == Claim::Adopt) {
            let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &key.0);
            let now = deployments.get_opt(&key.1).await?;
            if now.is_none_or(|now| now.uid() != deployment.uid() || now.metadata.deletion_timestamp.is_some()) {
                return Ok(Vec::new());
            }
        }
        let mut claimed = Vec::new();
        for (claim, set) in judged {
            if claim == Claim::Keep {
                claimed.push(set);
                continue;
            }
            match owners::settle(&self.client, deployment, &set, claim).await {
                Ok(set) => {
                    self.unseen.wrote(key, &set);
                    if claim == Claim::Adopt {
                        claimed.push(set);
                    }
                }
                Err(error) if is_not_found(&error) || is_conflict(&error) => {}
                Err(error) => return Err(error),
            }
        }
        claimed.sort_by_key(|set| (set.metadata.creation_timestamp.clone(), set.name_any()));
        Ok(claimed)
    }

    /// Writes the status, and the annotations with it. One that changed meanwhile comes again by the watch.
    async fn write_status(&self, key: &Key, deployment: &Deployment) -> Result<(), kube::Error> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &key.0);
        match deployments.replace_status(&key.1, &PostParams::default(), deployment).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    async fn say(&mut self, deployment: &Deployment, tone: Tone, reason: &str, message: String) {
        self.recorder.say(deployment.object_ref(&()), tone, reason, message).await;
    }
}
