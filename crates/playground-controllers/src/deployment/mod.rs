//! A small Deployment controller: one ReplicaSet per template, and a rollout from the old ones to the new one.
//!
//! Invariant: nothing is decided for a Deployment before its expectations are satisfied, so that its ReplicaSets
//! together never exceed replicas plus surge, nor drop below the minimum available.
//! Must not depend on pods: the status of the ReplicaSets is enough.

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
use kube::{Client, Resource, ResourceExt};
use muster_clock::Clock;
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_playground_client::task::Task;
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Key, Selection, key_of};

use super::expectations::Expectations;
use super::owners::{self, OwnershipAction, controller_of, is_controlled_by, selector_of};
use super::reconcile::{Controller, WorkQueue, run};
use super::recorder::{EventRecorder, EventType};

pub(crate) use numbers::scaled_value;

/// The Deployment controller. It runs until this is dropped.
#[derive(Debug)]
pub struct Deployments {
    pub(super) task: Task,
}

impl Deployments {
    /// Starts the controller. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        let events = stream::select_all([
            watch(Api::<Deployment>::all(client.clone()), Selection::default()).map(Event::Deployment).boxed(),
            watch(Api::<ReplicaSet>::all(client.clone()), Selection::default()).map(Event::Set).boxed(),
        ]);
        let recorder = EventRecorder::new(client.clone(), clock, "deployment-controller");
        let controller = DeploymentController {
            client,
            clock,
            recorder,
            deployments: Cache::default(),
            sets: Cache::default(),
            expectations: Expectations::default(),
        };
        Self { task: Task::start("deployment controller", run(controller, events)) }
    }
}

#[allow(clippy::large_enum_variant)] // only one exists at a time
enum Event {
    Deployment(Delta<Deployment>),
    Set(Delta<ReplicaSet>),
}

struct DeploymentController {
    client: Client,
    clock: Clock,
    recorder: EventRecorder,
    deployments: Cache<Deployment>,
    sets: Cache<ReplicaSet>,
    expectations: Expectations,
}

impl Controller for DeploymentController {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut WorkQueue) {
        match event {
            Event::Deployment(event) => {
                let changes = self.deployments.apply(event).into_iter();
                changes.filter_map(|change| change.new.or(change.old)).for_each(|one| queue.add(key_of(&*one)));
            }
            Event::Set(event) => {
                self.expectations.observe(&event, queue);
                for change in self.sets.apply(event) {
                    for set in [change.old, change.new].into_iter().flatten() {
                        self.enqueue_owners(&set, queue);
                    }
                }
            }
        }
    }

    fn has_synced(&self) -> bool {
        self.deployments.has_synced() && self.sets.has_synced()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(deployment) = self.deployments.get(key).cloned() else {
            self.expectations.forget(key);
            return Ok(None);
        };
        if self.expectations.is_unknown(key) {
            self.resolve_unknown(key, &deployment).await?;
        }
        if !self.expectations.is_satisfied(key, &self.sets) {
            return Ok(None);
        }
        match Box::pin(self.sync(key, &deployment)).await {
            Err(error) => {
                if owners::is_outcome_unknown(&error) {
                    self.expectations.mark_unknown(key);
                }
                Err(error)
            }
            done => done,
        }
    }
}

impl DeploymentController {
    /// Enqueues the Deployments that own a set or could adopt it.
    fn enqueue_owners(&self, set: &ReplicaSet, queue: &mut WorkQueue) {
        let namespace = set.namespace().unwrap_or_default();
        match controller_of(set) {
            Some(owner) if owner.kind == "Deployment" && owner.api_version.starts_with("apps/") => {
                queue.add((namespace, owner.name.clone()));
            }
            Some(_) => {}
            None => {
                let candidates = self.deployments.in_namespace(&namespace);
                let adopters = candidates.filter(|one| selector_of(&one.spec.selector).matches(set.labels()));
                adopters.for_each(|one| queue.add(key_of(&**one)));
            }
        }
    }

    fn sets_api(&self, key: &Key) -> Api<ReplicaSet> {
        Api::namespaced(self.client.clone(), &key.0)
    }

    /// Reads from the server what became of writes whose responses were lost.
    async fn resolve_unknown(&mut self, key: &Key, deployment: &Deployment) -> Result<(), kube::Error> {
        let mut live = self.sets_api(key).list(&ListParams::default()).await?.items;
        live.retain(|set| is_controlled_by(set, deployment));
        let observed =
            self.sets.in_namespace(&key.0).map(|set| &**set).filter(|set| is_controlled_by(*set, deployment));
        self.expectations.resolve_unknown(key, &live, observed);
        Ok(())
    }

    /// Adopts and releases ReplicaSets as the selector demands, and returns those of the Deployment, the oldest first.
    async fn claim_sets(&mut self, key: &Key, deployment: &Deployment) -> Result<Vec<ReplicaSet>, kube::Error> {
        let selector = selector_of(&deployment.spec.selector);
        let classified = self
            .sets
            .in_namespace(&key.0)
            .map(|set| (owners::ownership_action(deployment, &selector, &**set), (**set).clone()));
        let classified: Vec<(OwnershipAction, ReplicaSet)> =
            classified.filter(|(action, _)| *action != OwnershipAction::Leave).collect();
        if classified.iter().any(|(action, _)| *action == OwnershipAction::Adopt) {
            let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &key.0);
            let now = deployments.get_opt(&key.1).await?;
            if now.is_none_or(|now| now.uid() != deployment.uid() || now.metadata.deletion_timestamp.is_some()) {
                return Ok(Vec::new());
            }
        }
        let mut claimed = Vec::new();
        for (action, set) in classified {
            if action == OwnershipAction::Keep {
                claimed.push(set);
                continue;
            }
            match owners::apply_ownership(&self.client, deployment, &set, action).await {
                Ok(set) => {
                    self.expectations.expect_write(key, &set);
                    if action == OwnershipAction::Adopt {
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

    /// Writes the status together with the annotations. On a conflict the watch brings the Deployment back.
    async fn write_status(&self, key: &Key, deployment: &Deployment) -> Result<(), kube::Error> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &key.0);
        match deployments.replace_status(&key.1, &PostParams::default(), deployment).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    async fn record_event(&mut self, deployment: &Deployment, event_type: EventType, reason: &str, message: String) {
        self.recorder.record(deployment.object_ref(&()), event_type, reason, message).await;
    }
}
