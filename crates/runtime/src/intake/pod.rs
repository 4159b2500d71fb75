//! A pod in the engine's types.
//!
//! A pod that is invalid or uses an unsupported feature is observed with a refusal: it counts on its node, and is never
//! placed.

use std::sync::Arc;

use muster_api::invalid::InvalidField;
use muster_api::keys::annotations::START;
use muster_api::keys::conditions::DISRUPTION_TARGET;
use muster_api::keys::group_reasons::PREEMPTION_BY_SCHEDULER;
use muster_api::owners::leader_worker_set::labels;
use muster_api::preemption_cost;
use muster_api::wire::Pod;
use muster_api::wire::condition::Condition;
use muster_clock::millis;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::pod::{Lifetime, Phase, PodName, PodRefusal, PodSpec, RefusalKind};

use super::PREEMPTION_MESSAGE;
use super::class::class;
use super::pod_volumes::claims;
use super::rank::rank;
use super::unsupported::unsupported;
use crate::settings::Profile;
use crate::start_stamp;

/// Status reasons with which a kubelet rejects a pod before any container has run.
const KUBELET_REFUSALS: [&str; 9] = [
    "UnexpectedAdmissionError",
    "TopologyAffinityError",
    "NodeAffinity",
    "NodePorts",
    "NodeUnschedulable",
    "PodOSNotSupported",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "InvalidNodeInfo",
    "AppArmor",
];

/// The `DisruptionTarget` reason of a pod that is deleted by the eviction API.
const EVICTION_BY_API: &str = "EvictionByEvictionAPI";

/// The annotation of a static pod's mirror in the API.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The namespace, name and UID of the pod.
pub(crate) fn pod_name(pod: &Pod) -> PodName {
    PodName {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
    }
}

/// The phase of the pod, for the engine.
pub(crate) fn phase(pod: &Pod) -> Phase {
    match pod.status.phase.as_str() {
        "Running" => Phase::Running,
        "Succeeded" => Phase::Succeeded,
        "Failed" if rejected_by_kubelet(pod) => Phase::Rejected,
        "Failed" => Phase::Failed,
        _ => Phase::Pending,
    }
}

fn rejected_by_kubelet(pod: &Pod) -> bool {
    let reason = pod.status.reason.as_str();
    reason.starts_with("OutOf") || KUBELET_REFUSALS.contains(&reason)
}

/// The pod as the engine observes it, and an error if it is invalid: on a node, a pod counts with no resources if its
/// requests cannot be computed. The caller adds its group and `marked`.
pub(crate) fn pod(pod: &Pod, id: Arc<PodName>, profile: Option<(u16, &Profile)>) -> (PodSpec, Option<InvalidField>) {
    let ours = profile.is_some();
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let (class, flaw) = match class(pod, profile) {
        Ok(class) => (class, None),
        Err(error) => (ClassSpec::default(), Some(error)),
    };
    let (preemption_cost, cost_error) = match preemption_cost::declared(pod.metadata.annotations.as_ref()) {
        Ok(cost) => (cost.unwrap_or(0), None),
        Err(error) => (0, Some(error)),
    };
    let (rank, rank_error) = match rank(pod) {
        Ok(rank) => (rank, None),
        Err(error) => (None, Some(error)),
    };
    let flaw = flaw.or(cost_error).or(rank_error);
    let invalid = flaw.clone().map(|error| refusal(RefusalKind::Invalid, error));
    let refused = invalid.or_else(|| unsupported(pod).map(|error| refusal(RefusalKind::Unsupported, error)));
    let annotations = pod.metadata.annotations.as_ref();
    let owners = pod.metadata.owner_references.iter().flatten();
    // Before the bind there is none that counts.
    let bound = annotations.filter(|_| !pod.spec.node_name.is_empty());
    let stamp = bound.and_then(|annotations| start_stamp::read(annotations.get(START)?, &id.uid));
    let spec = PodSpec {
        id,
        class: Arc::new(class),
        priority: pod.spec.priority.unwrap_or(0),
        membership: None,
        ours,
        gated: !pod.spec.scheduling_gates.is_empty(),
        created_ms: pod.metadata.creation_timestamp.as_ref().map_or(0, |time| millis(time.0)),
        node: some(&pod.spec.node_name),
        nominated: some(&pod.status.nominated_node_name),
        phase: phase(pod),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        controlled: owners.clone().any(|owner| owner.controller == Some(true)),
        refused: refused.filter(|_| ours),
        labels: Arc::new(pod.metadata.labels.clone().unwrap_or_default()),
        started_ms: pod.status.start_time.as_ref().map(|time| millis(time.0)),
        preemption_cost,
        is_static: annotations.is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION)),
        never_preempts: pod.spec.preemption_policy.as_deref() == Some("Never"),
        // `deletionTimestamp` is when the pod has to be gone, not when the deletion was requested.
        grace_period_ends_ms: pod.metadata.deletion_timestamp.as_ref().map(|time| millis(time.0)),
        marked: false,
        start: stamp.map(Arc::new),
        stateful_set: stateful_set(pod),
        rank,
        lifetime: lifetime(pod),
        claims: Arc::new(claims(pod)),
    };
    (spec, flaw)
}

/// The StatefulSet of the pod. Those of LeaderWorkerSets create their pods in parallel.
fn stateful_set(pod: &Pod) -> Option<Arc<str>> {
    let is_replica = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(labels::NAME));
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == "StatefulSet");
    owner.filter(|_| !is_replica).map(|owner| owner.name.as_str().into())
}

fn lifetime(pod: &Pod) -> Lifetime {
    match (pod.spec.active_deadline_seconds, pod.spec.restart_policy.as_deref()) {
        (Some(seconds), _) => Lifetime::Deadline(u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000)),
        (None, Some("Never" | "OnFailure")) => Lifetime::ToCompletion,
        (None, _) => Lifetime::Unlimited,
    }
}

/// Whether the pod's status shows that a Muster with one of our scheduler names preempts it.
pub(super) fn is_disruption_target(pod: &Pod, is_our_name: impl Fn(&str) -> bool) -> bool {
    let target = Condition::find(&pod.status.conditions, DISRUPTION_TARGET).filter(|one| one.is_true());
    target.is_some_and(|one| match one.reason.as_str() {
        // The eviction API overwrites our condition when it deletes a pod.
        EVICTION_BY_API => pod.metadata.deletion_timestamp.is_some(),
        PREEMPTION_BY_SCHEDULER => {
            one.message.split_once(PREEMPTION_MESSAGE).is_some_and(|(name, _)| is_our_name(name))
        }
        _ => false,
    })
}

/// A refusal in the engine's form.
pub(crate) fn refusal(kind: RefusalKind, error: InvalidField) -> Arc<PodRefusal> {
    // The value is JSON; a string is shown without its quotes, as the message adds its own.
    let value = serde_json::from_str::<String>(&error.value).unwrap_or(error.value);
    Arc::new(PodRefusal { kind, field: error.field, value, reason: error.reason })
}
