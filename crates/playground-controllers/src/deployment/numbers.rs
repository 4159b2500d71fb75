//! The numbers of a rollout: how many more pods there may be and how many fewer, and sums over replica sets.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How many pods are wanted.
pub(super) fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// How many pods a set should have.
pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

/// How many of a set's pods are available.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
}

/// How many of a set's pods will be available when it has the size it should: what its status counts may be about to go.
pub(super) fn lasting(set: &ReplicaSet) -> i32 {
    available(set).min(size(set))
}

/// How many pods sets should have together.
pub(super) fn sizes<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    sets.into_iter().map(size).fold(0, i32::saturating_add)
}

/// Whether pods are replaced little by little.
pub(super) fn is_rolling(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.strategy.as_ref();
    strategy.and_then(|strategy| strategy.type_.as_deref()).is_none_or(|name| name == "RollingUpdate")
}

/// A number, or so many percent of a total.
pub(crate) fn share(amount: &IntOrString, total: i32, round_up: bool) -> i32 {
    match amount {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            // The server has checked it.
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok()).unwrap_or_default();
            let hundredths = percent.saturating_mul(i64::from(total));
            let rounded =
                if round_up { hundredths.saturating_add(99).div_euclid(100) } else { hundredths.div_euclid(100) };
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}

/// How many more pods than wanted there may be, and how many fewer available. Never are both zero: that would be a halt.
fn leeway(deployment: &Deployment) -> (i32, i32) {
    let strategy = deployment.spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let RollingUpdateDeployment { max_surge, max_unavailable } = strategy.cloned().unwrap_or_default();
    let none = IntOrString::Int(0);
    let surge = share(max_surge.as_ref().unwrap_or(&none), wanted(deployment), true);
    let unavailable = share(max_unavailable.as_ref().unwrap_or(&none), wanted(deployment), false);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// How many more pods than wanted there may be.
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    if is_rolling(deployment) { leeway(deployment).0 } else { 0 }
}

/// How many pods there may be. As many as can be counted, if it were more.
pub(super) fn most(deployment: &Deployment) -> i32 {
    wanted(deployment).saturating_add(max_surge(deployment))
}

/// How many fewer pods than wanted may be available.
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    if is_rolling(deployment) { leeway(deployment).1.min(wanted(deployment)) } else { 0 }
}

/// How many pods the new set should have, if it may grow now. `all` are all sets, the new one included.
pub(super) fn new_size<'a>(
    deployment: &Deployment,
    all: impl IntoIterator<Item = &'a ReplicaSet>,
    new: &ReplicaSet,
) -> i32 {
    if !is_rolling(deployment) {
        return wanted(deployment);
    }
    let room = most(deployment) - sizes(all);
    size(new) + room.min(wanted(deployment) - size(new)).max(0)
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
    fn as_many_as_can_be_counted() {
        let deployment = deployment(i32::MAX, &json!("100%"), &json!("9223372036854775807%"));
        let set: ReplicaSet =
            serde_json::from_value(json!({"metadata": {}, "spec": {"replicas": i32::MAX, "selector": {}}})).unwrap();
        assert_eq!((most(&deployment), max_unavailable(&deployment)), (i32::MAX, i32::MAX));
        assert_eq!(new_size(&deployment, [&set, &set], &set), i32::MAX);
    }
}
