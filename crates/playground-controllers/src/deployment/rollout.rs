//! How a deployment gets from its old sets to its new one: little by little, or all at once.
//!
//! Each turn takes one step and says how far things are; what comes of the step wakes the next turn.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use muster_playground_client::mirror::Key;

use super::Keeper;
use super::annotations::desired;
use super::numbers::{available, is_rolling, lasting, max_unavailable, new_size, size, sizes, wanted};
use super::sets::Sets;
use super::status::{Progress, has_deadline, is_complete, progress_of};

impl Keeper {
    /// Looks after a deployment.
    pub(super) async fn roll(&mut self, key: &Key, seen: &Deployment) -> Result<Option<Duration>, kube::Error> {
        let mut deployment = seen.clone();
        let mut sets = Sets::of(&deployment, self.claimed(key, seen).await?);
        if seen.metadata.deletion_timestamp.is_some() {
            return self.tell_counts(key, seen, deployment, &sets).await;
        }
        if self.note_pause(&mut deployment) {
            self.write_status(key, &deployment).await?;
            return Ok(None);
        }
        if let Progress::Known { is_numbered, found } = self.sync_new(key, &mut deployment, &mut sets).await? {
            let is_first = has_deadline(&deployment) && progress_of(&deployment).is_none();
            if is_first {
                self.progress(&mut deployment, "True", "FoundNewReplicaSet", found);
            }
            if is_numbered || is_first {
                self.write_status(key, &deployment).await?;
                return Ok(None);
            }
        }
        let is_paused = deployment.spec.paused == Some(true);
        let was_scaled = |set: &ReplicaSet| size(set) > 0 && desired(set).is_some_and(|one| one != wanted(seen));
        if is_paused || sets.all().any(was_scaled) {
            self.scale(key, &deployment, &mut sets).await?;
            if is_paused {
                self.clean_up(key, &deployment, &sets).await?;
            }
            return self.tell_counts(key, seen, deployment, &sets).await;
        }
        if is_rolling(&deployment) {
            Box::pin(self.roll_over(key, seen, deployment, sets)).await
        } else {
            Box::pin(self.start_over(key, seen, deployment, sets)).await
        }
    }

    /// Little by little.
    async fn roll_over(
        &mut self,
        key: &Key,
        seen: &Deployment,
        mut deployment: Deployment,
        mut sets: Sets,
    ) -> Result<Option<Duration>, kube::Error> {
        if sets.new.is_none() {
            let Some(made) = self.make_new(key, &mut deployment, &sets).await? else { return Ok(None) };
            sets.new = Some(made);
            return self.tell_progress(key, seen, deployment, &sets).await;
        }
        let Some(new) = sets.new.clone() else { return Ok(None) };
        if size(&new) != wanted(&deployment) {
            let grown = if size(&new) > wanted(&deployment) {
                wanted(&deployment)
            } else {
                new_size(&deployment, sets.all(), &new)
            };
            if grown != size(&new) && self.resize(key, &deployment, &mut sets, &new, grown).await? {
                return self.tell_progress(key, seen, deployment, &sets).await;
            }
        }
        if self.shrink_old(key, &deployment, &mut sets, &new).await? {
            return self.tell_progress(key, seen, deployment, &sets).await;
        }
        if deployment.status.as_ref().is_some_and(|status| is_complete(&deployment, status)) {
            self.clean_up(key, &deployment, &sets).await?;
        }
        self.tell_progress(key, seen, deployment, &sets).await
    }

    /// Takes from the old sets what can be spared: first pods that do not work, then others. Answers whether there were
    /// any.
    async fn shrink_old(
        &mut self,
        key: &Key,
        deployment: &Deployment,
        sets: &mut Sets,
        new: &ReplicaSet,
    ) -> Result<bool, kube::Error> {
        if sizes(&sets.old) == 0 {
            return Ok(false);
        }
        let least = wanted(deployment) - max_unavailable(deployment);
        // Pods of the new set that do not work count as lost: others are not given up for them.
        let spare = sizes(sets.all()) - least - (size(new) - available(new));
        if spare <= 0 {
            return Ok(false);
        }
        let mut taken = 0;
        for set in sets.active_old() {
            let broken = (size(&set) - available(&set)).min(spare - taken);
            if broken > 0 {
                self.resize(key, deployment, sets, &set, size(&set) - broken).await?;
                taken += broken;
            }
        }
        let mut spare = sets.all().map(lasting).sum::<i32>() - least;
        for set in sets.active_old() {
            let count = size(&set).min(spare);
            if count > 0 {
                self.resize(key, deployment, sets, &set, size(&set) - count).await?;
                spare -= count;
                taken += count;
            }
        }
        Ok(taken > 0)
    }

    /// All at once: nobody of the new before the last of the old is gone.
    async fn start_over(
        &mut self,
        key: &Key,
        seen: &Deployment,
        mut deployment: Deployment,
        mut sets: Sets,
    ) -> Result<Option<Duration>, kube::Error> {
        let mut is_shrunk = false;
        for set in sets.active_old() {
            is_shrunk |= self.resize(key, &deployment, &mut sets, &set, 0).await?;
        }
        if is_shrunk || sets.old.iter().any(has_pods) {
            return self.tell_progress(key, seen, deployment, &sets).await;
        }
        match sets.new.clone() {
            None => {
                let Some(made) = self.make_new(key, &mut deployment, &sets).await? else { return Ok(None) };
                sets.new = Some(made);
            }
            Some(new) if size(&new) != wanted(&deployment) => {
                self.resize(key, &deployment, &mut sets, &new, wanted(seen)).await?;
            }
            Some(_) => {}
        }
        if deployment.status.as_ref().is_some_and(|status| is_complete(&deployment, status)) {
            self.clean_up(key, &deployment, &sets).await?;
        }
        self.tell_progress(key, seen, deployment, &sets).await
    }
}

/// Whether pods of a set are left, those on their way out included, or nobody can tell yet.
fn has_pods(set: &ReplicaSet) -> bool {
    let status = set.status.clone().unwrap_or_default();
    let is_told = status.observed_generation.unwrap_or_default() >= set.metadata.generation.unwrap_or_default();
    status.replicas > 0 || status.terminating_replicas.unwrap_or_default() > 0 || !is_told
}
