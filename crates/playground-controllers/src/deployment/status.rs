//! What a deployment's status says: counts over its sets, and whether the rollout gets on.
//!
//! Invariant: the time of a condition's last transition moves only with its status, and that of its last update with
//! every step forward.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use muster_determinism::clock;
use muster_playground_client::mirror::Key;

use super::Keeper;
use super::numbers::{available, max_unavailable, sizes, wanted};
use super::sets::Sets;

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const FAILURE: &str = "ReplicaFailure";
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// What is known of the new set before the rollout goes on.
pub(super) enum Progress {
    None,
    /// It is there and up to date; whether the deployment does not carry its number yet, and what to say of it.
    Known {
        is_numbered: bool,
        found: String,
    },
}

/// Whether anybody cares how long it takes.
pub(super) fn has_deadline(deployment: &Deployment) -> bool {
    deployment.spec.progress_deadline_seconds.is_some_and(|seconds| seconds != i32::MAX)
}

/// Whether all pods are new and work.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let all = |count: Option<i32>| count.unwrap_or_default() == wanted(deployment);
    all(status.updated_replicas)
        && all(status.replicas)
        && all(status.available_replicas)
        && status.observed_generation >= deployment.metadata.generation
}

/// Whether something has moved since the status was last written.
fn has_moved(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
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

/// Puts a condition in the place of the one of its type, unless that says the same for the same reason.
fn put(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
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

/// The reason that the condition about progress gives.
pub(super) fn progress_of(deployment: &Deployment) -> Option<&str> {
    find(deployment.status.as_ref()?, PROGRESSING).map(|one| one.reason.as_deref().unwrap_or_default())
}

impl Keeper {
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

    /// Says how the rollout gets on, if anybody cares.
    pub(super) fn progress(&self, deployment: &mut Deployment, status: &str, reason: &str, message: String) {
        if has_deadline(deployment) {
            let condition = self.condition(PROGRESSING, status, reason, message);
            put(deployment.status.get_or_insert_default(), condition);
        }
    }

    /// Time does not count while a deployment is paused. Answers whether there is something new to say.
    pub(super) fn note_pause(&self, deployment: &mut Deployment) -> bool {
        let reason = progress_of(deployment).unwrap_or_default();
        if !has_deadline(deployment) || reason == TIMED_OUT {
            return false;
        }
        let (reason, message) = match (deployment.spec.paused == Some(true), reason == PAUSED) {
            (true, false) => (PAUSED, "Deployment is paused"),
            (false, true) => ("DeploymentResumed", "Deployment is resumed"),
            _ => return false,
        };
        self.progress(deployment, "Unknown", reason, message.to_owned());
        true
    }

    fn counts(&self, deployment: &Deployment, sets: &Sets) -> DeploymentStatus {
        let some = |count: i32| (count > 0).then_some(count);
        let present = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
        let ready = |set: &ReplicaSet| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
        let working: i32 = sets.all().map(available).sum();
        let old = deployment.status.clone().unwrap_or_default();
        let mut status = DeploymentStatus {
            observed_generation: deployment.metadata.generation,
            replicas: some(sets.all().map(present).sum()),
            updated_replicas: some(sets.new.as_ref().map_or(0, present)),
            ready_replicas: some(sets.all().map(ready).sum()),
            available_replicas: some(working),
            unavailable_replicas: some(sizes(sets.all()) - working),
            terminating_replicas: terminating(sets),
            collision_count: old.collision_count,
            conditions: old.conditions,
        };
        let condition = if working >= wanted(deployment) - max_unavailable(deployment) {
            let message = "Deployment has minimum availability.".to_owned();
            self.condition(AVAILABLE, "True", "MinimumReplicasAvailable", message)
        } else {
            let message = "Deployment does not have minimum availability.".to_owned();
            self.condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message)
        };
        put(&mut status, condition);
        status
    }

    /// Says how many pods there are.
    pub(super) async fn tell_counts(
        &mut self,
        key: &Key,
        seen: &Deployment,
        mut deployment: Deployment,
        sets: &Sets,
    ) -> Result<Option<Duration>, kube::Error> {
        deployment.status = Some(self.counts(&deployment, sets));
        if *seen != deployment {
            self.write_status(key, &deployment).await?;
        }
        Ok(None)
    }

    /// Says how many pods there are and how the rollout gets on. Answers when it will have taken too long.
    pub(super) async fn tell_progress(
        &mut self,
        key: &Key,
        seen: &Deployment,
        mut deployment: Deployment,
        sets: &Sets,
    ) -> Result<Option<Duration>, kube::Error> {
        let mut status = self.counts(&deployment, sets);
        let subject = match &sets.new {
            Some(new) => format!("ReplicaSet \"{}\"", new.name_any()),
            None => format!("Deployment \"{}\"", deployment.name_any()),
        };
        self.judge(&deployment, &mut status, &subject);
        let failing = |set: &ReplicaSet| {
            let conditions = set.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
            conditions.into_iter().find(|one| one.type_.as_deref() == Some(FAILURE)).cloned()
        };
        match sets.new.iter().chain(&sets.old).find_map(failing) {
            Some(failure) => put(
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
        if *seen != deployment {
            self.write_status(key, &deployment).await?;
            return Ok(None);
        }
        Ok(self.patience(&deployment))
    }

    /// Writes the condition about progress.
    fn judge(&self, deployment: &Deployment, status: &mut DeploymentStatus, subject: &str) {
        if !has_deadline(deployment) {
            remove(status, PROGRESSING);
            return;
        }
        let old = deployment.status.clone().unwrap_or_default();
        let said = find(&old, PROGRESSING).cloned();
        let was_complete = said.as_ref().is_some_and(|one| one.reason.as_deref() == Some(COMPLETE));
        if was_complete && status.replicas == status.updated_replicas {
            return;
        }
        if is_complete(deployment, status) {
            let message = format!("{subject} has successfully progressed.");
            put(status, self.condition(PROGRESSING, "True", COMPLETE, message));
        } else if has_moved(&old, status) {
            let message = format!("{subject} is progressing.");
            let mut condition = self.condition(PROGRESSING, "True", "ReplicaSetUpdated", message);
            if let Some(said) = said.filter(|said| said.status.as_deref() == Some("True")) {
                condition.last_transition_time = said.last_transition_time;
            }
            // Every step forward is noted, even for the same reason.
            remove(status, PROGRESSING);
            put(status, condition);
        } else if self.is_late(deployment, status) {
            let message = format!("{subject} has timed out progressing.");
            put(status, self.condition(PROGRESSING, "False", TIMED_OUT, message));
        }
    }

    fn is_late(&self, deployment: &Deployment, status: &DeploymentStatus) -> bool {
        let Some(said) = find(status, PROGRESSING) else { return false };
        match said.reason.as_deref() {
            Some(COMPLETE) => false,
            Some(TIMED_OUT) => true,
            _ => {
                let seconds = i64::from(deployment.spec.progress_deadline_seconds.unwrap_or_default());
                let since = said.last_update_time.as_ref();
                since.is_some_and(|since| clock::after(since.0, seconds) < self.clock.now())
            }
        }
    }

    /// When the rollout will have taken too long, if nothing moves.
    fn patience(&self, deployment: &Deployment) -> Option<Duration> {
        let status = deployment.status.as_ref()?;
        let said = find(status, PROGRESSING)?;
        if is_complete(deployment, status) || said.reason.as_deref() == Some(TIMED_OUT) || !has_deadline(deployment) {
            return None;
        }
        let seconds = i64::from(deployment.spec.progress_deadline_seconds.unwrap_or_default());
        let late = clock::after(said.last_update_time.as_ref()?.0, seconds);
        let left = Duration::try_from(late.duration_since(self.clock.now())).unwrap_or_default();
        Some(left + Duration::from_secs(1))
    }
}

/// How many pods are on their way out, if every set says so.
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
