//! A small ReplicaSet controller: creates and deletes pods, and keeps the status.
//!
//! Invariant: no pod is created or deleted for a set before its expectations are satisfied, so that there are never too
//! many pods however late the watch is. Must not depend on the scheduler or the kubelets.

mod deletion_order;
mod status;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Client, Resource, ResourceExt};
use muster_api::selector::LabelSelector;
use muster_clock::Clock;
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_playground_client::task::Task;
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Key, Selection, key_of};

use super::expectations::Expectations;
use super::owned_pods::OwnedPods;
use super::owners::{self, OwnershipAction, controller_of, error_message, is_controlled_by, selector_of};
use super::pod_record::{PodRecord, is_active, is_finished, is_terminating};
use super::reconcile::{Controller, WorkQueue, run};
use super::recorder::{EventRecorder, EventType};

/// The maximum number of pods created or deleted before another set is synced.
const BURST: usize = 500;
/// The maximum number of requests in flight.
const REQUESTS_MAX: usize = 16;

/// The ReplicaSet controller. It runs until this is dropped.
#[derive(Debug)]
pub struct Replicas {
    pub(super) task: Task,
}

impl Replicas {
    /// Starts the controller. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        let events = stream::select_all([
            watch(Api::<ReplicaSet>::all(client.clone()), Selection::default()).map(Event::Set).boxed(),
            watch(Api::<PodRecord>::all(client.clone()), Selection::default()).map(Event::Pod).boxed(),
        ]);
        let recorder = EventRecorder::new(client.clone(), clock, "replicaset-controller");
        let controller = ReplicaSetController {
            client,
            clock,
            recorder,
            sets: Cache::default(),
            pods: OwnedPods::new("ReplicaSet"),
            expectations: Expectations::default(),
        };
        Self { task: Task::start("replica set controller", run(controller, events)) }
    }
}

#[allow(clippy::large_enum_variant)] // only one exists at a time
enum Event {
    Set(Delta<ReplicaSet>),
    Pod(Delta<PodRecord>),
}

struct ReplicaSetController {
    client: Client,
    clock: Clock,
    recorder: EventRecorder,
    sets: Cache<ReplicaSet>,
    pods: OwnedPods,
    expectations: Expectations,
}

impl Controller for ReplicaSetController {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut WorkQueue) {
        match event {
            Event::Set(event) => {
                let changes = self.sets.apply(event).into_iter();
                changes.filter_map(|change| change.new.or(change.old)).for_each(|set| queue.add(key_of(&*set)));
            }
            Event::Pod(event) => {
                self.expectations.observe(&event, queue);
                for change in self.pods.apply(event) {
                    for pod in [change.old, change.new].into_iter().flatten() {
                        self.enqueue_owners(&pod, queue);
                    }
                }
            }
        }
    }

    fn has_synced(&self) -> bool {
        self.sets.has_synced() && self.pods.has_synced()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(set) = self.sets.get(key).cloned() else {
            self.expectations.forget(key);
            return Ok(None);
        };
        if self.expectations.is_unknown(key) {
            self.resolve_unknown(key, &set).await?;
        }
        let selector = selector_of(&set.spec.selector);
        let mut failure = None;
        if self.expectations.is_satisfied(key, self.pods.cache()) {
            self.claim_pods(key, &set, &selector).await?;
            if set.metadata.deletion_timestamp.is_none() {
                failure = self.manage_replicas(key, &set).await.err();
            }
        }
        let next = self.update_status(&set, failure.as_ref()).await?;
        failure.map_or(Ok(next), Err)
    }
}

impl ReplicaSetController {
    /// Enqueues the sets that own a pod or could adopt it.
    fn enqueue_owners(&self, pod: &PodRecord, queue: &mut WorkQueue) {
        let namespace = pod.namespace().unwrap_or_default();
        match controller_of(pod) {
            Some(owner) if owner.kind == "ReplicaSet" && owner.api_version.starts_with("apps/") => {
                queue.add((namespace, owner.name.clone()));
            }
            Some(_) => {}
            None => {
                let could_adopt = |set: &&Arc<ReplicaSet>| selector_of(&set.spec.selector).matches(pod.labels());
                self.sets.in_namespace(&namespace).filter(could_adopt).for_each(|set| queue.add(key_of(&**set)));
            }
        }
    }

    /// The pods of a set that have not terminated.
    fn pods_of(&self, set: &ReplicaSet) -> impl Iterator<Item = &Arc<PodRecord>> {
        self.pods.of(set).filter(|pod| !is_finished(pod))
    }

    /// Reads from the server what became of writes whose responses were lost.
    async fn resolve_unknown(&mut self, key: &Key, set: &ReplicaSet) -> Result<(), kube::Error> {
        let pods: Api<PodRecord> = Api::namespaced(self.client.clone(), &key.0);
        let mut live = pods.list(&ListParams::default()).await?.items;
        live.retain(|pod| is_controlled_by(pod, set));
        self.expectations.resolve_unknown(key, &live, self.pods.of(set).map(|pod| &**pod));
        Ok(())
    }

