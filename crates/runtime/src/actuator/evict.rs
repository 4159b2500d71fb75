//! Evicts a victim unit: sets `DisruptionTarget` on every pod, then deletes all of them.
//!
//! The conditions are what a later process reads if this one dies in between: the eviction of a unit that has begun is
//! completed. With the eviction API, a dry run for every pod comes first, so that a rejection is known before the first
//! condition is set.

use std::sync::Arc;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::Eviction as Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use muster_api::keys::conditions::DISRUPTION_TARGET;
use muster_api::keys::group_reasons::PREEMPTION_BY_SCHEDULER;
use muster_api::wire::Pod;
use muster_engine::DeleteOutcome;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::PodName;
use serde_json::json;

use super::RequestContext;
use super::bind::FENCED;
use super::outcome::Failure;
use crate::config::Eviction;

/// How many requests for one unit may be in flight at once.
const CONCURRENCY: usize = 16;

/// Pods that are evicted together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VictimUnit {
    /// Its pods and their nodes.
    pub(crate) pods: Vec<(Arc<PodName>, String)>,
    /// The group, if the whole group is evicted.
    pub(crate) group: Option<GroupKey>,
    /// The preemptor, such as `podgroup ml/train`; `None` if an earlier process began the eviction.
    pub(crate) by: Option<String>,
    /// The message of the pods' conditions.
    pub(crate) message: String,
    /// The transition time of the pods' conditions.
    pub(crate) now: Timestamp,
}

/// A request that is sent for each pod of a unit.
#[derive(Clone, Copy)]
enum Step {
    Evict { dry_run: bool },
    SetDisruptionTarget,
    Delete,
}

impl VictimUnit {
    /// The text of its events: that it was preempted, and by what.
    pub(crate) fn preemption_note(&self) -> String {
        self.by.as_ref().map_or_else(|| "Preempted with its group".to_owned(), |by| format!("Preempted by {by}"))
    }
}

/// The outcome for each pod of a unit.
pub(crate) type EvictionOutcomes = Vec<(Arc<PodName>, DeleteOutcome)>;

impl RequestContext {
    pub(super) async fn evict(&self, unit: &VictimUnit) -> EvictionOutcomes {
        if self.eviction == Eviction::EvictionApi {
            let checked = self.for_each_pod(unit, Step::Evict { dry_run: true }).await;
            if let Some(failure) = first_failure(&checked) {
                return for_all(unit, &failure);
            }
        }
        let marked = self.for_each_pod(unit, Step::SetDisruptionTarget).await;
        // Nothing is evicted yet: if one condition cannot be set, the whole unit stays.
        if let Some(failure) = first_failure(&marked) {
            return for_all(unit, &failure);
        }
        match self.eviction {
            Eviction::Delete => self.for_each_pod(unit, Step::Delete).await,
            Eviction::EvictionApi => self.for_each_pod(unit, Step::Evict { dry_run: false }).await,
        }
    }

    /// Clears the `DisruptionTarget` condition of a pod that stays.
    pub(super) async fn clear_disruption_target(&self, pod: &PodName, now: Timestamp) -> DeleteOutcome {
        self.write_disruption_target(pod, "False", "NotEvicted", "", now).await
    }

    async fn for_each_pod(&self, unit: &VictimUnit, step: Step) -> EvictionOutcomes {
        let requests: Vec<_> = unit.pods.iter().map(|(pod, _)| self.step(pod, unit, step)).collect();
        let outcomes: Vec<DeleteOutcome> = stream::iter(requests).buffered(CONCURRENCY).collect().await;
        unit.pods.iter().map(|(pod, _)| pod.clone()).zip(outcomes).collect()
    }

    async fn step(&self, pod: &PodName, unit: &VictimUnit, step: Step) -> DeleteOutcome {
        match step {
            Step::Evict { dry_run } => self.send_eviction(pod, dry_run).await,
            Step::SetDisruptionTarget => {
                self.write_disruption_target(pod, "True", PREEMPTION_BY_SCHEDULER, &unit.message, unit.now).await
            }
            Step::Delete => self.delete_pod(pod).await,
        }
    }

    /// Writes the `DisruptionTarget` condition of a pod.
    async fn write_disruption_target(
        &self,
        pod: &PodName,
        status: &str,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> DeleteOutcome {
        let Some(deadline) = self.deadline() else { return fenced() };
        let condition = json!({
            "type": DISRUPTION_TARGET, "status": status, "reason": reason, "message": message,
            "lastProbeTime": null, "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        let patch = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}});
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let (parameters, patch) = (PatchParams::default(), Patch::Strategic(&patch));
        let request = pods.patch_status(&pod.name, &parameters, &patch);
        match self.send(("patch", "pods/status"), deadline, request).await {
            Ok(_) => DeleteOutcome::Deleted,
            Err(failure) => self.resolve_eviction(pod, failure).await,
        }
    }

    /// Sends an eviction, or a dry run of it.
    async fn send_eviction(&self, pod: &PodName, dry_run: bool) -> DeleteOutcome {
        let Some(deadline) = self.deadline() else { return fenced() };
        let request = Request {
            metadata: ObjectMeta {
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                ..ObjectMeta::default()
            },
            delete_options: Some(DeleteOptions {
                preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None }),
                dry_run: dry_run.then(|| vec!["All".to_owned()]),
                ..DeleteOptions::default()
            }),
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let parameters = PostParams { dry_run, ..PostParams::default() };
        let request =
            pods.create_subresource::<Request, kube::core::Status>("eviction", &pod.name, &parameters, &request);
        match self.send(("create", "pods/eviction"), deadline, request).await {
            Ok(_) => DeleteOutcome::Deleted,
            Err(failure) => self.resolve_eviction(pod, failure).await,
        }
    }

    /// Counts a pod that no longer exists as evicted.
    async fn resolve_eviction(&self, pod: &PodName, failure: Failure) -> DeleteOutcome {
        match failure {
            Failure::Missing(_) => DeleteOutcome::Deleted,
            // The response for a pod with another UID can be either of these.
            Failure::Conflict(_) | Failure::Refused(_) if self.is_gone(pod).await => DeleteOutcome::Deleted,
            Failure::Refused(message) => DeleteOutcome::Refused { message },
            Failure::Busy(message, _) if message.contains(SEVERAL_BUDGETS) => DeleteOutcome::Refused { message },
            Failure::Conflict(message) | Failure::Busy(message, _) | Failure::Unknown(message) => {
                DeleteOutcome::Transient { message }
            }
        }
    }
}

/// The text by which the API reports, as an internal error, that several budgets match the pod.
const SEVERAL_BUDGETS: &str = "more than one PodDisruptionBudget";

/// The first rejection, else the first other failure.
fn first_failure(outcomes: &EvictionOutcomes) -> Option<DeleteOutcome> {
    let refused = outcomes.iter().find(|(_, outcome)| matches!(outcome, DeleteOutcome::Refused { .. }));
    let failure = refused.or_else(|| outcomes.iter().find(|(_, outcome)| *outcome != DeleteOutcome::Deleted));
    failure.map(|(_, outcome)| outcome.clone())
}

fn for_all(unit: &VictimUnit, outcome: &DeleteOutcome) -> EvictionOutcomes {
    unit.pods.iter().map(|(pod, _)| (pod.clone(), outcome.clone())).collect()
}

fn fenced() -> DeleteOutcome {
    DeleteOutcome::Transient { message: FENCED.to_owned() }
}
