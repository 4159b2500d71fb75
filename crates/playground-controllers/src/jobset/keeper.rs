//! The keeper of JobSets: looks at one set at a time, has done what it needs and tells how it stands.
//!
//! It must not reckon: `children` and `policy` do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::Request;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use muster_determinism::clock::{self, Clock};
use muster_playground_client::mirror::{Key, Mirror, key_of, watch};
use muster_playground_client::refusal::{is_conflict, is_not_found};
use serde_json::{Value, json};

use super::children::{self, Children};
use super::conditions::{self, Draft};
use super::policy::{self, Verdict};
use super::written::{self, JobSet, JobSetStatus, ReplicatedJobStatus};
use crate::owners::{controlled_by, controller_of, is_controlled_by, told};
use crate::reconcile::{self, Controller, Queue};
use crate::recorder::{Recorder, Tone};

/// The most Jobs of one kind that are made before another set has its turn.
const BURST: usize = 500;
/// The most requests under way at once.
const REQUESTS_MAX: usize = 16;
/// Who keeps sets that do not say otherwise.
const KEEPER: &str = "jobset.sigs.k8s.io/jobset-controller";

/// Keeps JobSets for as long as it is polled.
pub(super) async fn run(client: Client, clock: Clock) {
    let everything = watcher::Config::default;
    let events = stream::select_all([
        watch(Api::<JobSet>::all(client.clone()), everything()).map(Event::Set).boxed(),
        watch(Api::<Job>::all(client.clone()), everything()).map(Event::Job).boxed(),
        watch(Api::<Service>::all(client.clone()), everything()).map(Event::Service).boxed(),
    ]);
    let keeper = Keeper {
        recorder: Recorder::new(client.clone(), clock, "jobset"),
        client,
        clock,
        sets: Mirror::default(),
        jobs: Mirror::default(),
        services: Mirror::default(),
        written: BTreeMap::new(),
    };
    Box::pin(reconcile::run(keeper, events)).await;
}

#[allow(clippy::large_enum_variant)] // there is one at a time
enum Event {
    Set(watcher::Event<JobSet>),
    Job(watcher::Event<Job>),
    Service(watcher::Event<Service>),
}

struct Keeper {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    sets: Mirror<JobSet>,
    jobs: Mirror<Job>,
    services: Mirror<Service>,
    /// The revision of each set that our last status made; by UID.
    written: BTreeMap<String, u64>,
}

/// The set that an object says it belongs to.
fn set_of<K: Resource>(object: &K) -> Option<Key> {
    let owner = controller_of(object).filter(|owner| owner.kind == "JobSet")?;
    owner.api_version.starts_with(written::GROUP).then(|| (object.namespace().unwrap_or_default(), owner.name.clone()))
}

impl Controller for Keeper {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut Queue) {
        match event {
            Event::Set(event) => {
                for change in self.sets.take(event) {
                    if let (None, Some(old)) = (&change.new, &change.old) {
                        self.written.remove(&old.uid().unwrap_or_default());
                    }
                    if let Some(set) = change.new.or(change.old) {
                        queue.soon(key_of(&*set));
                    }
                }
            }
            Event::Job(event) => {
                let changed = self.jobs.take(event).into_iter().filter_map(|change| change.new.or(change.old));
                changed.filter_map(|job| set_of(&*job)).for_each(|set| queue.soon(set));
            }
            Event::Service(event) => {
                let changed = self.services.take(event).into_iter().filter_map(|change| change.new.or(change.old));
                changed.filter_map(|service| set_of(&*service)).for_each(|set| queue.soon(set));
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.sets.is_complete() && self.jobs.is_complete() && self.services.is_complete()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(set) = self.sets.get(key).cloned() else { return Ok(None) };
        let is_foreign = set.spec.managed_by.as_deref().is_some_and(|manager| manager != KEEPER);
        let is_stale = revision(&set) < self.written.get(&set.uid().unwrap_or_default()).copied().unwrap_or(0);
        if is_foreign || is_stale || set.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let mut draft = Draft::new(set.status.clone(), self.clock.now());
        let again = self.tend(key, &set, &mut draft).await?;
        self.tell(key, &set, draft).await?;
        Ok(again)
    }
}

impl Keeper {
    fn jobs_of(&self, key: &Key) -> Api<Job> {
        Api::namespaced(self.client.clone(), &key.0)
    }

