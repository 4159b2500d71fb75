//! A small StatefulSet controller: one pod per ordinal, in order, with its PersistentVolumeClaims.
//!
//! Invariant: there is at most one pod of an ordinal, and nothing is decided for a set before the expectations are
//! satisfied. `plan` decides; this file and `pod_control` act. Pods of a LeaderWorkerSet get the fields that its
//! webhook sets on a real cluster (`leader_worker::pod_webhook`), since the playground has no webhooks.
//! Must not depend on the scheduler or the kubelets.

mod claims;
mod plan;
mod pod_control;
mod pods;
mod status;

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, Resource, ResourceExt};
use muster_clock::Clock;
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_playground_client::task::Task;
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Key, Selection, key_of};

use super::expectations::Expectations;
use super::owned_pods::OwnedPods;
use super::owners::{self, OwnershipAction, controller_of, is_controlled_by, selector_of};
use super::pod_record::{PodRecord, label};
use super::reconcile::{Controller, WorkQueue, run};
use super::recorder::{EventRecorder, EventType};
use super::revisions::{self, NewRevision};

pub(crate) use pods::split_name;

/// The label with the revision of a pod's template.
const REVISION_LABEL: &str = "controller-revision-hash";

/// The StatefulSet controller. It runs until this is dropped.
#[derive(Debug)]
pub struct StatefulSets {
    pub(super) task: Task,
}

impl StatefulSets {
    /// Starts the controller. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        let events = stream::select_all([
            watch(Api::<StatefulSet>::all(client.clone()), Selection::default()).map(Event::Set).boxed(),
            watch(Api::<PodRecord>::all(client.clone()), Selection::default()).map(Event::Pod).boxed(),
            watch(Api::<PersistentVolumeClaim>::all(client.clone()), Selection::default()).map(Event::Claim).boxed(),
            watch(Api::<ControllerRevision>::all(client.clone()), Selection::default()).map(Event::Revision).boxed(),
        ]);
        let recorder = EventRecorder::new(client.clone(), clock, "statefulset-controller");
        let controller = StatefulSetController {
            client,
            clock,
            recorder,
            sets: Cache::default(),
            pods: OwnedPods::new("StatefulSet"),
            claims: Cache::default(),
            revisions: Cache::default(),
            expectations: ExpectationsByKind::default(),
        };
        Self { task: Task::start("stateful set controller", run(controller, events)) }
    }
}

#[allow(clippy::large_enum_variant)] // only one exists at a time
enum Event {
    Set(Delta<StatefulSet>),
    Pod(Delta<PodRecord>),
    Claim(Delta<PersistentVolumeClaim>),
    Revision(Delta<ControllerRevision>),
}

/// The expectations of sets, by kind.
#[derive(Default)]
struct ExpectationsByKind {
    pods: Expectations,
    claims: Expectations,
    revisions: Expectations,
}

struct StatefulSetController {
    client: Client,
    clock: Clock,
    recorder: EventRecorder,
    sets: Cache<StatefulSet>,
    pods: OwnedPods,
    claims: Cache<PersistentVolumeClaim>,
    revisions: Cache<ControllerRevision>,
    expectations: ExpectationsByKind,
}

