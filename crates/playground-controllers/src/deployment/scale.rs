//! Scaling in the middle of a rollout: every set keeps its share, so that the rollout is neither hurried nor undone.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use muster_playground_client::mirror::Key;

use super::Keeper;
use super::annotations::{desired, maximum};
use super::numbers::{available, is_rolling, most, size, sizes, wanted};
use super::sets::Sets;

impl Keeper {
    /// Gives each set its share of what the deployment wants now.
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
            if size(&only) != wanted(deployment) {
                self.resize(key, deployment, sets, &only, wanted(deployment)).await?;
            }
            return Ok(());
        }
        if sets.new.as_ref().is_some_and(|new| is_saturated(deployment, new)) {
            for set in sets.active_old() {
                self.resize(key, deployment, sets, &set, 0).await?;
            }
            return Ok(());
        }
        if is_rolling(deployment) {
            for (set, wanted) in shares(deployment, active) {
                self.resize(key, deployment, sets, &set, wanted).await?;
            }
        }
        Ok(())
    }
}

/// Whether the new set has all pods that the deployment wants, and all of them work.
fn is_saturated(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let wanted = wanted(deployment);
    size(set) == wanted && desired(set) == Some(wanted) && available(set) == wanted
}

/// What each set should have; those that change first come first.
fn shares(deployment: &Deployment, mut active: Vec<ReplicaSet>) -> Vec<(ReplicaSet, i32)> {
    let allowed = if wanted(deployment) > 0 { most(deployment) } else { 0 };
    let change = allowed - sizes(&active);
    // The largest first; of like ones the newer when there is more to give, the older when there is less.
    let age = |set: &ReplicaSet| (set.metadata.creation_timestamp.clone(), set.name_any());
    active.sort_by(|a, b| {
        let by_age = if change > 0 { age(b).cmp(&age(a)) } else { age(a).cmp(&age(b)) };
        size(b).cmp(&size(a)).then(by_age)
    });
    let mut given = 0;
    let mut shares: Vec<(ReplicaSet, i32)> = Vec::new();
    for set in active {
        let fraction = fraction(deployment, &set);
        let share = if change > 0 {
            fraction.min(change.saturating_sub(given))
        } else {
            fraction.max(change.saturating_sub(given))
        };
        let share = if change == given { 0 } else { share };
        given = given.saturating_add(share);
        let wanted = size(&set).saturating_add(share);
        shares.push((set, wanted));
    }
    if let Some((_, largest)) = shares.first_mut().filter(|_| change != 0) {
        *largest = largest.saturating_add(change.saturating_sub(given)).max(0);
    }
    shares
}

/// By how much a set would change if it kept its share.
fn fraction(deployment: &Deployment, set: &ReplicaSet) -> i32 {
    if wanted(deployment) == 0 {
        return -size(set);
    }
    let present = deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
    let before = maximum(set).filter(|maximum| *maximum > 0).unwrap_or(present);
    if before == 0 {
        return 0;
    }
    let product = i64::from(size(set)) * i64::from(most(deployment));
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
    fn every_set_keeps_its_share() {
        let deployment = |replicas: i32| -> Deployment {
            let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
            let spec = json!({"replicas": replicas, "selector": {}, "template": {}, "strategy": strategy});
            serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
        };
        let set = |name: &str, size: i32| -> ReplicaSet {
            let noted = json!({"deployment.kubernetes.io/max-replicas": "13"});
            serde_json::from_value(json!({
                "metadata": {"name": name, "annotations": noted}, "spec": {"replicas": size, "selector": {}},
            }))
            .unwrap()
        };
        let sizes = |replicas: i32, sets: &[(&str, i32)]| {
            let sets = sets.iter().map(|(name, size)| set(name, *size)).collect();
            let shares = shares(&deployment(replicas), sets).into_iter();
            shares.map(|(set, size)| (set.name_any(), size)).collect::<Vec<_>>()
        };
        let owned =
            |pairs: &[(&str, i32)]| pairs.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect::<Vec<_>>();
        assert_eq!(sizes(20, &[("old", 8), ("new", 5)]), owned(&[("old", 14), ("new", 9)]));
        assert_eq!(sizes(5, &[("old", 8), ("new", 5)]), owned(&[("old", 5), ("new", 3)]));
        assert_eq!(sizes(0, &[("old", 8), ("new", 5)]), owned(&[("old", 0), ("new", 0)]));
        assert_eq!(sizes(10, &[("old", 8), ("new", 5)]), owned(&[("old", 8), ("new", 5)]));
    }
}
