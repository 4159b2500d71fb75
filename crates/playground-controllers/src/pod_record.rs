//! A pod as controllers need it: owner, node, claims and status, and nothing else.
//!
//! Several controllers cache all pods, so unused fields are not kept.

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::EphemeralVolumeSource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use muster_api::toleration::WrittenToleration;
use muster_api::wire::object::{Kind, Object};
use muster_clock as clock;
use serde::{Deserialize, Serialize};

/// A pod.
pub(crate) type PodRecord = Object<PodRecordKind>;

/// The kind `Pod`, read partially.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodRecordKind;

impl Kind for PodRecordKind {
    type Spec = PodRecordSpec;
    type Status = PodRecordStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

/// Node, tolerations and PersistentVolumeClaims of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodRecordSpec {
    node_name: Option<String>,
    pub(crate) tolerations: Option<Vec<WrittenToleration>>,
    pub(crate) volumes: Option<Vec<VolumeRecord>>,
}

/// A volume of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeRecord {
    pub(crate) name: String,
    pub(crate) persistent_volume_claim: Option<ClaimRecord>,
    pub(crate) ephemeral: Option<EphemeralVolumeSource>,
}

/// The PersistentVolumeClaim of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimRecord {
    pub(crate) claim_name: String,
}

/// Phase, conditions and restart counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodRecordStatus {
    phase: Option<String>,
    conditions: Option<Vec<ConditionRecord>>,
    container_statuses: Option<Vec<ContainerRecord>>,
    init_container_statuses: Option<Vec<ContainerRecord>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConditionRecord {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerRecord {
    restart_count: i64,
}

/// Drops the tolerations, which only the node lifecycle controller uses and every pod has.
pub(crate) fn without_tolerations(pod: &mut PodRecord) {
    pod.spec.tolerations = None;
}

/// The UID: it differs for another pod of the same name.
pub(crate) fn uid(pod: &PodRecord) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// The node it is bound to; empty if there is none.
pub(crate) fn node_name(pod: &PodRecord) -> &str {
    pod.spec.node_name.as_deref().unwrap_or_default()
}

/// `Pending`, `Running` and so on.
pub(crate) fn phase(pod: &PodRecord) -> &str {
    pod.status.phase.as_deref().filter(|phase| !phase.is_empty()).unwrap_or("Pending")
}

/// Whether it has ended and will not run again.
pub(crate) fn is_finished(pod: &PodRecord) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it is being deleted.
pub(crate) fn is_terminating(pod: &PodRecord) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether it runs or will run.
pub(crate) fn is_active(pod: &PodRecord) -> bool {
    !is_finished(pod) && !is_terminating(pod)
}

/// Since when it is ready, if it is.
pub(crate) fn ready_since(pod: &PodRecord) -> Option<Timestamp> {
    let mut conditions = pod.status.conditions.iter().flatten();
    let ready = conditions.find(|one| one.kind == "Ready" && one.status == "True")?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

/// Whether it runs and is ready.
pub(crate) fn is_running_and_ready(pod: &PodRecord) -> bool {
    phase(pod) == "Running" && ready_since(pod).is_some()
}

/// When it becomes available if it stays ready.
pub(crate) fn available_at(pod: &PodRecord, min_ready_seconds: i32) -> Option<Timestamp> {
    ready_since(pod).map(|since| clock::after(since, i64::from(min_ready_seconds)))
}

/// Whether it has been ready for long enough.
pub(crate) fn is_available(pod: &PodRecord, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_at(pod, min_ready_seconds).is_some_and(|time| time <= now)
}

/// The highest restart count of its containers.
pub(crate) fn restarts(pod: &PodRecord) -> i64 {
    pod.status.container_statuses.iter().flatten().map(|one| one.restart_count).max().unwrap_or_default()
}

/// The same including init containers.
pub(crate) fn restarts_with_init(pod: &PodRecord) -> i64 {
    let before = pod.status.init_container_statuses.iter().flatten().map(|one| one.restart_count).max();
    restarts(pod).max(before.unwrap_or_default())
}

/// The value of a label; empty if it is missing.
pub(crate) fn label<'a>(pod: &'a PodRecord, key: &str) -> &'a str {
    pod.labels().get(key).map(String::as_str).unwrap_or_default()
}
