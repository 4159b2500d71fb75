//! The status of a Deployment: counts over its sets, and the progress of the rollout.
//!
//! Invariant: `lastTransitionTime` changes only with the condition's status, `lastUpdateTime` with every progress.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use muster_clock as clock;
use muster_reflector::Key;

use super::DeploymentController;
use super::numbers::{available, desired_replicas, max_unavailable, sizes};
use super::sets::Sets;

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const FAILURE: &str = "ReplicaFailure";
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// The state of the new set before the rollout continues.
pub(super) enum NewSetSync {
    None,
    /// It exists and is up to date: whether the Deployment's revision annotation changed, and the message about it.
    UpToDate {
        is_revision_changed: bool,
        found: String,
    },
}

/// Whether the Deployment has a progress deadline.
pub(super) fn has_deadline(deployment: &Deployment) -> bool {
    deployment.spec.progress_deadline_seconds.is_some_and(|seconds| seconds != i32::MAX)
}

/// Whether all pods are updated and available.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let all = |count: Option<i32>| count.unwrap_or_default() == desired_replicas(deployment);
    all(status.updated_replicas)
        && all(status.replicas)
        && all(status.available_replicas)
        && status.observed_generation >= deployment.metadata.generation
}

/// Whether the rollout has progressed since the status was last written.
fn is_progressing(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let number = Option::unwrap_or_default;
    let of_old = |status: &DeploymentStatus| number(status.replicas) - number(status.updated_replicas);
    number(new.updated_replicas) > number(old.updated_replicas)
        || of_old(new) < of_old(old)
        || number(new.ready_replicas) > number(old.ready_replicas)
        || number(new.available_replicas) > number(old.available_replicas)
}

fn find<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|one| one.type_.as_deref() == Some(kind))
}

fn remove(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|one| one.type_.as_deref() != Some(kind));
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}

/// Sets a condition, unless its status and reason are unchanged.
fn set_condition(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    let kind = condition.type_.clone().unwrap_or_default();
    if let Some(old) = find(status, &kind).filter(|old| old.status == condition.status) {
        if old.reason == condition.reason {
            return;
        }
        condition.last_transition_time.clone_from(&old.last_transition_time);
    }
    remove(status, &kind);
    status.conditions.get_or_insert_default().push(condition);
}

/// The reason of the `Progressing` condition.
pub(super) fn progress_reason(deployment: &Deployment) -> Option<&str> {
    find(deployment.status.as_ref()?, PROGRESSING).map(|one| one.reason.as_deref().unwrap_or_default())
}

impl DeploymentController {
    fn condition(&self, kind: &str, status: &str, reason: &str, message: String) -> DeploymentCondition {
        let now = Some(Time(clock::whole(self.clock.now())));
        DeploymentCondition {
            type_: Some(kind.to_owned()),
            status: Some(status.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_update_time: now.clone(),
            last_transition_time: now,
        }
    }

    /// Sets the `Progressing` condition if there is a progress deadline.
    pub(super) fn set_progress_condition(
        &self,
        deployment: &mut Deployment,
        status: &str,
        reason: &str,
        message: String,
    ) {
        if has_deadline(deployment) {
            let condition = self.condition(PROGRESSING, status, reason, message);
            set_condition(deployment.status.get_or_insert_default(), condition);
        }
    }

    /// Records a pause or resumption, so that paused time does not count towards the deadline. Returns whether the
    /// condition changed.
    pub(super) fn check_paused(&self, deployment: &mut Deployment) -> bool {
        let reason = progress_reason(deployment).unwrap_or_default();
        if !has_deadline(deployment) || reason == TIMED_OUT {
            return false;
        }
        let (reason, message) = match (deployment.spec.paused == Some(true), reason == PAUSED) {
            (true, false) => (PAUSED, "Deployment is paused"),
            (false, true) => ("DeploymentResumed", "Deployment is resumed"),
            _ => return false,
        };
        self.set_progress_condition(deployment, "Unknown", reason, message.to_owned());
        true
    }

    fn calculate_status(&self, deployment: &Deployment, sets: &Sets) -> DeploymentStatus {
        let some = |count: i32| (count > 0).then_some(count);
        let present = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
        let ready = |set: &ReplicaSet| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
        let available: i32 = sets.all().map(available).sum();
        let old = deployment.status.clone().unwrap_or_default();
        let mut status = DeploymentStatus {
            observed_generation: deployment.metadata.generation,
            replicas: some(sets.all().map(present).sum()),
            updated_replicas: some(sets.new.as_ref().map_or(0, present)),
            ready_replicas: some(sets.all().map(ready).sum()),
            available_replicas: some(available),
            unavailable_replicas: some(sizes(sets.all()) - available),
            terminating_replicas: terminating(sets),
            collision_count: old.collision_count,
            conditions: old.conditions,
        };
        let condition = if available >= desired_replicas(deployment) - max_unavailable(deployment) {
            let message = "Deployment has minimum availability.".to_owned();
            self.condition(AVAILABLE, "True", "MinimumReplicasAvailable", message)
        } else {
            let message = "Deployment does not have minimum availability.".to_owned();
            self.condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message)
        };
        set_condition(&mut status, condition);
        status
    }