    /// Adopts orphans that match the selector, and releases pods that no longer do.
    async fn claim_pods(&mut self, key: &Key, set: &ReplicaSet, selector: &LabelSelector) -> Result<(), kube::Error> {
        let pods = self.pods.of(set).chain(self.pods.orphans_in(&key.0)).filter(|pod| is_active(pod));
        let classified = pods.map(|pod| (owners::ownership_action(set, selector, &**pod), pod));
        let actions =
            classified.filter(|(action, _)| matches!(action, OwnershipAction::Adopt | OwnershipAction::Release));
        let actions: Vec<(OwnershipAction, Arc<PodRecord>)> =
            actions.map(|(action, pod)| (action, Arc::clone(pod))).collect();
        if actions.iter().any(|(action, _)| *action == OwnershipAction::Adopt) {
            // The cache may be stale: a set that is being deleted must not adopt pods.
            let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &key.0);
            let now = sets.get_opt(&key.1).await?;
            if now.is_none_or(|now| now.uid() != set.uid() || now.metadata.deletion_timestamp.is_some()) {
                return Ok(());
            }
        }
        for (action, pod) in actions {
            match owners::apply_ownership(&self.client, set, &*pod, action).await {
                Ok(pod) => self.observe_claimed(key, &pod),
                Err(error) if is_not_found(&error) || is_conflict(&error) => {}
                Err(error) => return Err(self.mark_if_unknown(key, error)),
            }
        }
        Ok(())
    }

    fn observe_claimed(&mut self, key: &Key, pod: &PodRecord) {
        self.expectations.expect_write(key, pod);
        self.pods.apply(Delta::Applied(pod.clone()));
    }

    fn mark_if_unknown(&mut self, key: &Key, error: kube::Error) -> kube::Error {
        if owners::is_outcome_unknown(&error) {
            self.expectations.mark_unknown(key);
        }
        error
    }

    /// Creates or deletes pods.
    async fn manage_replicas(&mut self, key: &Key, set: &ReplicaSet) -> Result<(), kube::Error> {
        let desired = set.spec.replicas.unwrap_or(1).max(0) as usize;
        let active: Vec<Arc<PodRecord>> = self.pods_of(set).filter(|pod| !is_terminating(pod)).cloned().collect();
        match active.len().cmp(&desired) {
            Ordering::Less => self.create_pods(key, set, (desired - active.len()).min(BURST)).await,
            Ordering::Equal => Ok(()),
            Ordering::Greater => {
                let surplus = (active.len() - desired).min(BURST);
                self.delete_pods(key, set, active, surplus).await
            }
        }
    }

    /// Creates pods in batches that start with one and double while there is no failure.
    async fn create_pods(&mut self, key: &Key, set: &ReplicaSet, count: usize) -> Result<(), kube::Error> {
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
                        self.expectations.expect_write(key, &pod);
                        self.record_event(
                            set,
                            EventType::Normal,
                            "SuccessfulCreate",
                            format!("Created pod: {}", pod.name_any()),
                        )
                        .await;
                    }
                    Err(error) => {
                        let message = format!("Error creating: {}", error_message(&error));
                        self.record_event(set, EventType::Warning, "FailedCreate", message).await;
                        failure = Some(self.mark_if_unknown(key, error));
                    }
                }
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
        Ok(())
    }

    async fn delete_pods(
        &mut self,
        key: &Key,
        set: &ReplicaSet,
        active: Vec<Arc<PodRecord>>,
        count: usize,
    ) -> Result<(), kube::Error> {
        let pods: Api<PodRecord> = Api::namespaced(self.client.clone(), &key.0);
        for pod in
            deletion_order::sort(active, self.related_pods(set).into_iter(), self.clock.now()).into_iter().take(count)
        {
            let only = Preconditions { uid: pod.uid(), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
            match pods.delete(&pod.name_any(), &parameters).await {
                Ok(_) => {
                    self.expectations.expect_deletion(key, &*pod);
                    self.record_event(
                        set,
                        EventType::Normal,
                        "SuccessfulDelete",
                        format!("Deleted pod: {}", pod.name_any()),
                    )
                    .await;
                }
                Err(error) if is_not_found(&error) || is_conflict(&error) => {
                    self.expectations.expect_deletion(key, &*pod);
                }
                Err(error) => {
                    self.record_event(
                        set,
                        EventType::Warning,
                        "FailedDelete",
                        format!("Error deleting: {}", error_message(&error)),
                    )
                    .await;
                    return Err(self.mark_if_unknown(key, error));
                }
            }
        }
        Ok(())
    }

    /// The active pods of this set and of all sets with the same controller: pods that share a node are deleted first.
    fn related_pods(&self, set: &ReplicaSet) -> Vec<&PodRecord> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let above = controller_of(set).map(|owner| &owner.uid);
        let is_related = |other: &ReplicaSet| {
            other.uid() == set.uid() || (above.is_some() && controller_of(other).map(|owner| &owner.uid) == above)
        };
        let related = self.sets.in_namespace(namespace).filter(|other| is_related(other));
        related.flat_map(|set| self.pods.of(&**set)).map(|pod| &**pod).filter(|pod| is_active(pod)).collect()
    }

    async fn record_event(&mut self, set: &ReplicaSet, event_type: EventType, reason: &str, message: String) {
        self.recorder.record(set.object_ref(&()), event_type, reason, message).await;
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
