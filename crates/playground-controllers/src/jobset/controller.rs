//! The reconcile loop of the JobSet controller: syncs one set at a time and updates its status.
//!
//! It decides nothing itself: `children` and `policy` do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::Request;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Client, Resource, ResourceExt};
use muster_clock::{self as clock, Clock};
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Key, Selection, key_of};
use serde_json::{Value, json};

use super::children::{self, Children};
use super::conditions::{self, StatusUpdate};
use super::object::{self, JobSet, JobSetStatus, ReplicatedJobStatus};
use super::policy::{self, FailureAction};
use crate::owners::{controlled_by, controller_of, error_message, is_controlled_by};
use crate::reconcile::{self, Controller, WorkQueue};
use crate::recorder::{EventRecorder, EventType};

/// The maximum number of Jobs per replicated Job that are created before another set is synced.
const BURST: usize = 500;
/// The maximum number of requests in flight.
const REQUESTS_MAX: usize = 16;
/// The `managedBy` value of this controller, which is also the default.
const CONTROLLER_NAME: &str = "jobset.sigs.k8s.io/jobset-controller";

/// Runs the controller for as long as it is polled.
pub(super) async fn run(client: Client, clock: Clock) {
    let events = stream::select_all([
        watch(Api::<JobSet>::all(client.clone()), Selection::default()).map(Event::Set).boxed(),
        watch(Api::<Job>::all(client.clone()), Selection::default()).map(Event::Job).boxed(),
        watch(Api::<Service>::all(client.clone()), Selection::default()).map(Event::Service).boxed(),
    ]);
    let controller = JobSetController {
        recorder: EventRecorder::new(client.clone(), clock, "jobset"),
        client,
        clock,
        sets: Cache::default(),
        jobs: Cache::default(),
        services: Cache::default(),
        written_versions: BTreeMap::new(),
    };
    Box::pin(reconcile::run(controller, events)).await;
}

#[allow(clippy::large_enum_variant)] // only one exists at a time
enum Event {
    Set(Delta<JobSet>),
    Job(Delta<Job>),
    Service(Delta<Service>),
}

struct JobSetController {
    client: Client,
    clock: Clock,
    recorder: EventRecorder,
    sets: Cache<JobSet>,
    jobs: Cache<Job>,
    services: Cache<Service>,
    /// The resourceVersion of each set after our last status update; by UID.
    written_versions: BTreeMap<String, u64>,
}

/// The set that controls an object.
fn set_of<K: Resource>(object: &K) -> Option<Key> {
    let owner = controller_of(object).filter(|owner| owner.kind == "JobSet")?;
    owner.api_version.starts_with(object::GROUP).then(|| (object.namespace().unwrap_or_default(), owner.name.clone()))
}

impl Controller for JobSetController {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut WorkQueue) {
        match event {
            Event::Set(event) => {
                for change in self.sets.apply(event) {
                    if let (None, Some(old)) = (&change.new, &change.old) {
                        self.written_versions.remove(&old.uid().unwrap_or_default());
                    }
                    if let Some(set) = change.new.or(change.old) {
                        queue.add(key_of(&*set));
                    }
                }
            }
            Event::Job(event) => {
                let changed = self.jobs.apply(event).into_iter().filter_map(|change| change.new.or(change.old));
                changed.filter_map(|job| set_of(&*job)).for_each(|set| queue.add(set));
            }
            Event::Service(event) => {
                let changed = self.services.apply(event).into_iter().filter_map(|change| change.new.or(change.old));
                changed.filter_map(|service| set_of(&*service)).for_each(|set| queue.add(set));
            }
        }
    }

    fn has_synced(&self) -> bool {
        self.sets.has_synced() && self.jobs.has_synced() && self.services.has_synced()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(set) = self.sets.get(key).cloned() else { return Ok(None) };
        let is_foreign = set.spec.managed_by.as_deref().is_some_and(|manager| manager != CONTROLLER_NAME);
        let is_stale = revision(&set) < self.written_versions.get(&set.uid().unwrap_or_default()).copied().unwrap_or(0);
        if is_foreign || is_stale || set.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let mut update = StatusUpdate::new(set.status.clone(), self.clock.now());
        let requeue_after = self.sync(key, &set, &mut update).await?;
        self.update_status(key, &set, update).await?;
        Ok(requeue_after)
    }
}

impl JobSetController {
    fn jobs_of(&self, key: &Key) -> Api<Job> {
        Api::namespaced(self.client.clone(), &key.0)
    }

