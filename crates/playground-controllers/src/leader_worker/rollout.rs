//! Computes the next step of a LeaderWorkerSet rollout: the number of leaders and the partition.
//!
//! Invariant: groups are updated from the highest index down, within `maxUnavailable` and `maxSurge`.
//! No I/O.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::keys::REPLICAS;
use super::object::{LeaderWorkerSet, desired, rolling};
use crate::deployment::scaled_value;

/// The state of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupState {
    pub(super) is_ready: bool,
    pub(super) is_updated: bool,
}

/// Group states by index. An absent group does not exist: there may be billions.
pub(super) type States = BTreeMap<i32, GroupState>;

/// The desired settings of the leaders' StatefulSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// Leaders below this index keep their revision.
    pub(super) partition: i32,
    /// The number of leaders.
    pub(super) replicas: i32,
    /// The maximum number of unavailable leaders.
    pub(super) max_unavailable: i32,
}

/// The current partition of the leaders.
pub(super) fn partition_of(leaders: &StatefulSet) -> i32 {
    let strategy = leaders.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    strategy.and_then(|rolling| rolling.partition).unwrap_or_default()
}

/// Max surge and max unavailable. They are never both zero, or the rollout could not progress.
fn surge_and_unavailable(lws: &LeaderWorkerSet) -> (i32, i32) {
    let (rolling, desired) = (rolling(lws), desired(lws));
    let (none, one) = (IntOrString::Int(0), IntOrString::Int(1));
    let surge = scaled_value(rolling.max_surge.as_ref().unwrap_or(&none), desired, true).min(desired);
    let unavailable = scaled_value(rolling.max_unavailable.as_ref().unwrap_or(&one), desired, false);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// The desired settings of the leaders' StatefulSet. `is_updated` means that the template has just changed.
pub(super) fn steps(lws: &LeaderWorkerSet, leaders: Option<&StatefulSet>, states: &States, is_updated: bool) -> Steps {
    let (surge, unavailable) = surge_and_unavailable(lws);
    let (partition, replicas) = match leaders {
        None => (0, desired(lws)),
        Some(leaders) => next(lws, leaders, states, is_updated),
    };
    let partition = partition.max(rolling(lws).partition.unwrap_or_default());
    Steps { partition, replicas, max_unavailable: surge.saturating_add(unavailable).max(1) }
}

fn next(lws: &LeaderWorkerSet, leaders: &StatefulSet, states: &States, is_updated: bool) -> (i32, i32) {
    let desired = desired(lws);
    let present = leaders.spec.replicas.unwrap_or(1);
    let (surge, unavailable) = surge_and_unavailable(lws);
    let with_surge = |unready: i32| {
        desired.saturating_add(if unready <= surge { unready.saturating_sub(unavailable).max(0) } else { surge })
    };
    if is_updated {
        let partition = desired.min(present);
        return (partition, if present < desired { desired } else { with_surge(desired) });
    }
    let partition = partition_of(leaders);
    if partition == 0 && present == desired {
        return (0, desired);
    }
    if present < desired {
        return (partition, desired);
    }
    let done = states.range(0..desired.max(0)).filter(|(_, state)| state.is_ready && state.is_updated).count();
    let unready = desired - done as i32;
    let annotated = leaders.annotations().get(REPLICAS).and_then(|text| text.parse::<i32>().ok());
    if annotated.is_some_and(|annotated| annotated != desired) {
        return (partition.min(desired.saturating_add(surge)), with_surge(unready));
    }
    let step = unavailable.saturating_add(present - desired);
    (next_partition(states, present, step, partition), with_surge(unready))
}

/// Moves the partition down by the step, past groups that are updated or unavailable anyway.
fn next_partition(states: &States, present: i32, step: i32, partition: i32) -> i32 {
    let is_done = |at: &i32| states.get(at).is_some_and(|state| state.is_ready && state.is_updated);
    let done = (0..present).rev().take_while(is_done).count() as i32;
    let lowest = (present - done).saturating_sub(step).max(0);
    // A lower group that is already unavailable uses up part of the step.
    let unavailable_below = lowest - states.range(0..lowest).filter(|(_, state)| state.is_ready).count() as i32;
    let next = lowest.saturating_add(unavailable_below);
    let top = next.min(present - 1);
    if top < lowest {
        return next.min(partition);
    }
    let mut groups = states.range(lowest..=top).rev();
    let next = match groups.find(|(_, state)| state.is_ready && !state.is_updated) {
        Some((at, _)) if *at == top => next,
        Some((at, _)) => at + 1,
        None => lowest,
    };
    next.min(partition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn lws(replicas: i32, rolling: &Value) -> LeaderWorkerSet {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdateConfiguration": rolling});
        serde_json::from_value(json!({"metadata": {"name": "foo"}, "spec": {
            "replicas": replicas, "rolloutStrategy": strategy,
        }}))
        .unwrap()
    }

    fn leaders(replicas: i32, partition: i32, annotated: i32) -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": {"annotations": {REPLICAS: annotated.to_string()}},
            "spec": {"replicas": replicas, "selector": {}, "template": {},
                     "updateStrategy": {"rollingUpdate": {"partition": partition}}},
        }))
        .unwrap()
    }

    /// `o` is old and ready, `n` is new and ready, `-` is unavailable, `m` is new and not ready yet.
    fn states(text: &str) -> States {
        let one = |letter: char| GroupState { is_ready: "on".contains(letter), is_updated: "nm".contains(letter) };
        (0..).zip(text.chars().map(one)).collect()
    }

    #[test]
    fn groups_are_updated_one_by_one() {
        let lws = lws(4, &json!({"maxUnavailable": 1, "maxSurge": 0}));
        for (partition, groups, expected) in [
            (4, "oooo", (3, 4)),
            (3, "ooo-", (3, 4)),
            (3, "ooom", (3, 4)),
            (3, "ooon", (2, 4)),
            (2, "oomn", (2, 4)),
            (2, "oonn", (1, 4)),
            (0, "nnnn", (0, 4)),
            // An unavailable lower group uses up the step, and is the next to be updated.
            (4, "-ooo", (4, 4)),
        ] {
            let steps = steps(&lws, Some(&leaders(4, partition, 4)), &states(groups), false);
            assert_eq!((steps.partition, steps.replicas), expected, "{groups} at {partition}");
        }
    }

    #[test]
    fn new_template_starts_at_the_highest_index() {
        let plain = lws(4, &json!({"maxUnavailable": 2, "maxSurge": 0}));
        assert_eq!(steps(&plain, Some(&leaders(4, 0, 4)), &states("oooo"), true).partition, 4);
        let surging = lws(4, &json!({"maxUnavailable": 0, "maxSurge": 2}));
        let first = steps(&surging, Some(&leaders(4, 0, 4)), &states("oooo"), true);
        assert_eq!((first.partition, first.replicas, first.max_unavailable), (4, 6, 2));
        let later = steps(&surging, Some(&leaders(6, 4, 4)), &states("oooonn"), false);
        assert_eq!((later.partition, later.replicas), (2, 6));
        let last = steps(&surging, Some(&leaders(6, 0, 4)), &states("nnnnnn"), false);
        assert_eq!((last.partition, last.replicas), (0, 4));
    }

    #[test]
    fn user_partition_is_kept() {
        let lws = lws(4, &json!({"maxUnavailable": 1, "maxSurge": 0, "partition": 2}));
        assert_eq!(steps(&lws, None, &States::new(), false), Steps { partition: 2, replicas: 4, max_unavailable: 1 });
        assert_eq!(steps(&lws, Some(&leaders(4, 2, 4)), &states("oonn"), false).partition, 2);
    }

    #[test]
    fn absent_groups_are_not_iterated() {
        let lws = lws(i32::MAX, &json!({"maxUnavailable": "100%", "maxSurge": "100%"}));
        let all = i32::MAX;
        for (partition, annotated) in [(all, all), (7, all), (0, 5)] {
            let steps = steps(&lws, Some(&leaders(all, partition, annotated)), &states("nno"), false);
            assert_eq!((steps.replicas, steps.max_unavailable), (all, all));
        }
    }
}
