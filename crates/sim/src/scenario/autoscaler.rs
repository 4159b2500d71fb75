//! A model of an autoscaler without any effect: it records for which pods Cluster Autoscaler and Karpenter would add
//! nodes, and since when.
//!
//! Both act on a pod that is not bound, nominated or deleted and whose `PodScheduled` reason is `Unschedulable`. The
//! model leaves out that Cluster Autoscaler ignores priorities below -10, and which nodes either would add.
//! Invariant: a pod that leaves the demand and returns is counted twice, if it was observed in between. Must not depend
//! on what is expected.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_api::keys::{conditions, pod_reasons};
use muster_api::wire::Pod;
use muster_api::wire::condition::Condition;
use tokio::time::Instant;

use super::report::shown;
use super::snapshot::{PodKey, key_of};

/// The maximum time between identical pods of one burst: pods that appear later are provisioned for separately.
const BURST: Duration = Duration::from_secs(5);

/// Whether autoscalers would add a node for this pod.
pub(super) fn is_demand(pod: &Pod) -> bool {
    let scheduled = Condition::find(&pod.status.conditions, conditions::POD_SCHEDULED);
    pod.spec.node_name.is_empty()
        && pod.status.nominated_node_name.is_empty()
        && pod.metadata.deletion_timestamp.is_none()
        && scheduled.is_some_and(|one| one.status == "False" && one.reason == pod_reasons::UNSCHEDULABLE)
}

/// The demand observed since the scenario began.
#[derive(Debug, Default)]
pub(super) struct Autoscaler {
    pods: BTreeMap<PodKey, DemandPeriods>,
}

/// When a pod became demand.
#[derive(Debug)]
struct DemandPeriods {
    count: u32,
    first: Instant,
    is_inside: bool,
}

impl Autoscaler {
    /// Observes all pods.
    pub(super) fn observe<'a>(&mut self, now: Instant, pods: impl Iterator<Item = &'a Pod>) {
        let demand: BTreeSet<PodKey> = pods.filter(|pod| is_demand(pod)).map(key_of).collect();
        for (key, periods) in &mut self.pods {
            periods.is_inside &= demand.contains(key);
        }
        for key in demand {
            let periods = self.pods.entry(key).or_insert(DemandPeriods { count: 0, first: now, is_inside: false });
            periods.count += u32::from(!periods.is_inside);
            periods.is_inside = true;
        }
    }

    /// The pods that became demand more than once, each with the count.
    pub(super) fn demanded_again(&self, pods: &[PodKey]) -> Vec<String> {
        let again = |key: &PodKey| {
            let count = self.pods.get(key).map_or(0, |periods| periods.count);
            (count > 1).then(|| format!("{} became demand {count} times", name(key)))
        };
        pods.iter().filter_map(again).collect()
    }

    /// How these pods became demand, if it was not in one burst.
    pub(super) fn not_one_burst(&self, pods: &[PodKey]) -> Option<String> {
        let came = || pods.iter().filter_map(|key| Some((self.pods.get(key)?.first, key)));
        let ((first, early), (last, late)) = (came().min()?, came().max()?);
        let span = last - first;
        (span > BURST).then(|| {
            format!(
                "they became demand over {}, {} first and {} last; one burst is at most {}",
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

    /// Like a merge patch without removals.
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
    fn only_unbound_unschedulable_pods_are_demand() {
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
    fn returning_pod_is_counted_twice() {
        let mut autoscaler = Autoscaler::default();
        let now = Instant::now();
        let keys = [key_of(&demand("a")), key_of(&demand("b"))];
        let both = [demand("a"), demand("b")];
        autoscaler.observe(now, both.iter());
        autoscaler.observe(now, both.iter());
        assert!(autoscaler.demanded_again(&keys).is_empty(), "a pod that stays is counted once");
        autoscaler.observe(now, [waiting("a"), demand("b")].iter());
        assert!(autoscaler.demanded_again(&keys).is_empty(), "the pod has not returned yet");
        autoscaler.observe(now, both.iter());
        assert_eq!(autoscaler.demanded_again(&keys), ["ns/a became demand 2 times"]);
        autoscaler.observe(now, [].iter());
        autoscaler.observe(now, both.iter());
        assert_eq!(autoscaler.demanded_again(&keys), ["ns/a became demand 3 times", "ns/b became demand 2 times"]);
        let namesake = pod("a", &json!({"metadata": {"uid": "another"}}));
        autoscaler.observe(now, [namesake.clone()].iter());
        assert!(autoscaler.demanded_again(&[key_of(&namesake)]).is_empty(), "a pod of the same name is another pod");
    }

    #[test]
    fn burst_takes_at_most_five_seconds() {
        let mut autoscaler = Autoscaler::default();
        let began = Instant::now();
        let keys: Vec<PodKey> = ["a", "b", "c"].map(|name| key_of(&demand(name))).into();
        assert_eq!(autoscaler.not_one_burst(&keys), None, "no demand");
        autoscaler.observe(began, [demand("b")].iter());
        autoscaler.observe(began + BURST, [demand("b"), demand("a")].iter());
        assert_eq!(autoscaler.not_one_burst(&keys), None);
        autoscaler.observe(began + BURST * 2, [demand("a"), demand("b"), demand("c")].iter());
        let expected = "they became demand over 10.0s, ns/b first and ns/c last; one burst is at most 5.0s";
        assert_eq!(autoscaler.not_one_burst(&keys).as_deref(), Some(expected));
        assert_eq!(autoscaler.not_one_burst(&keys[..2]), None, "others do not count");
    }
}
