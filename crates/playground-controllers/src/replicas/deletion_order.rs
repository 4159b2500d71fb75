//! The order in which surplus pods of a set are deleted.
//!
//! Unassigned, pending, not ready, low deletion cost, colocated with related pods, young, restarted often: the order of
//! the real controller. Ages are compared by powers of two, so that similar pods are ordered by chance (their UID).
//!
//! Invariant: the rank of a pod is a key of its own, so that the order is total. (The real controller compares pairs of
//! pods, which is not transitive where ages are similar and restart counts differ.)

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::pod_record::{PodRecord, node_name, phase, ready_since, restarts, uid};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Sorts the pods by deletion order. `related` are the active pods that count as colocated.
pub(super) fn sort<'a>(
    mut pods: Vec<Arc<PodRecord>>,
    related: impl Iterator<Item = &'a PodRecord>,
    now: Timestamp,
) -> Vec<Arc<PodRecord>> {
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in related {
        *on_node.entry(node_name(pod)).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let colocated = on_node.get(node_name(pod)).copied().unwrap_or_default();
        let age = |time: Option<Timestamp>| time.map(|time| age_magnitude(time, now));
        (
            (
                !node_name(pod).is_empty(),
                phase_rank(pod),
                ready_since(pod).is_some(),
                deletion_cost(pod),
                Reverse(colocated),
            ),
            (age(ready_since(pod)), Reverse(restarts(pod)), age(created(pod))),
            uid(pod).to_owned(),
        )
    });
    pods
}

fn phase_rank(pod: &PodRecord) -> u8 {
    match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

fn deletion_cost(pod: &PodRecord) -> i32 {
    let written = pod.annotations().get(DELETION_COST).map(String::as_str).unwrap_or_default();
    let is_plain = !written.starts_with('+') && (written == "0" || !written.starts_with('0'));
    written.parse().ok().filter(|_| is_plain).unwrap_or_default()
}

fn created(pod: &PodRecord) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// The age as a power of two of nanoseconds.
fn age_magnitude(time: Timestamp, now: Timestamp) -> i64 {
    match now.duration_since(time).as_nanos() {
        age if age > 0 => i64::from(age.ilog2()),
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_clock as clock;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-02T00:00:00Z";

    fn pod(name: &str, change: &Value) -> PodRecord {
        let mut pod = json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": name},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        });
        json_patch::merge(&mut pod, change);
        serde_json::from_value(pod).unwrap()
    }

    fn order(pods: &[PodRecord]) -> Vec<String> {
        let known = pods.iter().cloned().map(Arc::new).collect();
        let sorted = sort(known, pods.iter(), NOW.parse().unwrap());
        sorted.iter().map(|pod| pod.name_any()).collect()
    }

    #[test]
    fn least_advanced_pod_is_deleted_first() {
        let ready_at = |time: &str| json!([{"type": "Ready", "status": "True", "lastTransitionTime": time}]);
        let pods = [
            pod("old", &json!({})),
            pod("older-but-restarted", &json!({"status": {"containerStatuses": [{"restartCount": 3}]}})),
            pod("young", &json!({"status": {"conditions": ready_at("2026-01-01T23:59:00Z")}})),
            pod("colocated-1", &json!({"spec": {"nodeName": "shared"}})),
            pod("colocated-2", &json!({"spec": {"nodeName": "shared"}})),
            pod("cheap", &json!({"metadata": {"annotations": {DELETION_COST: "-1"}}})),
            pod("costly", &json!({"metadata": {"annotations": {DELETION_COST: "7"}}})),
            pod("not-ready", &json!({"status": {"conditions": []}})),
            pod("pending", &json!({"status": {"phase": "Pending", "conditions": []}})),
            pod("unbound", &json!({"spec": {"nodeName": null}, "status": {"phase": "Pending", "conditions": []}})),
        ];
        let expected = [
            "unbound",
            "pending",
            "not-ready",
            "cheap",
            "colocated-1",
            "colocated-2",
            "young",
            "older-but-restarted",
            "old",
            "costly",
        ];
        assert_eq!(order(&pods), expected);
    }

    #[test]
    fn similar_ages_are_ordered_by_uid() {
        let at = |time: &str| json!({"metadata": {"creationTimestamp": time}, "status": {"conditions": []}});
        let pods = [pod("b", &at("2026-01-01T00:00:00Z")), pod("a", &at("2026-01-01T02:00:00Z"))];
        assert_eq!(order(&pods), ["a", "b"], "a day and 22 hours are similar, and a has the lower UID");
        let pods = [pod("a", &at("2026-01-01T00:00:00Z")), pod("b", &at("2026-01-01T02:00:00Z"))];
        assert_eq!(order(&pods), ["a", "b"]);
        let pods = [pod("a", &at("2026-01-01T00:00:00Z")), pod("b", &at("2026-01-01T23:00:00Z"))];
        assert_eq!(order(&pods), ["b", "a"]);
    }
    /// Times that are equal, similar and far apart, restarts in the opposite order, and UIDs in no order.
    fn mixed(count: u64) -> Vec<PodRecord> {
        let time = |number: u64| {
            let age_seconds = [1, 2, 2, 3, 50, 60, 60, 3000, 4000, 80_000][(number % 10) as usize];
            clock::seconds(clock::after(NOW.parse().unwrap(), -age_seconds))
        };
        let pods = (0..count).map(|number| {
            let chance = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": time(chance >> 7)}]);
            let restarts = json!([{"restartCount": (chance >> 13) % 3}]);
            let metadata = json!({"creationTimestamp": time(chance >> 21)});
            let status = json!({"conditions": ready, "containerStatuses": restarts});
            pod(&format!("{chance:016x}"), &json!({"metadata": metadata, "status": status}))
        });
        pods.collect()
    }

    #[test]
    fn order_does_not_depend_on_the_input_order() {
        let mut pods = mixed(200);
        let expected = order(&pods);
        for turn in 0..20 {
            pods.rotate_left(37);
            if turn % 2 == 0 {
                pods.reverse();
            }
            assert_eq!(order(&pods), expected);
        }
        for pair in pods.windows(2) {
            let place = |pod: &PodRecord| expected.iter().position(|name| *name == pod.name_any());
            let is_first = place(&pair[0]) < place(&pair[1]);
            assert_eq!(order(pair)[0] == pair[0].name_any(), is_first, "a pair has the same order as among all");
        }
    }
}
