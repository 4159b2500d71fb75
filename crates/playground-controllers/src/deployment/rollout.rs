//! The rollout of a Deployment from its old sets to the new one: rolling update or recreate.
//!
//! Each sync takes one step and updates the status; the effect of the step triggers the next sync.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use muster_reflector::Key;

use super::DeploymentController;
use super::annotations::desired_replicas_annotation;
use super::numbers::{
    available, available_after_scaling, desired_replicas, is_rolling, max_unavailable, new_size, size, sizes,
};
use super::sets::Sets;
use super::status::{NewSetSync, has_deadline, is_complete, progress_reason};

impl DeploymentController {
    /// Syncs a Deployment.
    pub(super) async fn sync(&mut self, key: &Key, observed: &Deployment) -> Result<Option<Duration>, kube::Error> {
        let mut deployment = observed.clone();
        let mut sets = Sets::of(&deployment, self.claim_sets(key, observed).await?);
        if observed.metadata.deletion_timestamp.is_some() {
            return self.sync_status(key, observed, deployment, &sets).await;
        }
        if self.check_paused(&mut deployment) {
            self.write_status(key, &deployment).await?;
            return Ok(None);
        }
        if let NewSetSync::UpToDate { is_revision_changed, found } =
            self.sync_new_set(key, &mut deployment, &mut sets).await?
        {
            let is_first = has_deadline(&deployment) && progress_reason(&deployment).is_none();
            if is_first {
                self.set_progress_condition(&mut deployment, "True", "FoundNewReplicaSet", found);
            }
            if is_revision_changed || is_first {
                self.write_status(key, &deployment).await?;
                return Ok(None);
            }
        }
        let is_paused = deployment.spec.paused == Some(true);
        let is_scaled = |set: &ReplicaSet| {
            size(set) > 0 && desired_replicas_annotation(set).is_some_and(|one| one != desired_replicas(observed))
        };
        if is_paused || sets.all().any(is_scaled) {
            self.scale(key, &deployment, &mut sets).await?;
            if is_paused {
                self.clean_up_history(key, &deployment, &sets).await?;
            }
            return self.sync_status(key, observed, deployment, &sets).await;
        }
        if is_rolling(&deployment) {
            Box::pin(self.rollout_rolling(key, observed, deployment, sets)).await
        } else {
            Box::pin(self.rollout_recreate(key, observed, deployment, sets)).await
        }
    }

    /// Takes one step of a rolling update.
    async fn rollout_rolling(
        &mut self,
        key: &Key,
        observed: &Deployment,
        mut deployment: Deployment,
        mut sets: Sets,
    ) -> Result<Option<Duration>, kube::Error> {
        if sets.new.is_none() {
            let Some(created) = self.create_new_set(key, &mut deployment, &sets).await? else { return Ok(None) };
            sets.new = Some(created);
            return self.sync_rollout_status(key, observed, deployment, &sets).await;
        }
        let Some(new) = sets.new.clone() else { return Ok(None) };
        if size(&new) != desired_replicas(&deployment) {
            let new_size = if size(&new) > desired_replicas(&deployment) {
                desired_replicas(&deployment)
            } else {
                new_size(&deployment, sets.all(), &new)
            };
            if new_size != size(&new) && self.scale_set(key, &deployment, &mut sets, &new, new_size).await? {
                return self.sync_rollout_status(key, observed, deployment, &sets).await;
            }
        }
        if self.reconcile_old_sets(key, &deployment, &mut sets, &new).await? {
            return self.sync_rollout_status(key, observed, deployment, &sets).await;
        }
        if deployment.status.as_ref().is_some_and(|status| is_complete(&deployment, status)) {
            self.clean_up_history(key, &deployment, &sets).await?;
        }
        self.sync_rollout_status(key, observed, deployment, &sets).await
    }

    /// Scales down the old sets as far as the minimum available allows: first unavailable pods, then others. Returns
    /// whether anything was scaled down.
    async fn reconcile_old_sets(
        &mut self,
        key: &Key,
        deployment: &Deployment,
        sets: &mut Sets,
        new: &ReplicaSet,
    ) -> Result<bool, kube::Error> {
        if sizes(&sets.old) == 0 {
            return Ok(false);
        }
        let min_available = desired_replicas(deployment) - max_unavailable(deployment);
        // Unavailable pods of the new set count as unavailable: old pods are not given up for them.
        let removable = sizes(sets.all()) - min_available - (size(new) - available(new));
        if removable <= 0 {
            return Ok(false);
        }
        let mut removed = 0;
        for set in sets.active_old() {
            let unavailable = (size(&set) - available(&set)).min(removable - removed);
            if unavailable > 0 {
                self.scale_set(key, deployment, sets, &set, size(&set) - unavailable).await?;
                removed += unavailable;
            }
        }
        let mut removable = sets.all().map(available_after_scaling).sum::<i32>() - min_available;
        for set in sets.active_old() {
            let count = size(&set).min(removable);
            if count > 0 {
                self.scale_set(key, deployment, sets, &set, size(&set) - count).await?;
                removable -= count;
                removed += count;
            }
        }
        Ok(removed > 0)
    }

    /// Recreate: no new pod before the last old one is gone.
    async fn rollout_recreate(
        &mut self,
        key: &Key,
        observed: &Deployment,
        mut deployment: Deployment,
        mut sets: Sets,
    ) -> Result<Option<Duration>, kube::Error> {
        let mut is_scaled_down = false;
        for set in sets.active_old() {
            is_scaled_down |= self.scale_set(key, &deployment, &mut sets, &set, 0).await?;
        }
        if is_scaled_down || sets.old.iter().any(has_pods) {
            return self.sync_rollout_status(key, observed, deployment, &sets).await;
        }
        match sets.new.clone() {
            None => {
                let Some(created) = self.create_new_set(key, &mut deployment, &sets).await? else { return Ok(None) };
                sets.new = Some(created);
            }
            Some(new) if size(&new) != desired_replicas(&deployment) => {
                self.scale_set(key, &deployment, &mut sets, &new, desired_replicas(observed)).await?;
            }
            Some(_) => {}
        }
        if deployment.status.as_ref().is_some_and(|status| is_complete(&deployment, status)) {
            self.clean_up_history(key, &deployment, &sets).await?;
        }
        self.sync_rollout_status(key, observed, deployment, &sets).await
    }
}

/// Whether a set still has pods, terminating ones included, or its status is outdated.
fn has_pods(set: &ReplicaSet) -> bool {
    let status = set.status.clone().unwrap_or_default();
    let is_observed = status.observed_generation.unwrap_or_default() >= set.metadata.generation.unwrap_or_default();
    status.replicas > 0 || status.terminating_replicas.unwrap_or_default() > 0 || !is_observed
}
