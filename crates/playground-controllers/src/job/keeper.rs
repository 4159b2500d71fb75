//! The keeper of Jobs: looks at one Job at a time, has done what it needs and tells how it stands.
//!
//! It must not reckon: `census`, `ending`, `deeds` and `books` do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use kube::api::{Api, DeleteParams, PostParams, Preconditions, PropagationPolicy};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use muster_determinism::clock::{self, Clock};
use muster_playground_client::mirror::{Key, Mirror, key_of, watch};
use muster_playground_client::refusal::is_not_found;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::books;
use super::census::Census;
use super::deeds::{self, Deeds};
use super::ending;
use super::hands::{Done, Hands};
use super::pod::{self, JobPod};
use super::roster::Roster;
use crate::reconcile::{self, Controller, Queue};
use crate::recorder::Tone;

/// How long news of pods are gathered before their Job is looked at.
const GATHER: Duration = Duration::from_secs(1);
/// Who keeps Jobs that do not say otherwise.
const KEEPER: &str = "kubernetes.io/job-controller";

/// Keeps Jobs for as long as it is polled.
pub(super) async fn run(client: Client, clock: Clock) {
    let everything = watcher::Config::default;
    let events = stream::select_all([
        watch(Api::<Job>::all(client.clone()), everything()).map(Event::Job).boxed(),
        watch(Api::<JobPod>::all(client.clone()), everything()).map(Event::Pod).boxed(),
    ]);
    let hands = Hands::new(client.clone(), clock);
    let keeper = Keeper {
        client,
        clock,
        jobs: Mirror::default(),
        roster: Roster::default(),
        hands,
        written: BTreeMap::new(),
        backoffs: BTreeMap::new(),
    };
    Box::pin(reconcile::run(keeper, events)).await;
}

#[allow(clippy::large_enum_variant)] // there is one at a time
enum Event {
    Job(watcher::Event<Job>),
    Pod(watcher::Event<JobPod>),
}

struct Keeper {
    client: Client,
    clock: Clock,
    jobs: Mirror<Job>,
    roster: Roster,
    hands: Hands,
    /// The revision of each Job that our last status made; by UID.
    written: BTreeMap<String, u64>,
    /// By the Job's UID.
    backoffs: BTreeMap<String, Backoff>,
}

/// What comes of looking at a Job.
struct Outcome {
    status: JobStatus,
    end: Option<JobCondition>,
    backoff: Backoff,
    again: Option<Duration>,
    failure: Option<kube::Error>,
}

impl Controller for Keeper {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut Queue) {
        match event {
            Event::Job(event) => {
                for change in self.jobs.take(event) {
                    let (new, old) = (change.new.as_ref(), change.old.as_ref());
                    let is_other = new.map(|job| &job.metadata.uid) != old.map(|job| &job.metadata.uid);
                    if let Some(old) = old.filter(|_| is_other) {
                        self.forget(old);
                    }
                    if let Some(job) = new.or(old) {
                        queue.soon(key_of(&**job));
                    }
                }
            }
            Event::Pod(event) => {
                for job in self.roster.take(event, &mut self.hands.ledger) {
                    queue.at(job, Instant::now() + GATHER);
                }
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.jobs.is_complete() && self.roster.is_complete()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(job) = self.jobs.get(key).cloned() else {
            self.hands.forget(key);
            self.free_strays(key, None).await?;
            return Ok(None);
        };
        self.free_strays(key, Some(&job)).await?;
        let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
        if manager.is_some_and(|manager| manager != KEEPER) {
            return Ok(None);
        }
        self.hands.look(key, &job, &self.roster).await?;
        if !self.hands.ledger.is_clear(key) || revision(&job) < self.written.get(&uid(&job)).copied().unwrap_or(0) {
            return Ok(None);
        }
        match ending::told(&job) {
            Some(end) => self.after_end(key, &job, end).await,
            None => self.tend(key, &job).await,
        }
    }
}

impl Keeper {
    fn jobs_of(&self, key: &Key) -> Api<Job> {
        Api::namespaced(self.client.clone(), &key.0)
    }

    fn forget(&mut self, job: &Job) {
        self.written.remove(&uid(job));
        self.backoffs.remove(&uid(job));
    }

