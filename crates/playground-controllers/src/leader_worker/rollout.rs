//! How far an update of a LeaderWorkerSet may go now: how many leaders there are, and which of them keep their template.
//!
//! Invariant: groups are updated from the highest number down, no more at once than may be missing or are there on top.
//! No I/O.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::keys::REPLICAS;
use super::object::{LeaderWorkerSet, rolling, wanted};
use crate::deployment::share;

/// How one group does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupState {
    pub(super) is_ready: bool,
    pub(super) is_updated: bool,
}

/// How groups do, by their number. One that is left out is not there: there may be billions.
pub(super) type States = BTreeMap<i32, GroupState>;

/// What the set of leaders should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// Leaders below this number keep their template.
    pub(super) partition: i32,
    /// How many leaders there are.
    pub(super) replicas: i32,
    /// How many leaders may be missing at once.
    pub(super) max_unavailable: i32,
}

/// The leaders' partition now.
pub(super) fn partition_of(leaders: &StatefulSet) -> i32 {
    let strategy = leaders.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    strategy.and_then(|rolling| rolling.partition).unwrap_or_default()
}

/// How many groups may be on top, and how many may be missing. Never are both zero: that would be a halt.
fn leeway(lws: &LeaderWorkerSet) -> (i32, i32) {
    let (rolling, wanted) = (rolling(lws), wanted(lws));
    let (none, one) = (IntOrString::Int(0), IntOrString::Int(1));
    let surge = share(rolling.max_surge.as_ref().unwrap_or(&none), wanted, true).min(wanted);
    let missing = share(rolling.max_unavailable.as_ref().unwrap_or(&one), wanted, false);
    if surge == 0 && missing == 0 { (0, 1) } else { (surge, missing) }
}

/// What the set of leaders should be. `is_updated` tells of a template that is
/// new now.
pub(super) fn steps(lws: &LeaderWorkerSet, leaders: Option<&StatefulSet>, states: &States, is_updated: bool) -> Steps {
    let (surge, missing) = leeway(lws);
    let (partition, replicas) = match leaders {
        None => (0, wanted(lws)),
        Some(leaders) => next(lws, leaders, states, is_updated),
    };
    let partition = partition.max(rolling(lws).partition.unwrap_or_default());
    Steps { partition, replicas, max_unavailable: surge.saturating_add(missing).max(1) }
}

fn next(lws: &LeaderWorkerSet, leaders: &StatefulSet, states: &States, is_updated: bool) -> (i32, i32) {
    let wanted = wanted(lws);
    let present = leaders.spec.replicas.unwrap_or(1);
    let (surge, missing) = leeway(lws);
    let on_top = |unready: i32| {
        wanted.saturating_add(if unready <= surge { unready.saturating_sub(missing).max(0) } else { surge })
    };
    if is_updated {
        let partition = wanted.min(present);
        return (partition, if present < wanted { wanted } else { on_top(wanted) });
    }
    let partition = partition_of(leaders);
    if partition == 0 && present == wanted {
        return (0, wanted);
    }
    if present < wanted {
        return (partition, wanted);
    }
    let done = states.range(0..wanted.max(0)).filter(|(_, state)| state.is_ready && state.is_updated).count();
    let unready = wanted - done as i32;
    let noted = leaders.annotations().get(REPLICAS).and_then(|text| text.parse::<i32>().ok());
    if noted.is_some_and(|noted| noted != wanted) {
        return (partition.min(wanted.saturating_add(surge)), on_top(unready));
    }
    let step = missing.saturating_add(present - wanted);
    (next_partition(states, present, step, partition), on_top(unready))
}

/// Goes down from the highest number by the step, past groups that are updated or do not work anyway.
fn next_partition(states: &States, present: i32, step: i32, partition: i32) -> i32 {
    let is_done = |at: &i32| states.get(at).is_some_and(|state| state.is_ready && state.is_updated);
    let done = (0..present).rev().take_while(is_done).count() as i32;
    let lowest = (present - done).saturating_sub(step).max(0);
    // A group below that is down already uses up part of the step.
    let down = lowest - states.range(0..lowest).filter(|(_, state)| state.is_ready).count() as i32;
    let next = lowest.saturating_add(down);
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

    fn leaders(replicas: i32, partition: i32, noted: i32) -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": {"annotations": {REPLICAS: noted.to_string()}},
            "spec": {"replicas": replicas, "selector": {}, "template": {},
                     "updateStrategy": {"rollingUpdate": {"partition": partition}}},
        }))
        .unwrap()
    }

    /// `o` is old and works, `n` is new and works, `-` is down, `m` is new and not ready yet.
    fn states(text: &str) -> States {
        let one = |letter: char| GroupState { is_ready: "on".contains(letter), is_updated: "nm".contains(letter) };
        (0..).zip(text.chars().map(one)).collect()
    }

    #[test]
    fn one_group_after_the_other() {
        let lws = lws(4, &json!({"maxUnavailable": 1, "maxSurge": 0}));
        for (partition, groups, expected) in [
            (4, "oooo", (3, 4)),
            (3, "ooo-", (3, 4)),
            (3, "ooom", (3, 4)),
            (3, "ooon", (2, 4)),
            (2, "oomn", (2, 4)),
            (2, "oonn", (1, 4)),
            (0, "nnnn", (0, 4)),
            // One that is down below uses up the step, and is the next to be updated.
            (4, "-ooo", (4, 4)),
        ] {
            let steps = steps(&lws, Some(&leaders(4, partition, 4)), &states(groups), false);
            assert_eq!((steps.partition, steps.replicas), expected, "{groups} at {partition}");
        }
    }

    #[test]
    fn a_new_template_starts_at_the_top() {
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
    fn a_partition_of_the_user_is_kept() {
        let lws = lws(4, &json!({"maxUnavailable": 1, "maxSurge": 0, "partition": 2}));
        assert_eq!(steps(&lws, None, &States::new(), false), Steps { partition: 2, replicas: 4, max_unavailable: 1 });
        assert_eq!(steps(&lws, Some(&leaders(4, 2, 4)), &states("oonn"), false).partition, 2);
    }

    #[test]
    fn billions_of_groups_are_not_gone_through() {
        let lws = lws(i32::MAX, &json!({"maxUnavailable": "100%", "maxSurge": "100%"}));
        let all = i32::MAX;
        for (partition, noted) in [(all, all), (7, all), (0, 5)] {
            let steps = steps(&lws, Some(&leaders(all, partition, noted)), &states("nno"), false);
            assert_eq!((steps.replicas, steps.max_unavailable), (all, all));
        }
    }
}