    /// Does what the set needs, and writes into the draft how it stands.
    async fn tend(&mut self, key: &Key, set: &JobSet, draft: &mut Draft) -> Result<Option<Duration>, kube::Error> {
        let jobs = self.jobs.within(&key.0).filter(|job| is_controlled_by(&***job, set)).cloned();
        let children = Children::sort(set, jobs);
        let statuses = children.statuses(set);
        draft.status.replicated_jobs_status.clone_from(&statuses);
        if let Some(ended) = conditions::ended_at(&set.status) {
            self.delete(key, &children.active).await?;
            return self.expire(key, set, ended).await;
        }
        if let Some(why) = policy::unsupported(set) {
            draft.fail("NotSupported", &format!("JobSet {}/{}: {why}", key.0, key.1));
            return Ok(None);
        }
        self.delete(key, &children.previous).await?;
        let is_suspended = set.spec.is_suspended();
        if !is_suspended && policy::are_all_ready(set, &statuses) {
            draft.ready();
        }
        if !children.failed.is_empty() {
            on_failure(set, &children, draft);
            return Ok(None);
        }
        if policy::is_complete(set, &children) {
            draft.complete();
            return Ok(None);
        }
        self.serve(key, set).await?;
        self.make(key, set, &children, &statuses, draft).await?;
        if is_suspended {
            for job in children.active.iter().filter(|job| !children::is_suspended(job)) {
                self.switch(key, job, true).await?;
            }
            draft.suspend();
        } else {
            self.resume(key, set, &children, &statuses, draft).await?;
        }
        Ok(None)
    }

    /// Removes a set whose time is over.
    async fn expire(&self, key: &Key, set: &JobSet, ended: jiff::Timestamp) -> Result<Option<Duration>, kube::Error> {
        let Some(seconds) = set.spec.ttl_seconds_after_finished else { return Ok(None) };
        let wait = clock::after(ended, i64::from(seconds)).duration_since(self.clock.now());
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

    /// Makes the service by which pods find one another.
    async fn serve(&mut self, key: &Key, set: &JobSet) -> Result<(), kube::Error> {
        let name = written::subdomain(set).to_owned();
        if !set.spec.network.enable_dns_hostnames || self.services.get(&(key.0.clone(), name.clone())).is_some() {
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
                let message = told(&error);
                let about = set.object_ref(&());
                self.recorder.say(about, Tone::Warning, "HeadlessServiceCreationFailed", message).await;
                Err(error)
            }
            Ok(_) => Ok(()),
        }
    }

    /// Makes the Jobs that may start and are not there.
    async fn make(
        &mut self,
        key: &Key,
        set: &JobSet,
        children: &Children,
        statuses: &[ReplicatedJobStatus],
        draft: &mut Draft,
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
            self.create(key, set, &jobs).await?;
            if in_order {
                draft.start_in_order(false);
                return Ok(());
            }
        }
        if in_order {
            draft.start_in_order(true);
        }
        Ok(())
    }

