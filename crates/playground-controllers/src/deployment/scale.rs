//! Proportional scaling during a rollout: every set keeps its proportion, so that the rollout is neither accelerated
//! nor reverted.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use muster_reflector::Key;

use super::DeploymentController;
use super::annotations::{desired_replicas_annotation, max_replicas_annotation};
use super::numbers::{available, desired_replicas, is_rolling, max_replicas, size, sizes};
use super::sets::Sets;

impl DeploymentController {
    /// Scales each set to its proportion of the desired replicas.
    pub(super) async fn scale(
        &mut self,
        key: &Key,
        deployment: &Deployment,
        sets: &mut Sets,
    ) -> Result<(), kube::Error> {
        let active: Vec<ReplicaSet> = sets.all().filter(|set| size(set) > 0).cloned().collect();
        let only = match active.as_slice() {
            [] => sets.new.clone().or_else(|| sets.old.last().cloned()),
            [only] => Some(only.clone()),
            _ => None,
        };
        if let Some(only) = only {
            if size(&only) != desired_replicas(deployment) {
                self.scale_set(key, deployment, sets, &only, desired_replicas(deployment)).await?;
            }
            return Ok(());
        }
        if sets.new.as_ref().is_some_and(|new| is_saturated(deployment, new)) {
            for set in sets.active_old() {
                self.scale_set(key, deployment, sets, &set, 0).await?;
            }
            return Ok(());
        }
        if is_rolling(deployment) {
            for (set, desired) in proportional_sizes(deployment, active) {
                self.scale_set(key, deployment, sets, &set, desired).await?;
            }
        }
        Ok(())
    }
}

/// Whether the new set has all desired pods and all of them are available.
fn is_saturated(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let desired = desired_replicas(deployment);
    size(set) == desired && desired_replicas_annotation(set) == Some(desired) && available(set) == desired
}

/// The new size of each set, in the order in which they are scaled.
fn proportional_sizes(deployment: &Deployment, mut active: Vec<ReplicaSet>) -> Vec<(ReplicaSet, i32)> {
    let allowed = if desired_replicas(deployment) > 0 { max_replicas(deployment) } else { 0 };
    let change = allowed - sizes(&active);
    // The largest first; of equal ones the newer first when scaling up, the older first when scaling down.
    let age = |set: &ReplicaSet| (set.metadata.creation_timestamp.clone(), set.name_any());
    active.sort_by(|a, b| {
        let by_age = if change > 0 { age(b).cmp(&age(a)) } else { age(a).cmp(&age(b)) };
        size(b).cmp(&size(a)).then(by_age)
    });
    let mut given = 0;
    let mut new_sizes: Vec<(ReplicaSet, i32)> = Vec::new();
    for set in active {
        let fraction = fraction(deployment, &set);
        let share = if change > 0 {
            fraction.min(change.saturating_sub(given))
        } else {
            fraction.max(change.saturating_sub(given))
        };
        let share = if change == given { 0 } else { share };
        given = given.saturating_add(share);
        let desired = size(&set).saturating_add(share);
        new_sizes.push((set, desired));
    }
    if let Some((_, largest)) = new_sizes.first_mut().filter(|_| change != 0) {
        *largest = largest.saturating_add(change.saturating_sub(given)).max(0);
    }
    new_sizes
}

/// By how much a set would change to keep its proportion.
fn fraction(deployment: &Deployment, set: &ReplicaSet) -> i32 {
    if desired_replicas(deployment) == 0 {
        return -size(set);
    }
    let present = deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
    let before = max_replicas_annotation(set).filter(|max| *max > 0).unwrap_or(present);
    if before == 0 {
        return 0;
    }
    let product = i64::from(size(set)) * i64::from(max_replicas(deployment));
    let before = i64::from(before);
    // Rounded to the nearest, halves up.
    let rounded = (2 * product + before).div_euclid(2 * before);
    i32::try_from(rounded).unwrap_or(i32::MAX) - size(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_set_keeps_its_proportion() {
        let deployment = |replicas: i32| -> Deployment {
            let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
            let spec = json!({"replicas": replicas, "selector": {}, "template": {}, "strategy": strategy});
            serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
        };
        let set = |name: &str, size: i32| -> ReplicaSet {
            let annotations = json!({"deployment.kubernetes.io/max-replicas": "13"});
            serde_json::from_value(json!({
                "metadata": {"name": name, "annotations": annotations}, "spec": {"replicas": size, "selector": {}},
            }))
            .unwrap()
        };
        let sizes = |replicas: i32, sets: &[(&str, i32)]| {
            let sets = sets.iter().map(|(name, size)| set(name, *size)).collect();
            let sizes = proportional_sizes(&deployment(replicas), sets).into_iter();
            sizes.map(|(set, size)| (set.name_any(), size)).collect::<Vec<_>>()
        };
        let owned =
            |pairs: &[(&str, i32)]| pairs.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect::<Vec<_>>();
        assert_eq!(sizes(20, &[("old", 8), ("new", 5)]), owned(&[("old", 14), ("new", 9)]));
        assert_eq!(sizes(5, &[("old", 8), ("new", 5)]), owned(&[("old", 5), ("new", 3)]));
        assert_eq!(sizes(0, &[("old", 8), ("new", 5)]), owned(&[("old", 0), ("new", 0)]));
        assert_eq!(sizes(10, &[("old", 8), ("new", 5)]), owned(&[("old", 8), ("new", 5)]));
    }
}