    /// Creates, suspends and deletes Jobs as the set needs, and collects the status update.
    async fn sync(
        &mut self,
        key: &Key,
        set: &JobSet,
        update: &mut StatusUpdate,
    ) -> Result<Option<Duration>, kube::Error> {
        let jobs = self.jobs.in_namespace(&key.0).filter(|job| is_controlled_by(&***job, set)).cloned();
        let children = Children::classify(set, jobs);
        let statuses = children.statuses(set);
        update.status.replicated_jobs_status.clone_from(&statuses);
        if let Some(finished_at) = conditions::finished_at(&set.status) {
            self.delete(key, &children.active).await?;
            return self.expire(key, set, finished_at).await;
        }
        if let Some(why) = policy::unsupported(set) {
            update.fail("NotSupported", &format!("JobSet {}/{}: {why}", key.0, key.1));
            return Ok(None);
        }
        self.delete(key, &children.previous).await?;
        let is_suspended = set.spec.is_suspended();
        if !is_suspended && policy::are_all_ready(set, &statuses) {
            update.ready();
        }
        if !children.failed.is_empty() {
            on_failure(set, &children, update);
            return Ok(None);
        }
        if policy::is_complete(set, &children) {
            update.complete();
            return Ok(None);
        }
        self.scale(key, set, &children).await?;
        self.create_service(key, set).await?;
        self.create_missing_jobs(key, set, &children, &statuses, update).await?;
        if is_suspended {
            for job in children.active.iter().filter(|job| !children::is_suspended(job)) {
                self.patch(key, job, json!({"suspend": true})).await?;
            }
            update.suspend();
        } else {
            self.resume(key, set, &children, &statuses, update).await?;
        }
        Ok(None)
    }

    /// Deletes a finished set when its TTL has passed.
    async fn expire(
        &self,
        key: &Key,
        set: &JobSet,
        finished_at: jiff::Timestamp,
    ) -> Result<Option<Duration>, kube::Error> {
        let Some(seconds) = set.spec.ttl_seconds_after_finished else { return Ok(None) };
        let wait = clock::after(finished_at, i64::from(seconds)).duration_since(self.clock.now());
        if let Some(wait) = Duration::try_from(wait).ok().filter(|wait| !wait.is_zero()) {
            return Ok(Some(wait));
        }
        let sets: Api<JobSet> = Api::namespaced(self.client.clone(), &key.0);
        match sets.delete(&key.1, &foreground(set.uid())).await {
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(None),
            answer => answer.map(|_| None),
        }
    }

    async fn delete(&self, key: &Key, jobs: &[Arc<Job>]) -> Result<(), kube::Error> {
        for job in jobs.iter().filter(|job| job.metadata.deletion_timestamp.is_none()) {
            match self.jobs_of(key).delete(&job.name_any(), &foreground(job.uid())).await {
                Err(error) if is_not_found(&error) || is_conflict(&error) => {}
                answer => drop(answer?),
            }
        }
        Ok(())
    }

    /// Creates the headless service of the pods.
    async fn create_service(&mut self, key: &Key, set: &JobSet) -> Result<(), kube::Error> {
        let name = object::subdomain(set).to_owned();
        if !set.spec.network.enable_dns_hostnames || self.services.find(&key.0, &name).is_some() {
            return Ok(());
        }
        let service = json!({
            "metadata": {"name": name, "ownerReferences": [controlled_by(set)]},
            "spec": {"clusterIP": "None", "selector": {"jobset.sigs.k8s.io/jobset-name": key.1},
                "publishNotReadyAddresses": set.spec.network.publish_not_ready_addresses},
        });
        let service: Service = serde_json::from_value(service).map_err(kube::Error::SerdeError)?;
        let services: Api<Service> = Api::namespaced(self.client.clone(), &key.0);
        match services.create(&PostParams::default(), &service).await {
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => {
                let message = error_message(&error);
                let object = set.object_ref(&());
                self.recorder.record(object, EventType::Warning, "HeadlessServiceCreationFailed", message).await;
                Err(error)
            }
            Ok(_) => Ok(()),
        }
    }

    /// Creates the missing Jobs that may start.
    async fn create_missing_jobs(
        &mut self,
        key: &Key,
        set: &JobSet,
        children: &Children,
        statuses: &[ReplicatedJobStatus],
        update: &mut StatusUpdate,
    ) -> Result<(), kube::Error> {
        let in_order = set.spec.is_in_order() && !set.spec.is_suspended();
        let strategy = set.spec.failure_policy.as_ref().map(|policy| policy.restart_strategy.as_str());
        let is_blocked = strategy == Some("BlockingRecreate") && !children.previous.is_empty();
        let present = children.names();
        for replicated in &set.spec.replicated_jobs {
            let is_done = in_order && policy::has_started(replicated, statuses);
            if is_done || !policy::may_start(set, replicated, statuses) {
                continue;
            }
            let missing = (0..replicated.replicas).filter(|_| !is_blocked);
            let missing =
                missing.filter(|index| !present.contains(children::job_name(set, replicated, *index).as_str()));
            let jobs: Vec<Value> = missing.take(BURST).map(|index| children::job(set, replicated, index)).collect();
            self.create_jobs(key, set, &jobs).await?;
            if in_order {
                update.start_in_order(false);
                return Ok(());
            }
        }
        if in_order {
            update.start_in_order(true);
        }
        Ok(())
    }