    /// Updates the counts.
    pub(super) async fn sync_status(
        &mut self,
        key: &Key,
        observed: &Deployment,
        mut deployment: Deployment,
        sets: &Sets,
    ) -> Result<Option<Duration>, kube::Error> {
        deployment.status = Some(self.calculate_status(&deployment, sets));
        if *observed != deployment {
            self.write_status(key, &deployment).await?;
        }
        Ok(None)
    }

    /// Updates the counts and the progress. Returns when the progress deadline will be exceeded.
    pub(super) async fn sync_rollout_status(
        &mut self,
        key: &Key,
        observed: &Deployment,
        mut deployment: Deployment,
        sets: &Sets,
    ) -> Result<Option<Duration>, kube::Error> {
        let mut status = self.calculate_status(&deployment, sets);
        let subject = match &sets.new {
            Some(new) => format!("ReplicaSet \"{}\"", new.name_any()),
            None => format!("Deployment \"{}\"", deployment.name_any()),
        };
        self.update_progress_condition(&deployment, &mut status, &subject);
        let failing = |set: &ReplicaSet| {
            let conditions = set.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
            conditions.into_iter().find(|one| one.type_.as_deref() == Some(FAILURE)).cloned()
        };
        match sets.new.iter().chain(&sets.old).find_map(failing) {
            Some(failure) => set_condition(
                &mut status,
                DeploymentCondition {
                    type_: failure.type_,
                    status: failure.status,
                    reason: failure.reason,
                    message: failure.message,
                    last_update_time: failure.last_transition_time.clone(),
                    last_transition_time: failure.last_transition_time,
                },
            ),
            None => remove(&mut status, FAILURE),
        }
        deployment.status = Some(status);
        if *observed != deployment {
            self.write_status(key, &deployment).await?;
            return Ok(None);
        }
        Ok(self.time_until_deadline(&deployment))
    }

    /// Updates the `Progressing` condition.
    fn update_progress_condition(&self, deployment: &Deployment, status: &mut DeploymentStatus, subject: &str) {
        if !has_deadline(deployment) {
            remove(status, PROGRESSING);
            return;
        }
        let old = deployment.status.clone().unwrap_or_default();
        let current = find(&old, PROGRESSING).cloned();
        let was_complete = current.as_ref().is_some_and(|one| one.reason.as_deref() == Some(COMPLETE));
        if was_complete && status.replicas == status.updated_replicas {
            return;
        }
        if is_complete(deployment, status) {
            let message = format!("{subject} has successfully progressed.");
            set_condition(status, self.condition(PROGRESSING, "True", COMPLETE, message));
        } else if is_progressing(&old, status) {
            let message = format!("{subject} is progressing.");
            let mut condition = self.condition(PROGRESSING, "True", "ReplicaSetUpdated", message);
            if let Some(current) = current.filter(|current| current.status.as_deref() == Some("True")) {
                condition.last_transition_time = current.last_transition_time;
            }
            // Every progress updates the time, even for the same reason.
            remove(status, PROGRESSING);
            set_condition(status, condition);
        } else if self.is_timed_out(deployment, status) {
            let message = format!("{subject} has timed out progressing.");
            set_condition(status, self.condition(PROGRESSING, "False", TIMED_OUT, message));
        }
    }

    fn is_timed_out(&self, deployment: &Deployment, status: &DeploymentStatus) -> bool {
        let Some(current) = find(status, PROGRESSING) else { return false };
        match current.reason.as_deref() {
            Some(COMPLETE) => false,
            Some(TIMED_OUT) => true,
            _ => {
                let seconds = i64::from(deployment.spec.progress_deadline_seconds.unwrap_or_default());
                let since = current.last_update_time.as_ref();
                since.is_some_and(|since| clock::after(since.0, seconds) < self.clock.now())
            }
        }
    }

    /// The time until the progress deadline is exceeded without progress.
    fn time_until_deadline(&self, deployment: &Deployment) -> Option<Duration> {
        let status = deployment.status.as_ref()?;
        let current = find(status, PROGRESSING)?;
        if is_complete(deployment, status) || current.reason.as_deref() == Some(TIMED_OUT) || !has_deadline(deployment)
        {
            return None;
        }
        let seconds = i64::from(deployment.spec.progress_deadline_seconds.unwrap_or_default());
        let deadline = clock::after(current.last_update_time.as_ref()?.0, seconds);
        let left = Duration::try_from(deadline.duration_since(self.clock.now())).unwrap_or_default();
        Some(left + Duration::from_secs(1))
    }
}

/// The number of terminating pods, if every set reports it.
fn terminating(sets: &Sets) -> Option<i32> {
    let mut sum = 0;
    for status in sets.all().map(|set| set.status.clone().unwrap_or_default()) {
        match status.terminating_replicas {
            Some(count) => sum += count,
            None if status.observed_generation.unwrap_or_default() == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}
