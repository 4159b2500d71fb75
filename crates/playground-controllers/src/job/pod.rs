//! A pod as its Job sees it: how it is, how it ended and which index it has.
//!
//! Only these fields of pods are kept. It must not know the Job's settings, except where a function is given them.

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use muster_api::wire::condition::Condition;
use muster_api::wire::object::{Kind, Object};
use muster_determinism::clock;
use muster_playground_client::mirror::Key;
use serde::{Deserialize, Serialize};

/// Holds a pod until its Job has counted it.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The key of the index, as a label and as an annotation.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How many pods of the index failed before this one.
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// How many of them did not count.
pub(super) const INDEX_FAILURES_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// A pod.
pub(super) type JobPod = Object<JobPodKind>;

/// The kind `Pod`, read as far as Jobs look at it.
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
    pub(super) terminated: Option<Ending>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ending {
    pub(super) exit_code: i32,
    pub(super) finished_at: Option<Time>,
}

impl ContainerState {
    pub(super) fn ending(&self) -> Option<&Ending> {
        self.state.as_ref()?.terminated.as_ref()
    }
}

/// Its identity: another pod of the same name has another.
pub(super) fn uid(pod: &JobPod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub(super) fn name(pod: &JobPod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The Job that the pod says it belongs to.
pub(super) fn owner(pod: &JobPod) -> Option<&OwnerReference> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == "Job" && owner.api_version == "batch/v1")
}

/// The key of that Job. A pod that is held for a Job and names no controller has the key of nobody: no name.
pub(super) fn job_key(pod: &JobPod) -> Option<Key> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    if let Some(owner) = owner(pod) {
        return Some((namespace, owner.name.clone()));
    }
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let is_free = !owners.any(|owner| owner.controller == Some(true));
    (is_free && is_tracked(pod)).then(|| (namespace, String::new()))
}

/// Whether it is held until it is counted.
pub(super) fn is_tracked(pod: &JobPod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|one| one == TRACKING)
}

pub(super) fn phase(pod: &JobPod) -> &str {
    pod.status.phase.as_deref().unwrap_or("Pending")
}

pub(super) fn has_succeeded(pod: &JobPod) -> bool {
    phase(pod) == "Succeeded"
}

fn is_over(pod: &JobPod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it runs or will run.
pub(super) fn is_active(pod: &JobPod) -> bool {
    !is_over(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether it is being ended and has not ended.
pub(super) fn is_terminating(pod: &JobPod) -> bool {
    !is_over(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// Whether it counts as failed: one that is deleted does so at once, unless replacements wait for its end.
pub(super) fn has_failed(pod: &JobPod, ends_first: bool) -> bool {
    phase(pod) == "Failed" || (!ends_first && is_terminating(pod))
}

pub(super) fn is_ready(pod: &JobPod) -> bool {
    pod.status.conditions.iter().flatten().any(|one| one.kind == "Ready" && one.is_true())
}

/// Its index, if it has one that can be read.
pub(super) fn index(pod: &JobPod) -> Option<u32> {
    // The real controller counts in signed numbers.
    annotation(pod, INDEX)?.parse::<i32>().ok()?.try_into().ok()
}

fn annotation<'a>(pod: &'a JobPod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn counter(pod: &JobPod, key: &str) -> i32 {
    annotation(pod, key).and_then(|text| text.parse::<i32>().ok()).filter(|count| *count >= 0).unwrap_or(0)
}

/// How many pods of its index failed before it: those that count, and those that do not.
pub(super) fn earlier_failures(pod: &JobPod) -> (i32, i32) {
    (counter(pod, INDEX_FAILURES), counter(pod, INDEX_FAILURES_IGNORED))
}

/// How often its containers were started again.
pub(super) fn restarts(pod: &JobPod) -> i32 {
    let lists = [&pod.status.container_statuses, &pod.status.init_container_statuses];
    lists.into_iter().flatten().flatten().map(|status| status.restart_count).sum()
}

/// When it ended, by the best witness there is.
pub(super) fn ended_at(pod: &JobPod) -> Timestamp {
    let created = || pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    containers_ended_at(pod).or_else(|| unready_since(pod)).or_else(|| deleted_at(pod)).unwrap_or_else(created)
}

/// When the last container ended; nothing while one runs. Sidecars end after the others.
fn containers_ended_at(pod: &JobPod) -> Option<Timestamp> {
    let init = pod.spec.init_containers.iter().flatten();
    let sidecars: Vec<&str> =
        init.filter(|one| one.restart_policy.as_deref() == Some("Always")).map(|one| one.name.as_str()).collect();
    let main = pod.status.container_statuses.iter().flatten();
    let side = pod.status.init_container_statuses.iter().flatten();
    let side = side.filter(|status| sidecars.contains(&status.name.as_str()));
    let mut last = None;
    for status in main.chain(side) {
        let time = status.ending()?.finished_at.as_ref()?.0;
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

/// What comes first goes first: without a node, not running, not ready, ready for a short time, young.
pub(super) fn worth(pod: &JobPod) -> (bool, u8, bool, std::cmp::Reverse<Timestamp>, i32, std::cmp::Reverse<Timestamp>) {
    let stage = match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let ready = pod.status.conditions.iter().flatten().find(|one| one.kind == "Ready" && one.is_true());
    let since = ready.and_then(|one| one.last_transition_time.as_ref()).map_or(Timestamp::MAX, |time| time.0);
    let created = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0);
    let has_node = pod.spec.node_name.as_deref().is_some_and(|node| !node.is_empty());
    (has_node, stage, ready.is_some(), std::cmp::Reverse(since), -restarts(pod), std::cmp::Reverse(created))
}