    async fn create_jobs(&mut self, key: &Key, set: &JobSet, jobs: &[Value]) -> Result<(), kube::Error> {
        let calls: Vec<_> = jobs.iter().map(|job| create_job(self.client.clone(), key, job)).collect();
        let answers: Vec<_> = stream::iter(calls).buffered(REQUESTS_MAX).collect().await;
        let mut failure = None;
        for (job, answer) in jobs.iter().zip(answers) {
            let Err(error) = answer else { continue };
            let name = job["metadata"]["name"].as_str().unwrap_or_default();
            let is_ours = |job: &Arc<Job>| is_controlled_by(&**job, set);
            let is_own_or_unseen = self.jobs.find(&key.0, name).is_none_or(is_ours);
            // A Job of this set that the watch has not shown yet is not worth an event.
            if !(is_conflict(&error) && is_own_or_unseen) {
                let message = format!("job {name:?} creation failed with error: {}", error_message(&error));
                self.recorder.record(set.object_ref(&()), EventType::Warning, "JobCreationFailed", message).await;
            }
            failure = Some(error);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Resumes the suspended Jobs that may start.
    async fn resume(
        &self,
        key: &Key,
        set: &JobSet,
        children: &Children,
        statuses: &[ReplicatedJobStatus],
        update: &mut StatusUpdate,
    ) -> Result<(), kube::Error> {
        let in_order = set.spec.is_in_order();
        for replicated in &set.spec.replicated_jobs {
            let is_done = in_order && policy::has_started(replicated, statuses);
            if is_done || !policy::may_start(set, replicated, statuses) {
                continue;
            }
            let ours = children.active.iter().filter(|job| children::replicated_name(job) == replicated.name);
            for job in ours.filter(|job| children::is_suspended(job)) {
                self.patch(key, job, children::resumed(replicated, job)).await?;
            }
            if in_order {
                update.start_in_order(false);
                return Ok(());
            }
        }
        update.resume();
        Ok(())
    }

    /// Changes the counts of elastic Jobs to those of the template.
    async fn scale(&self, key: &Key, set: &JobSet, children: &Children) -> Result<(), kube::Error> {
        for job in &children.active {
            if let Some(counts) = children::scaled_counts(set, job) {
                self.patch(key, job, counts).await?;
            }
        }
        Ok(())
    }

    async fn patch(&self, key: &Key, job: &Job, spec: Value) -> Result<(), kube::Error> {
        let patch = Patch::Merge(json!({"metadata": {"uid": job.uid()}, "spec": spec}));
        match self.jobs_of(key).patch(&job.name_any(), &PatchParams::default(), &patch).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Writes a changed status, then records the events.
    async fn update_status(&mut self, key: &Key, set: &JobSet, update: StatusUpdate) -> Result<(), kube::Error> {
        if update.status == set.status && set.status != JobSetStatus::default() {
            return Ok(());
        }
        let sets: Api<JobSet> = Api::namespaced(self.client.clone(), &key.0);
        let body = JobSet { status: update.status, ..set.clone() };
        match sets.replace_status(&key.1, &PostParams::default(), &body).await {
            Ok(new) => drop(self.written_versions.insert(new.uid().unwrap_or_default(), revision(&new))),
            // It is gone, and the watch is late.
            Err(error) if is_not_found(&error) => drop(self.sets.apply(Delta::Deleted(set.clone()))),
            Err(error) => return Err(error),
        }
        for event in update.events {
            self.recorder.record(set.object_ref(&()), event.event_type, &event.reason, event.message).await;
        }
        Ok(())
    }
}

fn revision(set: &JobSet) -> u64 {
    set.metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn foreground(uid: Option<String>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid, resource_version: None }),
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    }
}

/// Applies the failure policy to failed Jobs.
fn on_failure(set: &JobSet, children: &Children, update: &mut StatusUpdate) {
    match policy::on_failure(set, children) {
        FailureAction::Fail { reason, message } => update.fail(reason, &message),
        FailureAction::Restart { counts, event, condition, message } => {
            update.status.restarts += 1;
            update.status.restarts_count_towards_max += u32::from(counts);
            update.set("RestartingJobSet", true, EventType::Warning, &condition, &message);
            update.add_event(EventType::Warning, event, &message);
        }
    }
}

/// Creates a Job from the unmodified template: unknown fields are rejected by the server, since nothing else validates
/// them.
async fn create_job(client: Client, key: &Key, job: &Value) -> Result<Job, kube::Error> {
    let path = format!("/apis/batch/v1/namespaces/{}/jobs?fieldValidation=Strict", key.0);
    let body = serde_json::to_vec(job).map_err(kube::Error::SerdeError)?;
    let request = Request::post(path).header("content-type", "application/json").body(body);
    client.request(request.map_err(kube::Error::HttpError)?).await
}
