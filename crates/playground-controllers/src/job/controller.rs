//! The sync loop of the Job controller: syncs one Job at a time and updates its status.
//!
//! It decides nothing itself: `job_state`, `finish`, `pod_changes` and `finalizer_tracking` do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use kube::api::{Api, DeleteParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Client, ResourceExt};
use muster_clock::{self as clock, Clock};
use muster_playground_client::api_errors::is_not_found;
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Key, Selection, key_of};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::finalizer_tracking;
use super::finish;
use super::job_state::JobState;
use super::pod::{self, JobPod};
use super::pod_cache::PodCache;
use super::pod_changes::{self, PodChanges};
use super::pod_control::{BatchResult, PodControl};
use crate::reconcile::{self, Controller, WorkQueue};
use crate::recorder::EventType;

/// How long pod events are batched before their Job is synced.
const SYNC_BATCH_PERIOD: Duration = Duration::from_secs(1);
/// The `managedBy` value of this controller, which is also the default.
const CONTROLLER_NAME: &str = "kubernetes.io/job-controller";

/// Runs the controller for as long as it is polled.
pub(super) async fn run(client: Client, clock: Clock) {
    let events = stream::select_all([
        watch(Api::<Job>::all(client.clone()), Selection::default()).map(Event::Job).boxed(),
        watch(Api::<JobPod>::all(client.clone()), Selection::default()).map(Event::Pod).boxed(),
    ]);
    let pod_control = PodControl::new(client.clone(), clock);
    let controller = JobController {
        client,
        clock,
        jobs: Cache::default(),
        pod_cache: PodCache::default(),
        pod_control,
        written_versions: BTreeMap::new(),
        backoffs: BTreeMap::new(),
    };
    Box::pin(reconcile::run(controller, events)).await;
}

#[allow(clippy::large_enum_variant)] // only one exists at a time
enum Event {
    Job(Delta<Job>),
    Pod(Delta<JobPod>),
}

struct JobController {
    client: Client,
    clock: Clock,
    jobs: Cache<Job>,
    pod_cache: PodCache,
    pod_control: PodControl,
    /// The resourceVersion of each Job after our last status update; by UID.
    written_versions: BTreeMap<String, u64>,
    /// By the Job's UID.
    backoffs: BTreeMap<String, Backoff>,
}

/// The result of one sync.
struct Outcome {
    status: JobStatus,
    end: Option<JobCondition>,
    backoff: Backoff,
    requeue_after: Option<Duration>,
    failure: Option<kube::Error>,
}

impl Controller for JobController {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut WorkQueue) {
        match event {
            Event::Job(event) => {
                for change in self.jobs.apply(event) {
                    let (new, old) = (change.new.as_ref(), change.old.as_ref());
                    let is_other = new.map(|job| &job.metadata.uid) != old.map(|job| &job.metadata.uid);
                    if let Some(old) = old.filter(|_| is_other) {
                        self.forget(old);
                    }
                    if let Some(job) = new.or(old) {
                        queue.add(key_of(&**job));
                    }
                }
            }
            Event::Pod(event) => {
                for job in self.pod_cache.apply(event, &mut self.pod_control.expectations) {
                    queue.add_at(job, Instant::now() + SYNC_BATCH_PERIOD);
                }
            }
        }
    }

    fn has_synced(&self) -> bool {
        self.jobs.has_synced() && self.pod_cache.has_synced()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(job) = self.jobs.get(key).cloned() else {
            self.pod_control.forget(key);
            self.release_orphans(key, None).await?;
            return Ok(None);
        };
        self.release_orphans(key, Some(&job)).await?;
        let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
        if manager.is_some_and(|manager| manager != CONTROLLER_NAME) {
            return Ok(None);
        }
        self.pod_control.resolve_unknown(key, &job, &self.pod_cache).await?;
        if !self.pod_control.expectations.is_satisfied(key)
            || revision(&job) < self.written_versions.get(&uid(&job)).copied().unwrap_or(0)
        {
            return Ok(None);
        }
        match finish::finished_condition(&job) {
            Some(end) => self.sync_finished(key, &job, end).await,
            None => self.sync(key, &job).await,
        }
    }
}

