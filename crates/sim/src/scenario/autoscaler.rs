//! An autoscaler that buys nothing: it keeps which pods Cluster Autoscaler and Karpenter would buy nodes for, and since
//! when.
//!
//! Both act on a pod that nobody has placed, nominated or deleted and of which a scheduler has said `Unschedulable`. That
//! is all the model knows: that Cluster Autoscaler passes over priorities below -10, and what either would buy, is left
//! out.
//! Invariant: a pod that leaves the demand and comes back is counted twice, if it was looked at in between.
//! It must not know what is expected.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_api::keys::{conditions, pod_reasons};
use muster_api::wire::Pod;
use muster_api::wire::condition::Condition;
use tokio::time::Instant;

use super::report::shown;
use super::snapshot::{PodKey, key_of};

/// How long like pods may take to come: what comes in pieces is bought for in pieces.
const BURST: Duration = Duration::from_secs(5);

/// Whether autoscalers would buy a node for this pod.
pub(super) fn is_demand(pod: &Pod) -> bool {
    let scheduled = Condition::find(&pod.status.conditions, conditions::POD_SCHEDULED);
    pod.spec.node_name.is_empty()
        && pod.status.nominated_node_name.is_empty()
        && pod.metadata.deletion_timestamp.is_none()
        && scheduled.is_some_and(|one| one.status == "False" && one.reason == pod_reasons::UNSCHEDULABLE)
}

/// What was seen of the demand since the scenario began.
#[derive(Debug, Default)]
pub(super) struct Autoscaler {
    pods: BTreeMap<PodKey, Visits>,
}

/// How a pod came into the demand.
#[derive(Debug)]
struct Visits {
    count: u32,
    first: Instant,
    is_inside: bool,
}

impl Autoscaler {
    /// Looks at all pods there are.
    pub(super) fn look<'a>(&mut self, now: Instant, pods: impl Iterator<Item = &'a Pod>) {
        let demand: BTreeSet<PodKey> = pods.filter(|pod| is_demand(pod)).map(key_of).collect();
        for (key, visits) in &mut self.pods {
            visits.is_inside &= demand.contains(key);
        }
        for key in demand {
            let visits = self.pods.entry(key).or_insert(Visits { count: 0, first: now, is_inside: false });
            visits.count += u32::from(!visits.is_inside);
            visits.is_inside = true;
        }
    }

    /// Those of these pods that came more than once, each with how often.
    pub(super) fn came_again(&self, pods: &[PodKey]) -> Vec<String> {
        let again = |key: &PodKey| {
            let count = self.pods.get(key).map_or(0, |visits| visits.count);
            (count > 1).then(|| format!("{} came {count} times", name(key)))
        };
        pods.iter().filter_map(again).collect()
    }

    /// How these pods came, if that was not one burst.
    pub(super) fn straggled(&self, pods: &[PodKey]) -> Option<String> {
        let came = || pods.iter().filter_map(|key| Some((self.pods.get(key)?.first, key)));
        let ((first, early), (last, late)) = (came().min()?, came().max()?);
        let span = last - first;
        (span > BURST).then(|| {
            format!(
                "they came over {}, {} first and {} last; one burst is at most {}",
                shown(span),
                name(early),
                name(late),
                shown(BURST)
            )
        })
    }
}

fn name((namespace, name, _): &PodKey) -> String {
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, change: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"namespace": "ns", "name": name, "uid": name},
            "spec": {},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        });
        json_patch(&mut pod, change);
        serde_json::from_value(pod).unwrap()
    }

    /// As a merge patch does it, without removals.
    fn json_patch(value: &mut Value, change: &Value) {
        match change {
            Value::Object(fields) => fields.iter().for_each(|(key, change)| json_patch(&mut value[key], change)),
            other => value.clone_from(other),
        }
    }

    fn demand(name: &str) -> Pod {
        pod(name, &json!({}))
    }

    fn waiting(name: &str) -> Pod {
        let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "WaitingForMembers"}]);
        pod(name, &json!({"status": {"conditions": conditions}}))
    }

    #[test]
    fn only_an_unplaced_pod_that_is_unschedulable_is_demand() {
        assert!(is_demand(&demand("a")));
        let scheduled = |status: &str, reason: &str| {
            let condition = json!({"type": "PodScheduled", "status": status, "reason": reason});
            json!({"status": {"conditions": [condition]}})
        };
        for change in [
            json!({"spec": {"nodeName": "n0"}}),
            json!({"status": {"nominatedNodeName": "n0"}}),
            json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}),
            json!({"status": {"conditions": []}}),
            json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Unschedulable"}]}}),
            scheduled("True", "Unschedulable"),
            scheduled("Unknown", "Unschedulable"),
            scheduled("False", "unschedulable"),
            scheduled("False", "SchedulingGated"),
            scheduled("False", "WaitingForVictims"),
        ] {
            assert!(!is_demand(&pod("a", &change)), "{change}");
        }
    }

    #[test]
    fn who_leaves_and_comes_back_came_twice() {
        let mut autoscaler = Autoscaler::default();
        let now = Instant::now();
        let keys = [key_of(&demand("a")), key_of(&demand("b"))];
        let both = [demand("a"), demand("b")];
        autoscaler.look(now, both.iter());
        autoscaler.look(now, both.iter());
        assert!(autoscaler.came_again(&keys).is_empty(), "who stays came once");
        autoscaler.look(now, [waiting("a"), demand("b")].iter());
        assert!(autoscaler.came_again(&keys).is_empty(), "who left has not come back yet");
        autoscaler.look(now, both.iter());
        assert_eq!(autoscaler.came_again(&keys), ["ns/a came 2 times"]);
        autoscaler.look(now, [].iter());
        autoscaler.look(now, both.iter());
        assert_eq!(autoscaler.came_again(&keys), ["ns/a came 3 times", "ns/b came 2 times"]);
        let namesake = pod("a", &json!({"metadata": {"uid": "another"}}));
        autoscaler.look(now, [namesake.clone()].iter());
        assert!(autoscaler.came_again(&[key_of(&namesake)]).is_empty(), "a pod of the same name is another pod");
    }

    #[test]
    fn a_burst_takes_five_seconds_at_most() {
        let mut autoscaler = Autoscaler::default();
        let began = Instant::now();
        let keys: Vec<PodKey> = ["a", "b", "c"].map(|name| key_of(&demand(name))).into();
        assert_eq!(autoscaler.straggled(&keys), None, "nobody came");
        autoscaler.look(began, [demand("b")].iter());
        autoscaler.look(began + BURST, [demand("b"), demand("a")].iter());
        assert_eq!(autoscaler.straggled(&keys), None);
        autoscaler.look(began + BURST * 2, [demand("a"), demand("b"), demand("c")].iter());
        let told = "they came over 10.0s, ns/b first and ns/c last; one burst is at most 5.0s";
        assert_eq!(autoscaler.straggled(&keys).as_deref(), Some(told));
        assert_eq!(autoscaler.straggled(&keys[..2]), None, "others do not count");
    }
}
