//! Which pods of a set go first when there are too many.
//!
//! Without a place, pending, not ready, cheap to delete, in company on their node, young, often restarted: in this order,
//! as the real controller has it. Ages count by powers of two, so that like pods go by chance (their UID).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::clients::pod_card::{PodCard, node_name, phase, ready_since, restarts, uid};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The pods with those first that go first. `company` are the active pods that count when a node is shared.
pub(super) fn first_to_go(mut pods: Vec<PodCard>, company: &[PodCard], now: Timestamp) -> Vec<PodCard> {
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in company {
        *on_node.entry(node_name(pod)).or_default() += 1;
    }
    let crowd = |pod: &PodCard| on_node.get(node_name(pod)).copied().unwrap_or_default();
    pods.sort_by(|a, b| {
        (!node_name(a).is_empty())
            .cmp(&!node_name(b).is_empty())
            .then_with(|| progress(a).cmp(&progress(b)))
            .then_with(|| ready_since(a).is_some().cmp(&ready_since(b).is_some()))
            .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
            .then_with(|| crowd(b).cmp(&crowd(a)))
            .then_with(|| by_age(ready_since(a), ready_since(b), a, b, now))
            .then_with(|| restarts(b).cmp(&restarts(a)))
            .then_with(|| by_age(created(a), created(b), a, b, now))
    });
    pods
}

fn progress(pod: &PodCard) -> u8 {
    match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

fn deletion_cost(pod: &PodCard) -> i32 {
    let written = pod.annotations().get(DELETION_COST).map(String::as_str).unwrap_or_default();
    let is_plain = !written.starts_with('+') && (written == "0" || !written.starts_with('0'));
    written.parse().ok().filter(|_| is_plain).unwrap_or_default()
}

fn created(pod: &PodCard) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// The younger one is first; of about the same age, the one with the lower UID.
fn by_age(a: Option<Timestamp>, b: Option<Timestamp>, of_a: &PodCard, of_b: &PodCard, now: Timestamp) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (Some(a), Some(b)) if a == b => Ordering::Equal,
        (Some(a), Some(b)) => magnitude(a, now).cmp(&magnitude(b, now)).then_with(|| uid(of_a).cmp(uid(of_b))),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// The age in powers of two of a nanosecond.
fn magnitude(time: Timestamp, now: Timestamp) -> i64 {
    match now.duration_since(time).as_nanos() {
        age if age > 0 => i64::from(age.ilog2()),
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-02T00:00:00Z";

    fn pod(name: &str, change: &Value) -> PodCard {
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

    fn order(pods: &[PodCard]) -> Vec<String> {
        let sorted = first_to_go(pods.to_vec(), pods, NOW.parse().unwrap());
        sorted.iter().map(ResourceExt::name_any).collect()
    }

    #[test]
    fn what_is_worth_least_goes_first() {
        let ready_at = |time: &str| json!([{"type": "Ready", "status": "True", "lastTransitionTime": time}]);
        let pods = [
            pod("old", &json!({})),
            pod("older-but-restarted", &json!({"status": {"containerStatuses": [{"restartCount": 3}]}})),
            pod("young", &json!({"status": {"conditions": ready_at("2026-01-01T23:59:00Z")}})),
            pod("company-1", &json!({"spec": {"nodeName": "shared"}})),
            pod("company-2", &json!({"spec": {"nodeName": "shared"}})),
            pod("cheap", &json!({"metadata": {"annotations": {DELETION_COST: "-1"}}})),
            pod("dear", &json!({"metadata": {"annotations": {DELETION_COST: "7"}}})),
            pod("not-ready", &json!({"status": {"conditions": []}})),
            pod("pending", &json!({"status": {"phase": "Pending", "conditions": []}})),
            pod("unbound", &json!({"spec": {"nodeName": null}, "status": {"phase": "Pending", "conditions": []}})),
        ];
        let expected = [
            "unbound",
            "pending",
            "not-ready",
            "cheap",
            "company-1",
            "company-2",
            "young",
            "older-but-restarted",
            "old",
            "dear",
        ];
        assert_eq!(order(&pods), expected);
    }

    #[test]
    fn about_the_same_age_is_chance() {
        let at = |time: &str| json!({"metadata": {"creationTimestamp": time}, "status": {"conditions": []}});
        let pods = [pod("b", &at("2026-01-01T00:00:00Z")), pod("a", &at("2026-01-01T02:00:00Z"))];
        assert_eq!(order(&pods), ["a", "b"], "a day and 22 hours are alike, and a is the lower UID");
        let pods = [pod("a", &at("2026-01-01T00:00:00Z")), pod("b", &at("2026-01-01T02:00:00Z"))];
        assert_eq!(order(&pods), ["a", "b"]);
        let pods = [pod("a", &at("2026-01-01T00:00:00Z")), pod("b", &at("2026-01-01T23:00:00Z"))];
        assert_eq!(order(&pods), ["b", "a"]);
    }
}
