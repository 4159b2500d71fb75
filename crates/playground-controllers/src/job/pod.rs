//! A pod as the Job controller needs it: phase, termination and index.
//!
//! Only these fields are kept. Must not depend on the Job's settings, except as parameters.

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use muster_api::wire::condition::Condition;
use muster_api::wire::object::{Kind, Object};
use muster_clock as clock;
use muster_reflector::Key;
use serde::{Deserialize, Serialize};

/// The finalizer that keeps a pod until its Job has counted it.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The key of the index, as a label and as an annotation.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How many pods of the index failed before this one.
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// How many of them were ignored by the pod failure policy.
pub(super) const INDEX_FAILURES_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// A pod.
pub(super) type JobPod = Object<JobPodKind>;

/// The kind `Pod`, as far as the Job controller needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobPodKind;

impl Kind for JobPodKind {
    type Spec = JobPodSpec;
    type Status = JobPodStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobPodSpec {
    pub(super) node_name: Option<String>,
    pub(super) init_containers: Option<Vec<InitContainer>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct InitContainer {
    name: String,
    restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobPodStatus {
    pub(super) phase: Option<String>,
    pub(super) conditions: Option<Vec<Condition>>,
    pub(super) container_statuses: Option<Vec<ContainerState>>,
    pub(super) init_container_statuses: Option<Vec<ContainerState>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerState {
    pub(super) name: String,
    pub(super) restart_count: i32,
    pub(super) state: Option<State>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) terminated: Option<Termination>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Termination {
    pub(super) exit_code: i32,
    pub(super) finished_at: Option<Time>,
}

impl ContainerState {
    pub(super) fn termination(&self) -> Option<&Termination> {
        self.state.as_ref()?.terminated.as_ref()
    }
}

/// The UID: it differs for another pod of the same name.
pub(super) fn uid(pod: &JobPod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub(super) fn name(pod: &JobPod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The Job that the controller reference names.
pub(super) fn owner(pod: &JobPod) -> Option<&OwnerReference> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == "Job" && owner.api_version == "batch/v1")
}

/// The key of that Job. A pod with the finalizer and without a controller has a key with an empty name.
pub(super) fn job_key(pod: &JobPod) -> Option<Key> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    if let Some(owner) = owner(pod) {
        return Some((namespace, owner.name.clone()));
    }
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let is_orphan = !owners.any(|owner| owner.controller == Some(true));
    (is_orphan && is_tracked(pod)).then(|| (namespace, String::new()))
}

/// Whether it has the finalizer.
pub(super) fn is_tracked(pod: &JobPod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|one| one == TRACKING)
}

pub(super) fn phase(pod: &JobPod) -> &str {
    pod.status.phase.as_deref().unwrap_or("Pending")
}

pub(super) fn has_succeeded(pod: &JobPod) -> bool {
    phase(pod) == "Succeeded"
}

fn is_terminated(pod: &JobPod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it runs or will run.
pub(super) fn is_active(pod: &JobPod) -> bool {
    !is_terminated(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether it is being deleted and has not terminated.
pub(super) fn is_terminating(pod: &JobPod) -> bool {
    !is_terminated(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// Whether it counts as failed: a deleted pod does so at once, unless the replacement policy waits for its termination.
pub(super) fn has_failed(pod: &JobPod, replace_when_failed: bool) -> bool {
    phase(pod) == "Failed" || (!replace_when_failed && is_terminating(pod))
}

pub(super) fn is_ready(pod: &JobPod) -> bool {
    pod.status.conditions.iter().flatten().any(|one| one.kind == "Ready" && one.is_true())
}

/// Its index, if the annotation is valid.
pub(super) fn index(pod: &JobPod) -> Option<u32> {
    // The real controller uses signed integers.
    annotation(pod, INDEX)?.parse::<i32>().ok()?.try_into().ok()
}

fn annotation<'a>(pod: &'a JobPod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn counter(pod: &JobPod, key: &str) -> i32 {
    annotation(pod, key).and_then(|text| text.parse::<i32>().ok()).filter(|count| *count >= 0).unwrap_or(0)
}

/// How many pods of its index failed before it: counted and ignored failures.
pub(super) fn earlier_failures(pod: &JobPod) -> (i32, i32) {
    (counter(pod, INDEX_FAILURES), counter(pod, INDEX_FAILURES_IGNORED))
}

/// The sum of its containers' restart counts.
pub(super) fn restarts(pod: &JobPod) -> i32 {
    let lists = [&pod.status.container_statuses, &pod.status.init_container_statuses];
    lists.into_iter().flatten().flatten().map(|status| status.restart_count).sum()
}

/// When it terminated, by the best evidence available.
pub(super) fn ended_at(pod: &JobPod) -> Timestamp {
    let created = || pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    containers_ended_at(pod).or_else(|| unready_since(pod)).or_else(|| deleted_at(pod)).unwrap_or_else(created)
}

/// When the last container terminated; nothing while one runs. Sidecars terminate after the others.
fn containers_ended_at(pod: &JobPod) -> Option<Timestamp> {
    let init = pod.spec.init_containers.iter().flatten();
    let sidecars: Vec<&str> =
        init.filter(|one| one.restart_policy.as_deref() == Some("Always")).map(|one| one.name.as_str()).collect();
    let main = pod.status.container_statuses.iter().flatten();
    let side = pod.status.init_container_statuses.iter().flatten();
    let side = side.filter(|status| sidecars.contains(&status.name.as_str()));
    let mut last = None;
    for status in main.chain(side) {
        let time = status.termination()?.finished_at.as_ref()?.0;
        last = last.max(Some(time));
    }
    last
}

fn unready_since(pod: &JobPod) -> Option<Timestamp> {
    let ready = pod.status.conditions.iter().flatten().find(|one| one.kind == "Ready")?;
    let is_false = ready.status == "False";
    ready.last_transition_time.as_ref().filter(|_| is_false).map(|time| time.0)
}

fn deleted_at(pod: &JobPod) -> Option<Timestamp> {
    let grace_seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    pod.metadata.deletion_timestamp.as_ref().map(|time| clock::after(time.0, -grace_seconds))
}

/// The order of deletion: unassigned, not running, not ready, ready for a short time, restarted often, young.
pub(super) fn deletion_rank(
    pod: &JobPod,
) -> (bool, u8, bool, std::cmp::Reverse<Timestamp>, i32, std::cmp::Reverse<Timestamp>) {
    let phase_rank = match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let ready = pod.status.conditions.iter().flatten().find(|one| one.kind == "Ready" && one.is_true());
    let since = ready.and_then(|one| one.last_transition_time.as_ref()).map_or(Timestamp::MAX, |time| time.0);
    let created = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0);
    let has_node = pod.spec.node_name.as_deref().is_some_and(|node| !node.is_empty());
    (has_node, phase_rank, ready.is_some(), std::cmp::Reverse(since), -restarts(pod), std::cmp::Reverse(created))
}
