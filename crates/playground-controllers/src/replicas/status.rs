//! The status of a ReplicaSet.
//!
//! Invariant: it is written only if it has changed.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use muster_clock as clock;
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_reflector::Delta;
use serde_json::{Value, json};

use super::ReplicaSetController;
use crate::owners::error_message;
use crate::pod_record::{PodRecord, available_at, is_terminating, ready_since};

const FAILURE: &str = "ReplicaFailure";

impl ReplicaSetController {
    /// Updates the status. Returns when the next pod becomes available.
    pub(super) async fn update_status(
        &mut self,
        set: &ReplicaSet,
        failure: Option<&kube::Error>,
    ) -> Result<Option<Duration>, kube::Error> {
        let now = self.clock.now();
        let pods: Vec<&PodRecord> = self.pods_of(set).map(|pod| &**pod).collect();
        let min_ready_seconds = set.spec.min_ready_seconds.unwrap_or_default();
        let active = pods.iter().filter(|pod| !is_terminating(pod));
        let next_available =
            active.filter_map(|pod| available_at(pod, min_ready_seconds)).filter(|time| *time > now).min();
        let status = status_of(set, &pods, failure, now);
        if set.status.as_ref().map(numbers) != Some(numbers(&status))
            || set.status.as_ref().and_then(|status| status.conditions.as_ref()) != status.conditions.as_ref()
        {
            let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &set.namespace().unwrap_or_default());
            let patch = Patch::Merge(json!({"metadata": {"uid": set.uid()}, "status": status_patch(&status)}));
            match sets.patch_status(&set.name_any(), &PatchParams::default(), &patch).await {
                // The set is gone and the watch is late: pods created for it would be garbage-collected and recreated
                // forever.
                Err(error) if is_not_found(&error) => drop(self.sets.apply(Delta::Deleted(set.clone()))),
                Err(error) if is_conflict(&error) => {}
                answer => drop(answer?),
            }
        }
        Ok(next_available.map(|time| Duration::try_from(time.duration_since(now)).unwrap_or_default()))
    }
}

fn status_of(set: &ReplicaSet, pods: &[&PodRecord], failure: Option<&kube::Error>, now: Timestamp) -> ReplicaSetStatus {
    let min_ready_seconds = set.spec.min_ready_seconds.unwrap_or_default();
    let active: Vec<&&PodRecord> = pods.iter().filter(|pod| !is_terminating(pod)).collect();
    let labels = set.spec.template.as_ref().and_then(|template| template.metadata.as_ref()?.labels.clone());
    let labels = labels.unwrap_or_default();
    let is_labelled = |pod: &PodRecord| labels.iter().all(|(key, value)| pod.labels().get(key) == Some(value));
    let count = |is: &dyn Fn(&PodRecord) -> bool| active.iter().filter(|pod| is(pod)).count() as i32;
    let some = |count: i32| (count > 0).then_some(count);
    ReplicaSetStatus {
        replicas: active.len() as i32,
        fully_labeled_replicas: some(count(&is_labelled)),
        ready_replicas: some(count(&|pod| ready_since(pod).is_some())),
        available_replicas: some(count(&|pod| available_at(pod, min_ready_seconds).is_some_and(|time| time <= now))),
        terminating_replicas: Some(pods.len() as i32 - active.len() as i32),
        observed_generation: set.metadata.generation,
        conditions: conditions_of(set, active.len(), failure, now),
    }
}

/// The failure condition stays until pods can be created or deleted again.
fn conditions_of(
    set: &ReplicaSet,
    active: usize,
    failure: Option<&kube::Error>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = set.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let is_failure = |one: &ReplicaSetCondition| one.type_.as_deref() == Some(FAILURE);
    match failure {
        Some(error) if !conditions.iter().any(is_failure) => {
            let desired = set.spec.replicas.unwrap_or(1).max(0) as usize;
            let reason = if active < desired { "FailedCreate" } else { "FailedDelete" };
            conditions.push(ReplicaSetCondition {
                type_: Some(FAILURE.to_owned()),
                status: Some("True".to_owned()),
                reason: Some(reason.to_owned()),
                message: Some(error_message(error)),
                last_transition_time: Some(Time(clock::whole(now))),
            });
        }
        Some(_) => {}
        None => conditions.retain(|one| !is_failure(one)),
    }
    (!conditions.is_empty()).then_some(conditions)
}

/// The numbers of a status; an absent one is zero, except `terminatingReplicas`.
fn numbers(status: &ReplicaSetStatus) -> ([i64; 5], Option<i32>) {
    let number = |count: Option<i32>| i64::from(count.unwrap_or_default());
    let numbers = [
        i64::from(status.replicas),
        number(status.fully_labeled_replicas),
        number(status.ready_replicas),
        number(status.available_replicas),
        status.observed_generation.unwrap_or_default(),
    ];
    (numbers, status.terminating_replicas)
}

/// The status patch; null removes a field.
fn status_patch(status: &ReplicaSetStatus) -> Value {
    json!({
        "replicas": status.replicas,
        "fullyLabeledReplicas": status.fully_labeled_replicas,
        "readyReplicas": status.ready_replicas,
        "availableReplicas": status.available_replicas,
        "terminatingReplicas": status.terminating_replicas,
        "observedGeneration": status.observed_generation,
        "conditions": status.conditions,
    })
}