impl Controller for StatefulSetController {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut WorkQueue) {
        match event {
            Event::Set(event) => {
                let changes = self.sets.apply(event).into_iter();
                changes.filter_map(|change| change.new.or(change.old)).for_each(|set| queue.add(key_of(&*set)));
            }
            Event::Pod(event) => {
                self.expectations.pods.observe(&event, queue);
                for change in self.pods.apply(event) {
                    for pod in [change.old, change.new].into_iter().flatten() {
                        enqueue_owners(&pod, queue);
                    }
                }
            }
            Event::Claim(event) => {
                self.expectations.claims.observe(&event, queue);
                for change in self.claims.apply(event) {
                    let Some(claim) = change.new.or(change.old) else { continue };
                    let namespace = claim.namespace().unwrap_or_default();
                    let users = self.sets.in_namespace(&namespace).filter(|set| claims::is_of(set, &claim));
                    users.for_each(|set| queue.add(key_of(&**set)));
                }
            }
            Event::Revision(event) => {
                self.expectations.revisions.observe(&event, queue);
                for change in self.revisions.apply(event) {
                    let Some(revision) = change.new.or(change.old) else { continue };
                    let owner = controller_of(&*revision).filter(|owner| owner.kind == "StatefulSet");
                    if let Some(owner) = owner {
                        queue.add((revision.namespace().unwrap_or_default(), owner.name.clone()));
                    }
                }
            }
        }
    }

    fn has_synced(&self) -> bool {
        self.sets.has_synced() && self.pods.has_synced() && self.claims.has_synced() && self.revisions.has_synced()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(set) = self.sets.get(key).cloned() else {
            self.expectations.pods.forget(key);
            self.expectations.claims.forget(key);
            self.expectations.revisions.forget(key);
            return Ok(None);
        };
        if set.metadata.deletion_timestamp.is_some() {
            // Garbage collection deletes the dependents; a revision created now would be collected and recreated
            // forever.
            return Ok(None);
        }
        if self.expectations.pods.is_unknown(key) {
            self.resolve_unknown(key, &set).await?;
        }
        let is_satisfied = self.expectations.pods.is_satisfied(key, self.pods.cache())
            && self.expectations.claims.is_satisfied(key, &self.claims)
            && self.expectations.revisions.is_satisfied(key, &self.revisions);
        if !is_satisfied {
            return Ok(None);
        }
        match Box::pin(self.sync(key, &set)).await {
            Err(error) => {
                if owners::is_outcome_unknown(&error) {
                    self.expectations.pods.mark_unknown(key);
                }
                Err(error)
            }
            done => done,
        }
    }
}

/// The revisions of a set.
struct SetRevisions {
    /// The revision of pods that were not updated yet.
    current: ControllerRevision,
    /// The revision of the current spec.
    update: ControllerRevision,
    collisions: i32,
}

impl StatefulSetController {
    /// Reads from the server what became of writes whose responses were lost.
    async fn resolve_unknown(&mut self, key: &Key, set: &StatefulSet) -> Result<(), kube::Error> {
        let pods: Api<PodRecord> = Api::namespaced(self.client.clone(), &key.0);
        let mut live = pods.list(&ListParams::default()).await?.items;
        live.retain(|pod| is_controlled_by(pod, set));
        self.expectations.pods.resolve_unknown(key, &live, self.pods.of(set).map(|pod| &**pod));
        Ok(())
    }

    /// Syncs a set whose caches are up to date.
    async fn sync(&mut self, key: &Key, set: &StatefulSet) -> Result<Option<Duration>, kube::Error> {
        let pods = self.claim_pods(key, set).await?;
        let owned = self.revisions.in_namespace(&key.0).filter(|one| is_controlled_by(&***one, set));
        let revisions = revisions::sorted(owned.map(|one| (**one).clone()).collect());
        let set_revisions = self.revisions_of(key, set, &revisions).await?;
        let now = self.clock.now();
        let plan = plan::decide(
            &plan::StatefulSetView { set, pods: &pods, set_revisions: &set_revisions, claims: &self.claims },
            now,
        );
        let failure = self.execute(key, set, &set_revisions, plan.actions).await.err();
        let status_result = self.update_status(key, set, plan.status).await;
        if let Some(failure) = failure {
            return Err(failure);
        }
        status_result?;
        self.truncate_history(key, set, &pods, &revisions, &set_revisions).await?;
        Ok(plan.requeue_at.map(|time| Duration::try_from(time.duration_since(now)).unwrap_or_default()))
    }

