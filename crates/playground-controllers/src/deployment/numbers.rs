//! The numbers of a rollout: max surge, max unavailable, and sums over ReplicaSets.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The desired number of pods.
pub(super) fn desired_replicas(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// The desired number of pods of a set.
pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

/// The number of available pods of a set.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
}

/// The number of available pods of a set once it has its desired size: some that its status counts may be about to be
/// deleted.
pub(super) fn available_after_scaling(set: &ReplicaSet) -> i32 {
    available(set).min(size(set))
}

/// The sum of the desired pods of sets.
pub(super) fn sizes<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    sets.into_iter().map(size).fold(0, i32::saturating_add)
}

/// Whether the strategy is `RollingUpdate`.
pub(super) fn is_rolling(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.strategy.as_ref();
    strategy.and_then(|strategy| strategy.type_.as_deref()).is_none_or(|name| name == "RollingUpdate")
}

/// An absolute number, or a percentage of a total.
pub(crate) fn scaled_value(amount: &IntOrString, total: i32, round_up: bool) -> i32 {
    match amount {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            // The server has validated it.
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok()).unwrap_or_default();
            let hundredths = percent.saturating_mul(i64::from(total));
            let rounded =
                if round_up { hundredths.saturating_add(99).div_euclid(100) } else { hundredths.div_euclid(100) };
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}

/// Max surge and max unavailable. They are never both zero, or the rollout could not progress.
fn resolve_fenceposts(deployment: &Deployment) -> (i32, i32) {
    let strategy = deployment.spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let RollingUpdateDeployment { max_surge, max_unavailable } = strategy.cloned().unwrap_or_default();
    let none = IntOrString::Int(0);
    let surge = scaled_value(max_surge.as_ref().unwrap_or(&none), desired_replicas(deployment), true);
    let unavailable = scaled_value(max_unavailable.as_ref().unwrap_or(&none), desired_replicas(deployment), false);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// The maximum number of pods above the desired number.
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    if is_rolling(deployment) { resolve_fenceposts(deployment).0 } else { 0 }
}

/// The maximum number of pods, saturated.
pub(super) fn max_replicas(deployment: &Deployment) -> i32 {
    desired_replicas(deployment).saturating_add(max_surge(deployment))
}

/// The maximum number of unavailable pods.
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    if is_rolling(deployment) { resolve_fenceposts(deployment).1.min(desired_replicas(deployment)) } else { 0 }
}

/// The size to which the new set may grow now. `all` are all sets, the new one included.
pub(super) fn new_size<'a>(
    deployment: &Deployment,
    all: impl IntoIterator<Item = &'a ReplicaSet>,
    new: &ReplicaSet,
) -> i32 {
    if !is_rolling(deployment) {
        return desired_replicas(deployment);
    }
    let headroom = max_replicas(deployment) - sizes(all);
    size(new) + headroom.min(desired_replicas(deployment) - size(new)).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(replicas: i32, surge: &serde_json::Value, unavailable: &serde_json::Value) -> Deployment {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        let spec = json!({
            "replicas": replicas, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        });
        serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
    }

    #[test]
    fn surge_is_rounded_up_and_unavailable_down() {
        for (replicas, surge, unavailable, expected) in [
            (10, json!(3), json!(2), (3, 2)),
            (10, json!("25%"), json!("25%"), (3, 2)),
            (1, json!("25%"), json!("25%"), (1, 0)),
            (2, json!("0%"), json!("1%"), (0, 1)),
            (2, json!("1%"), json!("0%"), (1, 0)),
            (3, json!(0), json!(9), (0, 3)),
            (0, json!("25%"), json!("25%"), (0, 0)),
        ] {
            let deployment = deployment(replicas, &surge, &unavailable);
            assert_eq!((max_surge(&deployment), max_unavailable(&deployment)), expected, "{replicas}");
        }
    }

    #[test]
    fn sizes_saturate() {
        let deployment = deployment(i32::MAX, &json!("100%"), &json!("9223372036854775807%"));
        let set: ReplicaSet =
            serde_json::from_value(json!({"metadata": {}, "spec": {"replicas": i32::MAX, "selector": {}}})).unwrap();
        assert_eq!((max_replicas(&deployment), max_unavailable(&deployment)), (i32::MAX, i32::MAX));
        assert_eq!(new_size(&deployment, [&set, &set], &set), i32::MAX);
    }
}