impl JobController {
    fn jobs_of(&self, key: &Key) -> Api<Job> {
        Api::namespaced(self.client.clone(), &key.0)
    }

    fn forget(&mut self, job: &Job) {
        self.written_versions.remove(&uid(job));
        self.backoffs.remove(&uid(job));
    }

    /// Removes the finalizer of pods whose Job is gone. The watch of Jobs may be late, so the Job is read from the
    /// server.
    async fn release_orphans(&mut self, key: &Key, job: Option<&Job>) -> Result<(), kube::Error> {
        let owner = |pod: &JobPod| pod::owner(pod).map(|owner| owner.uid.clone());
        let job_uid = job.and_then(|job| job.metadata.uid.clone());
        let pods = self.pod_cache.of(key);
        let is_candidate = |pod: &&Arc<JobPod>| pod::is_tracked(pod) && (job_uid.is_none() || owner(pod) != job_uid);
        let candidates: Vec<&JobPod> = pods.iter().filter(is_candidate).map(|pod| &**pod).collect();
        if candidates.is_empty() {
            return Ok(());
        }
        let live = if key.1.is_empty() { None } else { self.jobs_of(key).get_metadata_opt(&key.1).await? };
        let live_uid = live.and_then(|job| job.metadata.uid);
        let orphans: Vec<&JobPod> =
            candidates.into_iter().filter(|pod| live_uid.is_none() || owner(pod) != live_uid).collect();
        let (_, failure) = self.pod_control.remove_finalizers(key, &orphans).await;
        if job.is_none() {
            self.pod_control.forget(key);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Removes all finalizers of a finished Job's pods, and deletes the Job when its TTL has passed.
    async fn sync_finished(
        &mut self,
        key: &Key,
        job: &Job,
        end: &JobCondition,
    ) -> Result<Option<Duration>, kube::Error> {
        self.backoffs.remove(&uid(job));
        let pods = self.pod_cache.of(key);
        let with_finalizer: Vec<&JobPod> = pods.iter().filter(|pod| pod::is_tracked(pod)).map(|pod| &**pod).collect();
        if let (_, Some(error)) = self.pod_control.remove_finalizers(key, &with_finalizer).await {
            return Err(error);
        }
        let kept_seconds = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
        let (Some(seconds), Some(finished_at)) = (kept_seconds, &end.last_transition_time) else { return Ok(None) };
        if job.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let wait = clock::after(finished_at.0, i64::from(seconds)).duration_since(self.clock.now());
        if let Some(wait) = Duration::try_from(wait).ok().filter(|wait| !wait.is_zero()) {
            return Ok(Some(wait));
        }
        let only = Preconditions { uid: job.uid(), resource_version: None };
        let parameters = DeleteParams {
            preconditions: Some(only),
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        match self.jobs_of(key).delete(&key.1, &parameters).await {
            Err(error) if is_not_found(&error) => Ok(None),
            answer => answer.map(|_| None),
        }
    }

    /// Syncs a Job that is not finished.
    async fn sync(&mut self, key: &Key, job: &Job) -> Result<Option<Duration>, kube::Error> {
        let now = self.clock.now();
        let pods = self.pod_cache.of(key);
        let is_ours = |pod: &&Arc<JobPod>| pod::owner(pod).map(|owner| &owner.uid) == job.metadata.uid.as_ref();
        let pods: Vec<&JobPod> = pods.iter().filter(is_ours).map(|pod| &**pod).collect();
        let state = JobState::new(job, &pods);
        let outcome = self.manage(key, &state, now).await;
        let requeue_after = outcome.requeue_after;
        let failure = self.update_status(key, &state, outcome, now).await?;
        failure.map_or(Ok(requeue_after), Err)
    }

    /// Creates or deletes the pods that the Job needs or no longer needs.
    async fn manage(&mut self, key: &Key, state: &JobState<'_>, now: Timestamp) -> Outcome {
        let mut status = state.job.status.clone().unwrap_or_default();
        if status.start_time.is_none() && !state.settings.is_suspended {
            status.start_time = Some(finish::whole_seconds(now));
        }
        let backoff = self.backoffs.get(&uid(state.job)).copied().unwrap_or_default();
        let backoff = backoff.after(&state.newly_succeeded, &state.newly_failed);
        let mut active = state.active.len();
        let mut ready = state.active.iter().filter(|pod| pod::is_ready(pod)).count();
        let mut terminating = state.terminating;
        let mut requeue_after = None;
        let mut end = finish::evaluate(state, &status, now);
        let (mut deletion, mut failure) = (BatchResult::default(), None);
        if end.is_some() {
            deletion = self.pod_control.delete(key, state.job, &state.active, false).await;
            end = end.filter(|_| deletion.count == active);
        } else {
            let is_terminating = state.job.metadata.deletion_timestamp.is_some();
            match if is_terminating { PodChanges::Nothing } else { pod_changes::decide(state, &backoff, now) } {
                PodChanges::Nothing => {}
                PodChanges::Wait(wait) => requeue_after = Some(wait),
                PodChanges::Create(indexes) => {
                    let created = self.pod_control.create(key, state, &indexes).await;
                    active += created.count;
                    failure = created.failure;
                }
                PodChanges::Delete(pods) => deletion = self.pod_control.delete(key, state.job, &pods, true).await,
            }
            end = finish::completion(state, active - deletion.count, now);
            if end.is_none() && !is_terminating {
                set_suspended_condition(&mut status, state.settings.is_suspended, now);
            }
            let deadline = finish::deadline(state, &status).map(|time| time.duration_since(now));
            let deadline = deadline.and_then(|time| Duration::try_from(time).ok());
            requeue_after = [requeue_after, deadline].into_iter().flatten().min();
        }
        active -= deletion.count;
        ready -= deletion.ready;
        terminating += deletion.count;
        status.active = Some(active as i32).filter(|count| *count > 0);
        status.ready = Some(ready as i32);
        status.terminating = Some(terminating as i32);
        Outcome { status, end, backoff, requeue_after, failure: failure.or(deletion.failure) }
    }

    /// Writes the status, removes the finalizers of counted pods, and writes the status again if that changed it.
    /// Returns the failure of an earlier step.
    async fn update_status(
        &mut self,
        key: &Key,
        state: &JobState<'_>,
        outcome: Outcome,
        now: Timestamp,
    ) -> Result<Option<kube::Error>, kube::Error> {
        let Outcome { mut status, end, backoff, failure, .. } = outcome;
        let mut with_finalizer: BTreeSet<&str> =
            state.pods.iter().filter(|pod| pod::is_tracked(pod)).map(|pod| pod::uid(pod)).collect();
        finalizer_tracking::clean_uncounted(&mut status, &with_finalizer);
        let tracked = finalizer_tracking::record_terminated(state, end.as_ref(), &mut status);
        let final_end = end.as_ref().map(|end| finish::final_condition(end, now));
        let is_last = |end: &JobCondition| final_end.as_ref().is_some_and(|last| last.type_ == end.type_);
        if let Some(end) = end.filter(|end| !is_last(end) && finish::true_condition(&status, &end.type_).is_none()) {
            status.conditions.get_or_insert_default().push(end);
        }
        let Some(job) = self.write_status(key, state.job, &status).await? else { return Ok(failure) };
        self.backoffs.insert(uid(&job), backoff);
        self.record_suspension(&job, state.job).await;
        let (removed, finalizer_failure) = self.pod_control.remove_finalizers(key, &tracked.finalizers_to_remove).await;
        with_finalizer.retain(|uid| !removed.contains(*uid));
        finalizer_tracking::clean_uncounted(&mut status, &with_finalizer);
        let is_over = !tracked.is_full
            && finalizer_failure.is_none()
            && finalizer_tracking::is_all_counted(&status)
            && status.terminating == Some(0);
        let final_end = final_end.filter(|_| is_over);
        if let Some(end) = &final_end {
            if end.type_ == "Complete" {
                status.completion_time.clone_from(&end.last_transition_time);
            }
            status.conditions.get_or_insert_default().push(end.clone());
        }
        self.write_status(key, &job, &status).await?;
        if let Some(end) = final_end {
            self.record_end(&job, &status, &end).await;
        }
        Ok(finalizer_failure.or(failure))
    }

    /// Writes a changed status. Returns the updated Job, or nothing if it is gone.
    async fn write_status(&mut self, key: &Key, job: &Job, status: &JobStatus) -> Result<Option<Job>, kube::Error> {
        if job.status.as_ref() == Some(status) {
            return Ok(Some(job.clone()));
        }
        let body = Job { status: Some(status.clone()), ..job.clone() };
        match self.jobs_of(key).replace_status(&key.1, &PostParams::default(), &body).await {
            Ok(job) => {
                self.written_versions.insert(uid(&job), revision(&job));
                // The server may normalize what was written.
                Ok(Some(Job { status: Some(status.clone()), ..job }))
            }
            // The Job is gone and the watch is late: pods created for it would be garbage-collected and recreated
            // forever.
            Err(error) if is_not_found(&error) => {
                self.forget(job);
                drop(self.jobs.apply(Delta::Deleted(job.clone())));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn record_suspension(&mut self, job: &Job, before: &Job) {
        let is =
            |job: &Job| job.status.as_ref().is_some_and(|status| finish::true_condition(status, "Suspended").is_some());
        match (is(before), is(job)) {
            (false, true) => {
                self.pod_control.record_event(job, EventType::Normal, "Suspended", "Job suspended".to_owned()).await;
            }
            (true, false) => {
                self.pod_control.record_event(job, EventType::Normal, "Resumed", "Job resumed".to_owned()).await;
            }
            _ => {}
        }
    }

    async fn record_end(&mut self, job: &Job, status: &JobStatus, end: &JobCondition) {
        if end.type_ != "Complete" {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            return self
                .pod_control
                .record_event(job, EventType::Warning, &text(&end.reason), text(&end.message))
                .await;
        }
        let desired = job.spec.as_ref().and_then(|spec| spec.completions);
        if desired.is_some_and(|desired| status.succeeded.unwrap_or(0) > desired) {
            let message = "Too many succeeded pods running after completion count reached";
            self.pod_control.record_event(job, EventType::Warning, "TooManySucceededPods", message.to_owned()).await;
        }
        self.pod_control.record_event(job, EventType::Normal, "Completed", "Job completed".to_owned()).await;
    }
}

fn uid(job: &Job) -> String {
    job.metadata.uid.clone().unwrap_or_default()
}

fn revision(job: &Job) -> u64 {
    job.metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Maintains the `Suspended` condition. A resumed Job gets a new start time.
fn set_suspended_condition(status: &mut JobStatus, is_suspended: bool, now: Timestamp) {
    let (value, reason, message) =
        if is_suspended { ("True", "JobSuspended", "Job suspended") } else { ("False", "JobResumed", "Job resumed") };
    let mut condition = status.conditions.iter_mut().flatten().find(|one| one.type_ == "Suspended");
    if condition.as_ref().map_or(!is_suspended, |condition| condition.status == value) {
        return;
    }
    let new = JobCondition { status: value.to_owned(), ..finish::condition("Suspended", reason, message, now) };
    match &mut condition {
        Some(condition) => **condition = new,
        None => status.conditions.get_or_insert_default().push(new),
    }
    status.start_time = (!is_suspended).then(|| finish::whole_seconds(now));
}
