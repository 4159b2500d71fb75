//! A pod as controllers see it: whose it is, where it is and how it does, and nothing else.
//!
//! Many pods are kept by several controllers at once, so what nobody asks for is not kept.

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use muster_api::toleration::WrittenToleration;
use muster_api::wire::object::{Kind, Object};
use muster_determinism::clock;
use serde::{Deserialize, Serialize};

/// A pod.
pub(crate) type PodCard = Object<PodCardKind>;

/// The kind `Pod`, read in part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCardKind;

impl Kind for PodCardKind {
    type Spec = CardSpec;
    type Status = CardStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

/// Where it is, what it puts up with there, and which claims it uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CardSpec {
    node_name: Option<String>,
    pub(crate) tolerations: Option<Vec<WrittenToleration>>,
    pub(crate) volumes: Option<Vec<CardVolume>>,
}

/// A volume of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CardVolume {
    pub(crate) name: String,
    pub(crate) persistent_volume_claim: Option<CardClaim>,
}

/// The claim behind a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CardClaim {
    pub(crate) claim_name: String,
}

/// How it does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CardStatus {
    phase: Option<String>,
    conditions: Option<Vec<CardCondition>>,
    container_statuses: Option<Vec<CardContainer>>,
    init_container_statuses: Option<Vec<CardContainer>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CardCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CardContainer {
    restart_count: i64,
}

/// Drops what only those look at who look after nodes: every pod has some.
pub(crate) fn without_tolerations(pod: &mut PodCard) {
    pod.spec.tolerations = None;
}

/// Its identity: another pod of the same name has another.
pub(crate) fn uid(pod: &PodCard) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// The node it is bound to; empty if there is none.
pub(crate) fn node_name(pod: &PodCard) -> &str {
    pod.spec.node_name.as_deref().unwrap_or_default()
}

/// `Pending`, `Running` and so on.
pub(crate) fn phase(pod: &PodCard) -> &str {
    pod.status.phase.as_deref().filter(|phase| !phase.is_empty()).unwrap_or("Pending")
}

/// Whether it has ended and will not run again.
pub(crate) fn is_finished(pod: &PodCard) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it is on its way out.
pub(crate) fn is_going(pod: &PodCard) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether it runs or will run.
pub(crate) fn is_active(pod: &PodCard) -> bool {
    !is_finished(pod) && !is_going(pod)
}

/// Since when it is ready, if it is.
pub(crate) fn ready_since(pod: &PodCard) -> Option<Timestamp> {
    let mut conditions = pod.status.conditions.iter().flatten();
    let ready = conditions.find(|one| one.kind == "Ready" && one.status == "True")?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

/// Whether it runs and is ready.
pub(crate) fn is_running_and_ready(pod: &PodCard) -> bool {
    phase(pod) == "Running" && ready_since(pod).is_some()
}

/// From when on it counts as available, if it stays ready.
pub(crate) fn available_at(pod: &PodCard, min_ready_seconds: i32) -> Option<Timestamp> {
    ready_since(pod).map(|since| clock::after(since, i64::from(min_ready_seconds)))
}

/// Whether it has been ready for long enough.
pub(crate) fn is_available(pod: &PodCard, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_at(pod, min_ready_seconds).is_some_and(|time| time <= now)
}

/// The most often that one of its containers was started again.
pub(crate) fn restarts(pod: &PodCard) -> i64 {
    pod.status.container_statuses.iter().flatten().map(|one| one.restart_count).max().unwrap_or_default()
}

/// The same with those that run before the others.
pub(crate) fn restarts_of_any(pod: &PodCard) -> i64 {
    let before = pod.status.init_container_statuses.iter().flatten().map(|one| one.restart_count).max();
    restarts(pod).max(before.unwrap_or_default())
}

/// A label; empty if it is not there.
pub(crate) fn label<'a>(pod: &'a PodCard, key: &str) -> &'a str {
    pod.labels().get(key).map(String::as_str).unwrap_or_default()
}
