//! What is done to the pods of a Job through the API: made, deleted, and let go.
//!
//! Every deed is noted in the ledger before anybody looks at the Job again. A request whose answer was lost leaves a
//! doubt, which only a look at the server ends. It must not know why anything is done.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource, ResourceExt};
use muster_determinism::clock::Clock;
use muster_playground_client::mirror::Key;
use muster_playground_client::refusal::{is_conflict, is_not_found};
use serde_json::{Value, json};

use super::census::Census;
use super::ledger::{Deed, Ledger};
use super::make;
use super::pod::{self, JobPod, TRACKING};
use super::roster::Roster;
use crate::owners::{is_doubtful, told};
use crate::recorder::{Recorder, Tone};

/// The most requests under way at once.
const REQUESTS_MAX: usize = 16;

/// How many of several deeds were done, and why not all.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) count: usize,
    /// How many of them were ready before.
    pub(super) ready: usize,
    pub(super) failure: Option<kube::Error>,
}

/// What is done to pods.
pub(super) struct Hands {
    client: Client,
    pub(super) ledger: Ledger,
    pub(super) recorder: Recorder,
    /// Jobs for which a pod may have been made that nobody knows of.
    doubts: BTreeSet<Key>,
}

impl Hands {
    pub(super) fn new(client: Client, clock: Clock) -> Self {
        let recorder = Recorder::new(client.clone(), clock, "job-controller");
        Self { client, ledger: Ledger::default(), recorder, doubts: BTreeSet::new() }
    }

    fn pods(&self, job: &Key) -> Api<JobPod> {
        Api::namespaced(self.client.clone(), &job.0)
    }

    /// Says something about a Job.
    pub(super) async fn say(&mut self, job: &Job, tone: Tone, reason: &str, message: String) {
        self.recorder.say(job.object_ref(&()), tone, reason, message).await;
    }

    /// Makes pods, one at first and twice as many each time, so that a template that is refused costs little.
    pub(super) async fn make(&mut self, key: &Key, census: &Census<'_>, indexes: &[Option<u32>]) -> Done {
        let pods: Api<v1::Pod> = Api::namespaced(self.client.clone(), &key.0);
        let parameters = PostParams::default();
        let mut done = Done::default();
        let (mut left, mut batch) = (indexes, 1);
        while !left.is_empty() && done.failure.is_none() {
            let (now, later) = left.split_at(batch.min(left.len()));
            (left, batch) = (later, batch * 2);
            let bodies: Vec<v1::Pod> = now.iter().map(|index| make::pod(census, *index)).collect();
            let calls: Vec<_> = bodies.iter().map(|body| pods.create(&parameters, body)).collect();
            let answers: Vec<_> = stream::iter(calls).buffer_unordered(REQUESTS_MAX).collect().await;
            for answer in answers {
                match answer {
                    Ok(pod) => {
                        done.count += 1;
                        self.ledger.note(key, &pod.uid().unwrap_or_default(), Deed::Made);
                        let message = format!("Created pod: {}", pod.name_any());
                        self.say(census.job, Tone::Normal, "SuccessfulCreate", message).await;
                    }
                    Err(error) if is_namespace_going(&error) => return done,
                    Err(error) => {
                        if is_doubtful(&error) {
                            self.doubts.insert(key.clone());
                        }
                        let message = format!("Error creating: {}", told(&error));
                        self.say(census.job, Tone::Warning, "FailedCreate", message).await;
                        done.failure = Some(error);
                    }
                }
            }
        }
        done
    }

    /// Ends a doubt: whatever the server has and the watch has not shown was made by us.
    pub(super) async fn look(&mut self, key: &Key, job: &Job, roster: &Roster) -> Result<(), kube::Error> {
        if !self.doubts.contains(key) {
            return Ok(());
        }
        let template = job.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
        let label = "batch.kubernetes.io/controller-uid";
        let labels = template.and_then(|metadata| metadata.labels.as_ref());
        let selector = labels.and_then(|labels| labels.get(label)).map(|uid| format!("{label}={uid}"));
        let parameters = ListParams { label_selector: selector, ..ListParams::default() };
        let there = self.pods(key).list(&parameters).await?.items;
        let known: BTreeSet<String> = roster.of(key).iter().map(|pod| pod::uid(pod).to_owned()).collect();
        let is_ours = |pod: &&JobPod| pod::owner(pod).map(|owner| &owner.uid) == job.metadata.uid.as_ref();
        for pod in there.iter().filter(is_ours).filter(|pod| !known.contains(pod::uid(pod))) {
            self.ledger.note(key, pod::uid(pod), Deed::Made);
        }
        self.doubts.remove(key);
        Ok(())
    }

