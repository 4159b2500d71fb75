//! Evicting a unit: every pod of it is marked first, then all of them go.
//!
//! The marks are what a later process reads if this one dies in between: a unit that has begun to go is followed to its
//! end. Where the eviction API is used, it is asked by a dry run for each of the pods before the first is marked, so that
//! it is known beforehand whether one of them would be refused.

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
use muster_engine::TakeBackOutcome;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::PodName;
use serde_json::json;

use super::Reach;
use super::bind::FENCED;
use super::outcome::Failure;
use crate::config::Eviction;

/// How many requests for one unit may be on their way at once.
const AT_ONCE: usize = 16;

/// A unit that is to be evicted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unit {
    /// Its pods, and the nodes that they leave.
    pub(crate) pods: Vec<(Arc<PodName>, String)>,
    /// The group that goes whole, if it is one.
    pub(crate) group: Option<GroupKey>,
    /// For whom: `podgroup ml/train`; `None` if an earlier process began it.
    pub(crate) by: Option<String>,
    /// What its pods' conditions say.
    pub(crate) message: String,
    /// When that is said.
    pub(crate) now: Timestamp,
}

/// What is done to each pod of a unit.
#[derive(Clone, Copy)]
enum Step {
    Ask { dry_run: bool },
    Mark,
    Delete,
}

impl Unit {
    /// That it went, and for whom.
    pub(crate) fn fate(&self) -> String {
        self.by.as_ref().map_or_else(|| "Preempted with its group".to_owned(), |by| format!("Preempted by {by}"))
    }
}

/// What became of each pod of a unit.
pub(crate) type Outcomes = Vec<(Arc<PodName>, TakeBackOutcome)>;

impl Reach {
    pub(super) async fn evict(&self, unit: &Unit) -> Outcomes {
        if self.eviction == Eviction::EvictionApi {
            let asked = self.of_each(unit, Step::Ask { dry_run: true }).await;
            if let Some(no) = first_no(&asked) {
                return for_all(unit, &no);
            }
        }
        let marked = self.of_each(unit, Step::Mark).await;
        // Nobody has gone yet: as long as one of them cannot be marked the others stay too.
        if let Some(no) = first_no(&marked) {
            return for_all(unit, &no);
        }
        match self.eviction {
            Eviction::Delete => self.of_each(unit, Step::Delete).await,
            Eviction::EvictionApi => self.of_each(unit, Step::Ask { dry_run: false }).await,
        }
    }

    /// Takes the mark off a pod that stays.
    pub(super) async fn spare(&self, pod: &PodName, now: Timestamp) -> TakeBackOutcome {
        self.write_mark(pod, "False", "NotEvicted", "", now).await
    }

    async fn of_each(&self, unit: &Unit, step: Step) -> Outcomes {
        let requests: Vec<_> = unit.pods.iter().map(|(pod, _)| self.step(pod, unit, step)).collect();
        let outcomes: Vec<TakeBackOutcome> = stream::iter(requests).buffered(AT_ONCE).collect().await;
        unit.pods.iter().map(|(pod, _)| pod.clone()).zip(outcomes).collect()
    }

    async fn step(&self, pod: &PodName, unit: &Unit, step: Step) -> TakeBackOutcome {
        match step {
            Step::Ask { dry_run } => self.ask(pod, dry_run).await,
            Step::Mark => self.write_mark(pod, "True", PREEMPTION_BY_SCHEDULER, &unit.message, unit.now).await,
            Step::Delete => self.take_back(pod).await,
        }
    }

    /// Writes into the pod's status for whom it goes, or that it stays.
    async fn write_mark(
        &self,
        pod: &PodName,
        status: &str,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> TakeBackOutcome {
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
            Ok(_) => TakeBackOutcome::Deleted,
            Err(failure) => self.evicted_after_all(pod, failure).await,
        }
    }

    /// Asks the eviction API to let the pod go, or whether it would.
    async fn ask(&self, pod: &PodName, dry_run: bool) -> TakeBackOutcome {
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
            Ok(_) => TakeBackOutcome::Deleted,
            Err(failure) => self.evicted_after_all(pod, failure).await,
        }
    }

    /// A pod that is not there any more is as good as evicted.
    async fn evicted_after_all(&self, pod: &PodName, failure: Failure) -> TakeBackOutcome {
        match failure {
            Failure::Missing(_) => TakeBackOutcome::Deleted,
            // A pod of another UID is told in either way.
            Failure::Conflict(_) | Failure::Refused(_) if self.is_gone(pod).await => TakeBackOutcome::Deleted,
            Failure::Refused(message) => TakeBackOutcome::Refused { message },
            Failure::Busy(message, _) if message.contains(SEVERAL_BUDGETS) => TakeBackOutcome::Refused { message },
            Failure::Conflict(message) | Failure::Busy(message, _) | Failure::Unknown(message) => {
                TakeBackOutcome::Transient { message }
            }
        }
    }
}

/// How the API says, as a fault of its own, that it cannot tell which of several budgets counts.
const SEVERAL_BUDGETS: &str = "more than one PodDisruptionBudget";

/// The first that did not go well; one that may go well later counts less than one that was refused.
fn first_no(outcomes: &Outcomes) -> Option<TakeBackOutcome> {
    let refused = outcomes.iter().find(|(_, outcome)| matches!(outcome, TakeBackOutcome::Refused { .. }));
    let no = refused.or_else(|| outcomes.iter().find(|(_, outcome)| *outcome != TakeBackOutcome::Deleted));
    no.map(|(_, outcome)| outcome.clone())
}

fn for_all(unit: &Unit, outcome: &TakeBackOutcome) -> Outcomes {
    unit.pods.iter().map(|(pod, _)| (pod.clone(), outcome.clone())).collect()
}

fn fenced() -> TakeBackOutcome {
    TakeBackOutcome::Transient { message: FENCED.to_owned() }
}
