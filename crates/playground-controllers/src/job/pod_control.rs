//! Creates and deletes the pods of Jobs, and removes their finalizers.
//!
//! Every write sets an expectation before the Job is synced again. A create request whose response was lost is resolved
//! by reading from the server. Must not depend on why anything is done.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource, ResourceExt};
use muster_clock::Clock;
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_reflector::Key;
use serde_json::{Value, json};

use super::job_state::JobState;
use super::new_pod;
use super::pod::{self, JobPod, TRACKING};
use super::pod_cache::PodCache;
use super::pod_expectations::{ExpectedWrite, PodExpectations};
use crate::owners::{error_message, is_outcome_unknown};
use crate::recorder::{EventRecorder, EventType};

/// The maximum number of requests in flight.
const REQUESTS_MAX: usize = 16;

/// How many requests of a batch succeeded, and the failure if not all did.
#[derive(Debug, Default)]
pub(super) struct BatchResult {
    pub(super) count: usize,
    /// How many of them were ready before.
    pub(super) ready: usize,
    pub(super) failure: Option<kube::Error>,
}

/// The pod control of the Job controller.
pub(super) struct PodControl {
    client: Client,
    pub(super) expectations: PodExpectations,
    pub(super) recorder: EventRecorder,
    /// Jobs for which an unknown pod may have been created.
    unknown_creates: BTreeSet<Key>,
}

impl PodControl {
    pub(super) fn new(client: Client, clock: Clock) -> Self {
        let recorder = EventRecorder::new(client.clone(), clock, "job-controller");
        Self { client, expectations: PodExpectations::default(), recorder, unknown_creates: BTreeSet::new() }
    }

    fn pods(&self, job: &Key) -> Api<JobPod> {
        Api::namespaced(self.client.clone(), &job.0)
    }

    /// Records an event about a Job.
    pub(super) async fn record_event(&mut self, job: &Job, event_type: EventType, reason: &str, message: String) {
        self.recorder.record(job.object_ref(&()), event_type, reason, message).await;
    }

    /// Creates pods in batches that start with one and double, so that a rejected template costs few requests.
    pub(super) async fn create(&mut self, key: &Key, state: &JobState<'_>, indexes: &[Option<u32>]) -> BatchResult {
        let pods: Api<v1::Pod> = Api::namespaced(self.client.clone(), &key.0);
        let parameters = PostParams::default();
        let mut result = BatchResult::default();
        let (mut left, mut batch) = (indexes, 1);
        while !left.is_empty() && result.failure.is_none() {
            let (now, later) = left.split_at(batch.min(left.len()));
            (left, batch) = (later, batch * 2);
            let bodies: Vec<v1::Pod> = now.iter().map(|index| new_pod::build(state, *index)).collect();
            let calls: Vec<_> = bodies.iter().map(|body| pods.create(&parameters, body)).collect();
            let answers: Vec<_> = stream::iter(calls).buffer_unordered(REQUESTS_MAX).collect().await;
            for answer in answers {
                match answer {
                    Ok(pod) => {
                        result.count += 1;
                        self.expectations.expect(key, &pod.uid().unwrap_or_default(), ExpectedWrite::Created);
                        let message = format!("Created pod: {}", pod.name_any());
                        self.record_event(state.job, EventType::Normal, "SuccessfulCreate", message).await;
                    }
                    Err(error) if is_namespace_terminating(&error) => return result,
                    Err(error) => {
                        if is_outcome_unknown(&error) {
                            self.unknown_creates.insert(key.clone());
                        }
                        let message = format!("Error creating: {}", error_message(&error));
                        self.record_event(state.job, EventType::Warning, "FailedCreate", message).await;
                        result.failure = Some(error);
                    }
                }
            }
        }
        result
    }

    /// Resolves an unknown state: a pod that the server has and the watch has not shown was created by this controller.
    pub(super) async fn resolve_unknown(
        &mut self,
        key: &Key,
        job: &Job,
        pod_cache: &PodCache,
    ) -> Result<(), kube::Error> {
        if !self.unknown_creates.contains(key) {
            return Ok(());
        }
        let template = job.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
        let label = "batch.kubernetes.io/controller-uid";
        let labels = template.and_then(|metadata| metadata.labels.as_ref());
        let selector = labels.and_then(|labels| labels.get(label)).map(|uid| format!("{label}={uid}"));
        let parameters = ListParams { label_selector: selector, ..ListParams::default() };
        let live = self.pods(key).list(&parameters).await?.items;
        let known: BTreeSet<String> = pod_cache.of(key).iter().map(|pod| pod::uid(pod).to_owned()).collect();
        let is_ours = |pod: &&JobPod| pod::owner(pod).map(|owner| &owner.uid) == job.metadata.uid.as_ref();
        for pod in live.iter().filter(is_ours).filter(|pod| !known.contains(pod::uid(pod))) {
            self.expectations.expect(key, pod::uid(pod), ExpectedWrite::Created);
        }
        self.unknown_creates.remove(key);
        Ok(())
    }