    /// Deletes pods that are as they were seen. Those that are let go first are not counted as failed.
    pub(super) async fn delete(&mut self, key: &Key, job: &Job, pods: &[&JobPod], lets_go: bool) -> Done {
        let mut done = Done::default();
        for chunk in pods.chunks(REQUESTS_MAX) {
            let calls: Vec<_> = chunk.iter().map(|pod| remove(self.pods(key), pod, lets_go)).collect();
            let answers = futures::future::join_all(calls).await;
            for (pod, answer) in chunk.iter().zip(answers) {
                let name = pod::name(pod);
                match answer {
                    Ok(is_new) => {
                        done.count += 1;
                        done.ready += usize::from(pod::is_ready(pod));
                        self.ledger.note(key, pod::uid(pod), Deed::Deleted);
                        if is_new {
                            self.say(job, Tone::Normal, "SuccessfulDelete", format!("Deleted pod: {name}")).await;
                        }
                    }
                    // The watch will tell what it is by now.
                    Err(error) if is_conflict(&error) => done.failure = Some(error),
                    Err(error) => {
                        let message = format!("Error deleting: {}", told(&error));
                        self.say(job, Tone::Warning, "FailedDelete", message).await;
                        done.failure = Some(error);
                    }
                }
            }
        }
        done
    }

    /// Lets pods go. Answers with the UIDs of those that are not held any more.
    pub(super) async fn free(&mut self, key: &Key, pods: &[&JobPod]) -> (BTreeSet<String>, Option<kube::Error>) {
        let mut freed = BTreeSet::new();
        let mut failure = None;
        for chunk in pods.chunks(REQUESTS_MAX) {
            let calls: Vec<_> = chunk.iter().map(|pod| let_go(self.pods(key), pod)).collect();
            let answers = futures::future::join_all(calls).await;
            for (pod, answer) in chunk.iter().zip(answers) {
                match answer {
                    Ok(()) => {
                        self.ledger.note(key, pod::uid(pod), Deed::Freed);
                        freed.insert(pod::uid(pod).to_owned());
                    }
                    Err(error) => failure = Some(error),
                }
            }
        }
        (freed, failure)
    }

    /// The Job is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.ledger.forget(key);
        self.doubts.remove(key);
    }
}

/// Whether the namespace takes no new objects, and so never will.
fn is_namespace_going(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Takes the finalizer away. A pod that is gone, or is another by now, is not held.
async fn let_go(pods: Api<JobPod>, pod: &JobPod) -> Result<(), kube::Error> {
    match untrack(&pods, pod, &json!({"uid": pod::uid(pod)})).await {
        Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
        answer => answer,
    }
}

async fn untrack(pods: &Api<JobPod>, pod: &JobPod, metadata: &Value) -> Result<(), kube::Error> {
    if !pod::is_tracked(pod) {
        return Ok(());
    }
    let mut metadata = metadata.clone();
    metadata["$deleteFromPrimitiveList/finalizers"] = json!([TRACKING]);
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    pods.patch_metadata(pod::name(pod), &PatchParams::default(), &patch).await.map(drop)
}

/// Deletes a pod, if it is still as it was seen: one that has ended meanwhile is to be counted. Answers whether it was
/// there.
async fn remove(pods: Api<JobPod>, pod: &JobPod, lets_go: bool) -> Result<bool, kube::Error> {
    let mut only = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let seen = &pod.metadata.resource_version;
    if lets_go {
        let metadata = json!({"uid": pod::uid(pod), "resourceVersion": seen});
        match untrack(&pods, pod, &metadata).await {
            Err(error) if is_not_found(&error) => return Ok(false),
            answer => answer?,
        }
    } else {
        only.resource_version.clone_from(seen);
    }
    let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
    match pods.delete(pod::name(pod), &parameters).await {
        Err(error) if is_not_found(&error) => Ok(false),
        answer => answer.map(|_| true),
    }
}