    /// Lets go pods whose Job is gone. The watch of Jobs may be late, so the server is asked.
    async fn free_strays(&mut self, key: &Key, job: Option<&Job>) -> Result<(), kube::Error> {
        let owner = |pod: &JobPod| pod::owner(pod).map(|owner| owner.uid.clone());
        let job_uid = job.and_then(|job| job.metadata.uid.clone());
        let pods = self.roster.of(key);
        let is_stray = |pod: &&Arc<JobPod>| pod::is_tracked(pod) && (job_uid.is_none() || owner(pod) != job_uid);
        let strays: Vec<&JobPod> = pods.iter().filter(is_stray).map(|pod| &**pod).collect();
        if strays.is_empty() {
            return Ok(());
        }
        let there = if key.1.is_empty() { None } else { self.jobs_of(key).get_metadata_opt(&key.1).await? };
        let lives = there.and_then(|job| job.metadata.uid);
        let orphans: Vec<&JobPod> = strays.into_iter().filter(|pod| lives.is_none() || owner(pod) != lives).collect();
        let (_, failure) = self.hands.free(key, &orphans).await;
        if job.is_none() {
            self.hands.forget(key);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Nobody of a Job that is over is held, and its time to be gone may come.
    async fn after_end(&mut self, key: &Key, job: &Job, end: &JobCondition) -> Result<Option<Duration>, kube::Error> {
        self.backoffs.remove(&uid(job));
        let pods = self.roster.of(key);
        let held: Vec<&JobPod> = pods.iter().filter(|pod| pod::is_tracked(pod)).map(|pod| &**pod).collect();
        if let (_, Some(error)) = self.hands.free(key, &held).await {
            return Err(error);
        }
        let kept_seconds = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
        let (Some(seconds), Some(ended)) = (kept_seconds, &end.last_transition_time) else { return Ok(None) };
        if job.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let wait = clock::after(ended.0, i64::from(seconds)).duration_since(self.clock.now());
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

    /// Looks after a Job that is not over.
    async fn tend(&mut self, key: &Key, job: &Job) -> Result<Option<Duration>, kube::Error> {
        let now = self.clock.now();
        let pods = self.roster.of(key);
        let is_ours = |pod: &&Arc<JobPod>| pod::owner(pod).map(|owner| &owner.uid) == job.metadata.uid.as_ref();
        let pods: Vec<&JobPod> = pods.iter().filter(is_ours).map(|pod| &**pod).collect();
        let census = Census::take(job, &pods);
        let outcome = self.act(key, &census, now).await;
        let again = outcome.again;
        let failure = self.tell(key, &census, outcome, now).await?;
        failure.map_or(Ok(again), Err)
    }

    /// Has done what the Job needs.
    async fn act(&mut self, key: &Key, census: &Census<'_>, now: Timestamp) -> Outcome {
        let mut status = census.job.status.clone().unwrap_or_default();
        if status.start_time.is_none() && !census.terms.is_suspended {
            status.start_time = Some(ending::stamp(now));
        }
        let backoff = self.backoffs.get(&uid(census.job)).copied().unwrap_or_default();
        let backoff = backoff.after(&census.newly_succeeded, &census.newly_failed);
        let mut active = census.active.len();
        let mut ready = census.active.iter().filter(|pod| pod::is_ready(pod)).count();
        let mut terminating = census.terminating;
        let mut again = None;
        let mut end = ending::evaluate(census, &status, now);
        let (mut deleted, mut failure) = (Done::default(), None);
        if end.is_some() {
            deleted = self.hands.delete(key, census.job, &census.active, false).await;
            end = end.filter(|_| deleted.count == active);
        } else {
            let is_going = census.job.metadata.deletion_timestamp.is_some();
            match if is_going { Deeds::Nothing } else { deeds::needed(census, &backoff, now) } {
                Deeds::Nothing => {}
                Deeds::Wait(wait) => again = Some(wait),
                Deeds::Make(indexes) => {
                    let made = self.hands.make(key, census, &indexes).await;
                    active += made.count;
                    failure = made.failure;
                }
                Deeds::Delete(pods) => deleted = self.hands.delete(key, census.job, &pods, true).await,
            }
            end = ending::completion(census, active - deleted.count, now);
            if end.is_none() && !is_going {
                suspension(&mut status, census.terms.is_suspended, now);
            }
            let deadline = ending::deadline(census, &status).map(|time| time.duration_since(now));
            let deadline = deadline.and_then(|time| Duration::try_from(time).ok());
            again = [again, deadline].into_iter().flatten().min();
        }
        active -= deleted.count;
        ready -= deleted.ready;
        terminating += deleted.count;
        status.active = Some(active as i32).filter(|count| *count > 0);
        status.ready = Some(ready as i32);
        status.terminating = Some(terminating as i32);
        Outcome { status, end, backoff, again, failure: failure.or(deleted.failure) }
    }

    /// Writes the status, lets go who is counted, and writes it again if that changed it. Answers with what failed
    /// before.
    async fn tell(
        &mut self,
        key: &Key,
        census: &Census<'_>,
        outcome: Outcome,
        now: Timestamp,
    ) -> Result<Option<kube::Error>, kube::Error> {
        let Outcome { mut status, end, backoff, failure, .. } = outcome;
        let mut held: BTreeSet<&str> =
            census.pods.iter().filter(|pod| pod::is_tracked(pod)).map(|pod| pod::uid(pod)).collect();
        books::settle(&mut status, &held);
        let books = books::write(census, end.as_ref(), &mut status);
        let final_end = end.as_ref().map(|end| ending::settled(end, now));
        let is_last = |end: &JobCondition| final_end.as_ref().is_some_and(|last| last.type_ == end.type_);
        if let Some(end) = end.filter(|end| !is_last(end) && ending::standing(&status, &end.type_).is_none()) {
            status.conditions.get_or_insert_default().push(end);
        }
        let Some(job) = self.write(key, census.job, &status).await? else { return Ok(failure) };
        self.backoffs.insert(uid(&job), backoff);
        self.say_suspension(&job, census.job).await;
        let (freed, stuck) = self.hands.free(key, &books.free).await;
        held.retain(|uid| !freed.contains(*uid));
        books::settle(&mut status, &held);
        let is_over = !books.is_full && stuck.is_none() && books::is_settled(&status) && status.terminating == Some(0);
        let final_end = final_end.filter(|_| is_over);
        if let Some(end) = &final_end {
            if end.type_ == "Complete" {
                status.completion_time.clone_from(&end.last_transition_time);
            }
            status.conditions.get_or_insert_default().push(end.clone());
        }
        self.write(key, &job, &status).await?;
        if let Some(end) = final_end {
            self.say_end(&job, &status, &end).await;
        }
        Ok(stuck.or(failure))
    }

    /// Writes a status if it says anything new. Answers with the Job as it is then, or nothing if it is gone.
    async fn write(&mut self, key: &Key, job: &Job, status: &JobStatus) -> Result<Option<Job>, kube::Error> {
        if job.status.as_ref() == Some(status) {
            return Ok(Some(job.clone()));
        }
        let body = Job { status: Some(status.clone()), ..job.clone() };
        match self.jobs_of(key).replace_status(&key.1, &PostParams::default(), &body).await {
            Ok(job) => {
                self.written.insert(uid(&job), revision(&job));
                // What is read back may be put otherwise; it says the same.
                Ok(Some(Job { status: Some(status.clone()), ..job }))
            }
            // It is gone, and the watch is late to say so: pods made for it would be collected and made again for ever.
            Err(error) if is_not_found(&error) => {
                self.forget(job);
                drop(self.jobs.take(watcher::Event::Delete(job.clone())));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn say_suspension(&mut self, job: &Job, before: &Job) {
        let is = |job: &Job| job.status.as_ref().is_some_and(|status| ending::standing(status, "Suspended").is_some());
        match (is(before), is(job)) {
            (false, true) => self.hands.say(job, Tone::Normal, "Suspended", "Job suspended".to_owned()).await,
            (true, false) => self.hands.say(job, Tone::Normal, "Resumed", "Job resumed".to_owned()).await,
            _ => {}
        }
    }

    async fn say_end(&mut self, job: &Job, status: &JobStatus, end: &JobCondition) {
        if end.type_ != "Complete" {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            return self.hands.say(job, Tone::Warning, &text(&end.reason), text(&end.message)).await;
        }
        let wanted = job.spec.as_ref().and_then(|spec| spec.completions);
        if wanted.is_some_and(|wanted| status.succeeded.unwrap_or(0) > wanted) {
            let message = "Too many succeeded pods running after completion count reached";
            self.hands.say(job, Tone::Warning, "TooManySucceededPods", message.to_owned()).await;
        }
        self.hands.say(job, Tone::Normal, "Completed", "Job completed".to_owned()).await;
    }
}

fn uid(job: &Job) -> String {
    job.metadata.uid.clone().unwrap_or_default()
}

fn revision(job: &Job) -> u64 {
    job.metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Keeps the condition that tells a pause. A Job that goes on has its time from the beginning.
fn suspension(status: &mut JobStatus, is_suspended: bool, now: Timestamp) {
    let (value, reason, message) =
        if is_suspended { ("True", "JobSuspended", "Job suspended") } else { ("False", "JobResumed", "Job resumed") };
    let mut told = status.conditions.iter_mut().flatten().find(|one| one.type_ == "Suspended");
    if told.as_ref().map_or(!is_suspended, |told| told.status == value) {
        return;
    }
    let new = JobCondition { status: value.to_owned(), ..ending::condition("Suspended", reason, message, now) };
    match &mut told {
        Some(told) => **told = new,
        None => status.conditions.get_or_insert_default().push(new),
    }
    status.start_time = (!is_suspended).then(|| ending::stamp(now));
}