    async fn create(&mut self, key: &Key, set: &JobSet, jobs: &[Value]) -> Result<(), kube::Error> {
        let calls: Vec<_> = jobs.iter().map(|job| create(self.client.clone(), key, job)).collect();
        let answers: Vec<_> = stream::iter(calls).buffered(REQUESTS_MAX).collect().await;
        let mut failure = None;
        for (job, answer) in jobs.iter().zip(answers) {
            let Err(error) = answer else { continue };
            let name = job["metadata"]["name"].as_str().unwrap_or_default();
            let is_ours = |job: &Arc<Job>| is_controlled_by(&**job, set);
            let is_late = self.jobs.get(&(key.0.clone(), name.to_owned())).is_none_or(is_ours);
            // A Job of ours that the watch has not shown yet is no news.
            if !(is_conflict(&error) && is_late) {
                let message = format!("job {name:?} creation failed with error: {}", told(&error));
                self.recorder.say(set.object_ref(&()), Tone::Warning, "JobCreationFailed", message).await;
            }
            failure = Some(error);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Lets the suspended Jobs go on that may start.
    async fn resume(
        &self,
        key: &Key,
        set: &JobSet,
        children: &Children,
        statuses: &[ReplicatedJobStatus],
        draft: &mut Draft,
    ) -> Result<(), kube::Error> {
        let in_order = set.spec.is_in_order();
        for replicated in &set.spec.replicated_jobs {
            let is_done = in_order && policy::has_started(replicated, statuses);
            if is_done || !policy::may_start(set, replicated, statuses) {
                continue;
            }
            let ours = children.active.iter().filter(|job| children::replicated_name(job) == replicated.name);
            for job in ours.filter(|job| children::is_suspended(job)) {
                self.switch(key, job, false).await?;
            }
            if in_order {
                draft.start_in_order(false);
                return Ok(());
            }
        }
        draft.resume();
        Ok(())
    }

    /// Suspends a Job, or lets it go on.
    async fn switch(&self, key: &Key, job: &Job, suspend: bool) -> Result<(), kube::Error> {
        let patch = Patch::Merge(json!({"metadata": {"uid": job.uid()}, "spec": {"suspend": suspend}}));
        match self.jobs_of(key).patch(&job.name_any(), &PatchParams::default(), &patch).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Writes the status if it is new, and then says what there is to say.
    async fn tell(&mut self, key: &Key, set: &JobSet, draft: Draft) -> Result<(), kube::Error> {
        if draft.status == set.status && set.status != JobSetStatus::default() {
            return Ok(());
        }
        let sets: Api<JobSet> = Api::namespaced(self.client.clone(), &key.0);
        let body = JobSet { status: draft.status, ..set.clone() };
        match sets.replace_status(&key.1, &PostParams::default(), &body).await {
            Ok(new) => drop(self.written.insert(new.uid().unwrap_or_default(), revision(&new))),
            // It is gone, and the watch is late to say so.
            Err(error) if is_not_found(&error) => drop(self.sets.take(watcher::Event::Delete(set.clone()))),
            Err(error) => return Err(error),
        }
        for saying in draft.sayings {
            self.recorder.say(set.object_ref(&()), saying.tone, &saying.reason, saying.message).await;
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

/// Decides what failed Jobs lead to.
fn on_failure(set: &JobSet, children: &Children, draft: &mut Draft) {
    match policy::on_failure(set, children) {
        Verdict::Fail { reason, message } => draft.fail(reason, &message),
        Verdict::Restart { counts, event, condition, message } => {
            draft.status.restarts += 1;
            draft.status.restarts_count_towards_max += u32::from(counts);
            draft.set("RestartingJobSet", true, Tone::Warning, &condition, &message);
            draft.say(Tone::Warning, event, &message);
        }
    }
}

/// Makes a Job as it was written: what the server does not know is refused, since nobody else has looked at it.
async fn create(client: Client, key: &Key, job: &Value) -> Result<Job, kube::Error> {
    let path = format!("/apis/batch/v1/namespaces/{}/jobs?fieldValidation=Strict", key.0);
    let body = serde_json::to_vec(job).map_err(kube::Error::SerdeError)?;
    let request = Request::post(path).header("content-type", "application/json").body(body);
    client.request(request.map_err(kube::Error::HttpError)?).await
}