    /// Deletes pods that are unchanged since they were observed. Pods whose finalizer is removed first are not counted
    /// as failed.
    pub(super) async fn delete(
        &mut self,
        key: &Key,
        job: &Job,
        pods: &[&JobPod],
        finalizer_first: bool,
    ) -> BatchResult {
        let mut result = BatchResult::default();
        for chunk in pods.chunks(REQUESTS_MAX) {
            let calls: Vec<_> = chunk.iter().map(|pod| delete_pod(self.pods(key), pod, finalizer_first)).collect();
            let answers = futures::future::join_all(calls).await;
            for (pod, answer) in chunk.iter().zip(answers) {
                let name = pod::name(pod);
                match answer {
                    Ok(is_new) => {
                        result.count += 1;
                        result.ready += usize::from(pod::is_ready(pod));
                        self.expectations.expect(key, pod::uid(pod), ExpectedWrite::Deleted);
                        if is_new {
                            self.record_event(
                                job,
                                EventType::Normal,
                                "SuccessfulDelete",
                                format!("Deleted pod: {name}"),
                            )
                            .await;
                        }
                    }
                    // The watch will show the current state.
                    Err(error) if is_conflict(&error) => result.failure = Some(error),
                    Err(error) => {
                        let message = format!("Error deleting: {}", error_message(&error));
                        self.record_event(job, EventType::Warning, "FailedDelete", message).await;
                        result.failure = Some(error);
                    }
                }
            }
        }
        result
    }

    /// Removes the finalizers of pods. Returns the UIDs of those that no longer have it.
    pub(super) async fn remove_finalizers(
        &mut self,
        key: &Key,
        pods: &[&JobPod],
    ) -> (BTreeSet<String>, Option<kube::Error>) {
        let mut removed = BTreeSet::new();
        let mut failure = None;
        for chunk in pods.chunks(REQUESTS_MAX) {
            let calls: Vec<_> = chunk.iter().map(|pod| remove_finalizer(self.pods(key), pod)).collect();
            let answers = futures::future::join_all(calls).await;
            for (pod, answer) in chunk.iter().zip(answers) {
                match answer {
                    Ok(()) => {
                        self.expectations.expect(key, pod::uid(pod), ExpectedWrite::FinalizerRemoved);
                        removed.insert(pod::uid(pod).to_owned());
                    }
                    Err(error) => failure = Some(error),
                }
            }
        }
        (removed, failure)
    }

    /// The Job is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.expectations.forget(key);
        self.unknown_creates.remove(key);
    }
}

/// Whether the namespace is terminating and will never accept new objects.
fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Removes the finalizer. A pod that is gone or was replaced no longer has it.
async fn remove_finalizer(pods: Api<JobPod>, pod: &JobPod) -> Result<(), kube::Error> {
    match patch_finalizer_away(&pods, pod, &json!({"uid": pod::uid(pod)})).await {
        Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
        answer => answer,
    }
}

async fn patch_finalizer_away(pods: &Api<JobPod>, pod: &JobPod, metadata: &Value) -> Result<(), kube::Error> {
    if !pod::is_tracked(pod) {
        return Ok(());
    }
    let mut metadata = metadata.clone();
    metadata["$deleteFromPrimitiveList/finalizers"] = json!([TRACKING]);
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    pods.patch_metadata(pod::name(pod), &PatchParams::default(), &patch).await.map(drop)
}

/// Deletes a pod if it is unchanged since it was observed: one that has terminated meanwhile must be counted. Returns
/// whether it existed.
async fn delete_pod(pods: Api<JobPod>, pod: &JobPod, finalizer_first: bool) -> Result<bool, kube::Error> {
    let mut only = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let observed_version = &pod.metadata.resource_version;
    if finalizer_first {
        let metadata = json!({"uid": pod::uid(pod), "resourceVersion": observed_version});
        match patch_finalizer_away(&pods, pod, &metadata).await {
            Err(error) if is_not_found(&error) => return Ok(false),
            answer => answer?,
        }
    } else {
        only.resource_version.clone_from(observed_version);
    }
    let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
    match pods.delete(pod::name(pod), &parameters).await {
        Err(error) if is_not_found(&error) => Ok(false),
        answer => answer.map(|_| true),
    }
}