    /// Adopts and releases pods as the selector demands, and returns the pods of the set.
    async fn claim_pods(&mut self, key: &Key, set: &StatefulSet) -> Result<Vec<Arc<PodRecord>>, kube::Error> {
        let selector = selector_of(&set.spec.selector);
        let classified = self.pods.of(set).chain(self.pods.orphans_in(&key.0)).map(|pod| {
            let is_member = split_name(&pod.name_any()).is_some_and(|(name, _)| name == key.1);
            let action = match owners::ownership_action(set, &selector, &**pod) {
                // Only a pod with the name of a member can be a member.
                OwnershipAction::Adopt if !is_member => OwnershipAction::Leave,
                OwnershipAction::Keep if !is_member && set.metadata.deletion_timestamp.is_none() => {
                    OwnershipAction::Release
                }
                action => action,
            };
            (action, Arc::clone(pod))
        });
        let classified: Vec<(OwnershipAction, Arc<PodRecord>)> =
            classified.filter(|(action, _)| *action != OwnershipAction::Leave).collect();
        if classified.iter().any(|(action, _)| *action == OwnershipAction::Adopt) {
            let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.0);
            let now = sets.get_opt(&key.1).await?;
            if now.is_none_or(|now| now.uid() != set.uid() || now.metadata.deletion_timestamp.is_some()) {
                return Ok(Vec::new());
            }
        }
        let mut claimed = Vec::new();
        for (action, pod) in classified {
            if action == OwnershipAction::Keep {
                claimed.push(pod);
                continue;
            }
            match owners::apply_ownership(&self.client, set, &*pod, action).await {
                Ok(pod) => {
                    self.expectations.pods.expect_write(key, &pod);
                    if action == OwnershipAction::Adopt {
                        claimed.push(Arc::new(pod));
                    }
                }
                Err(error) if is_not_found(&error) || is_conflict(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(claimed)
    }

    fn revisions_api(&self, key: &Key) -> Api<ControllerRevision> {
        Api::namespaced(self.client.clone(), &key.0)
    }

    async fn revisions_of(
        &mut self,
        key: &Key,
        set: &StatefulSet,
        revisions: &[ControllerRevision],
    ) -> Result<SetRevisions, kube::Error> {
        let new_revision = NewRevision {
            labels: set.spec.template.metadata.clone().and_then(|metadata| metadata.labels).unwrap_or_default(),
            annotations: set.annotations().clone(),
            data: pods::data(set),
        };
        let status = set.status.clone().unwrap_or_default();
        let collisions = status.collision_count.unwrap_or_default();
        let outcome = revisions::ensure(&self.revisions_api(key), set, revisions, new_revision, collisions).await?;
        if outcome.is_new {
            self.expectations.revisions.expect_write(key, &outcome.newest);
        }
        let current = revisions.iter().find(|one| Some(one.name_any()) == status.current_revision);
        let current = current.unwrap_or(&outcome.newest).clone();
        Ok(SetRevisions { current, update: outcome.newest, collisions: outcome.collisions })
    }

    /// Deletes the oldest unused revisions beyond `revisionHistoryLimit`.
    async fn truncate_history(
        &mut self,
        key: &Key,
        set: &StatefulSet,
        pods: &[Arc<PodRecord>],
        revisions: &[ControllerRevision],
        set_revisions: &SetRevisions,
    ) -> Result<(), kube::Error> {
        let used: Vec<String> = pods.iter().map(|pod| label(pod, REVISION_LABEL).to_owned()).collect();
        let is_used = |one: &&ControllerRevision| {
            let name = one.name_any();
            name == set_revisions.current.name_any() || name == set_revisions.update.name_any() || used.contains(&name)
        };
        let unused: Vec<&ControllerRevision> = revisions.iter().filter(|one| !is_used(one)).collect();
        let limit = set.spec.revision_history_limit.unwrap_or(10).max(0) as usize;
        for one in unused.iter().take(unused.len().saturating_sub(limit)) {
            match self.revisions_api(key).delete(&one.name_any(), &DeleteParams::default()).await {
                Err(error) if !is_not_found(&error) => return Err(error),
                _ => self.expectations.revisions.expect_deletion(key, *one),
            }
        }
        Ok(())
    }

    async fn record_event(&mut self, set: &StatefulSet, event_type: EventType, reason: &str, message: String) {
        self.recorder.record(set.object_ref(&()), event_type, reason, message).await;
    }
}

/// Enqueues the sets that own a pod or could adopt it.
fn enqueue_owners(pod: &PodRecord, queue: &mut WorkQueue) {
    let namespace = pod.namespace().unwrap_or_default();
    match controller_of(pod) {
        Some(owner) if owner.kind == "StatefulSet" && owner.api_version.starts_with("apps/") => {
            queue.add((namespace, owner.name.clone()));
        }
        Some(_) => {}
        None => {
            // Membership depends on the pod's name, so at most one set can adopt it.
            if let Some((name, _)) = split_name(&pod.name_any()) {
                queue.add((namespace, name.to_owned()));
            }
        }
    }
}
