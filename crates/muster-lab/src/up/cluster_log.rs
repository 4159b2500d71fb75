//! The events of the cluster as lines of text: what was bound, what is pending and why, what has finished.
//!
//! Pure: pods and groups go in as they are observed, lines come out on request, each fact once. Must not depend on
//! watches, clocks or the terminal.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::keys::{annotations, conditions};
use muster_api::wire::Pod;
use muster_api::wire::condition::Condition;
use serde::Deserialize as _;
use serde_json::Value;

/// The maximum number of lines about groups, and about pods, at once.
const LINES_MAX: usize = 16;
/// The maximum number of names in one line.
const NAMES_MAX: usize = 3;

/// A group by its kind and name.
pub(super) type GroupName = String;

/// The state of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
enum GroupState {
    Pending(String),
    Placed,
    Degraded(String),
    Ended,
}

/// The last observed state of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PodState {
    group: Option<GroupName>,
    node: String,
    ended: bool,
    /// Why it is pending.
    pending: Option<String>,
}

/// What was observed, and which of it is not printed yet.
#[derive(Debug, Default)]
pub(super) struct ClusterLog {
    pods: BTreeMap<String, PodState>,
    groups: BTreeMap<GroupName, GroupState>,
    unprinted_pods: BTreeSet<String>,
    /// In the order of first observation, by an increasing number.
    unprinted_groups: BTreeMap<GroupName, u64>,
    seen: u64,
}

impl ClusterLog {
    /// Observes a pod.
    pub(super) fn observe_pod(&mut self, pod: &Pod) {
        let name = full_name(pod);
        let pending = Condition::find(&pod.status.conditions, conditions::POD_SCHEDULED);
        let pending = pending.filter(|condition| !condition.is_true() && condition.reason != "SchedulingGated");
        let state = PodState {
            group: group_of(pod),
            node: pod.spec.node_name.clone(),
            ended: matches!(&*pod.status.phase, "Succeeded" | "Failed"),
            pending: pending.map(|condition| condition.message.clone()),
        };
        // Changes of a member are reported for its group, if there is one.
        let is_alone =
            state.group.as_ref().is_none_or(|group| !self.groups.contains_key(group) && state.pending.is_some());
        if is_alone && self.pods.get(&name).unwrap_or(&PodState::default()) != &state {
            self.unprinted_pods.insert(name.clone());
        }
        self.pods.insert(name, state);
    }

    /// Observes the deletion of a pod.
    pub(super) fn pod_deleted(&mut self, pod: &Pod) {
        let name = full_name(pod);
        self.pods.remove(&name);
        self.unprinted_pods.remove(&name);
    }

    /// Observes a group object of any kind.
    pub(super) fn observe_group(&mut self, object: &Value) {
        for (name, list) in instances(object) {
            let Some(fare) = GroupState::of(&list) else { continue };
            if self.groups.get(&name) != Some(&fare) {
                self.groups.insert(name.clone(), fare);
                self.seen += 1;
                self.unprinted_groups.insert(name, self.seen);
            }
        }
    }

    /// Observes the deletion of a group object.
    pub(super) fn group_deleted(&mut self, object: &Value) {
        for (name, _) in instances(object) {
            self.groups.remove(&name);
            self.unprinted_groups.remove(&name);
        }
    }

    /// The lines since the last call.
    pub(super) fn take_lines(&mut self) -> Vec<String> {
        let mut groups: Vec<(u64, GroupName)> =
            std::mem::take(&mut self.unprinted_groups).into_iter().map(|(name, seen)| (seen, name)).collect();
        groups.sort_unstable();
        // A line requires a pass over all pods.
        let more = groups.len().saturating_sub(LINES_MAX);
        groups.truncate(LINES_MAX);
        let mut lines: Vec<String> = groups.iter().filter_map(|(_, name)| self.group_line(name)).collect();
        if more > 0 {
            lines.push(format!("... and {more} more groups"));
        }
        lines.extend(self.pod_lines().into_iter().take(LINES_MAX));
        lines
    }

    fn group_line(&self, name: &GroupName) -> Option<String> {
        Some(match self.groups.get(name)? {
            GroupState::Pending(why) => format!("{name} waits: {why}"),
            GroupState::Degraded(why) => format!("{name} is degraded: {why}"),
            GroupState::Ended => format!("{name} has ended"),
            GroupState::Placed => {
                let placed = self.pods.values().filter(|pod| pod.group.as_ref() == Some(name) && !pod.node.is_empty());
                let nodes: BTreeSet<&str> = placed.clone().map(|pod| &*pod.node).collect();
                format!("{name} is placed: {} on {}", count(placed.count(), "pod"), count(nodes.len(), "node"))
            }
        })
    }

    /// Pods without a group; those with the same change share a line.
    fn pod_lines(&mut self) -> Vec<String> {
        let mut by_state: BTreeMap<(u8, String), Vec<String>> = BTreeMap::new();
        for name in std::mem::take(&mut self.unprinted_pods) {
            let Some(pod) = self.pods.get(&name) else { continue };
            let (place, state) = match (pod.ended, &*pod.node, &pod.pending) {
                (true, ..) => (name, (2, "ended".to_owned())),
                (false, "", Some(why)) => (name, (1, format!("waiting: {why}"))),
                (false, "", None) => continue,
                (false, node, _) => (format!("{name} on {node}"), (0, "placed".to_owned())),
            };
            by_state.entry(state).or_default().push(place);
        }
        let printed = by_state.into_iter().map(|((_, what), names)| {
            let shown = names.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = names.len().saturating_sub(NAMES_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let (what, why) =
                what.split_once(": ").map_or((&*what, String::new()), |(what, why)| (what, format!(": {why}")));
            format!("{} {what} ({shown}{more}){why}", count(names.len(), "pod"))
        });
        printed.collect()
    }
}

impl GroupState {
    fn of(list: &[Condition]) -> Option<Self> {
        let of = |kind: &str| {
            let native = format!("{}{kind}", conditions::NATIVE_PREFIX);
            Condition::find(list, kind).or_else(|| list.iter().find(|one| one.kind == native))
        };
        if of(conditions::COMPLETED).is_some_and(Condition::is_true) {
            return Some(GroupState::Ended);
        }
        if let Some(degraded) = of(conditions::DEGRADED).filter(|condition| condition.is_true()) {
            return Some(GroupState::Degraded(degraded.message.clone()));
        }
        let scheduled =
            of(conditions::POD_GROUP_SCHEDULED).or_else(|| of(conditions::POD_GROUP_INITIALLY_SCHEDULED))?;
        Some(if scheduled.is_true() { GroupState::Placed } else { GroupState::Pending(scheduled.message.clone()) })
    }
}

/// The groups that an object defines, with the conditions of each.
fn instances(object: &Value) -> Vec<(GroupName, Vec<Condition>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let read = |value: &Value| Vec::<Condition>::deserialize(value).unwrap_or_default();
    let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    let native = text(&object["apiVersion"]).starts_with("scheduling.k8s.io/");
    if object["kind"] != "Workload" {
        let name = if native { native_name(&namespace, &name) } else { pod_group_name(&namespace, &name) };
        return vec![(name, read(&object["status"]["conditions"]))];
    }
    let groups = object["status"]["podGroups"].as_array().into_iter().flatten();
    groups
        .map(|group| {
            let key = text(&group["replicaKey"]);
            (workload_name(&namespace, &name, &text(&group["name"]), &key), read(&group["conditions"]))
        })
        .collect()
}

fn group_of(pod: &Pod) -> Option<GroupName> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(name) = pod.spec.scheduling_group.as_ref().and_then(|group| group.pod_group_name.as_deref()) {
        return Some(native_name(namespace, name));
    }
    let written = pod.metadata.annotations.as_ref()?;
    let group = written.get(annotations::POD_GROUP)?;
    Some(match written.get(annotations::WORKLOAD) {
        None => pod_group_name(namespace, group),
        Some(workload) => {
            let key = written.get(annotations::REPLICA_KEY).map_or("", String::as_str);
            workload_name(namespace, workload, group, key)
        }
    })
}

fn pod_group_name(namespace: &str, name: &str) -> GroupName {
    format!("PodGroup {namespace}/{name}")
}

fn native_name(namespace: &str, name: &str) -> GroupName {
    format!("native PodGroup {namespace}/{name}")
}

fn workload_name(namespace: &str, workload: &str, group: &str, key: &str) -> GroupName {
    let key = if key.is_empty() { String::new() } else { format!(" ({key})") };
    format!("Workload {namespace}/{workload}, group {group}{key}")
}

fn full_name(pod: &Pod) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&pod.metadata.namespace), part(&pod.metadata.name))
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, group: Option<&str>, node: &str, phase: &str, pending: &str) -> Pod {
        let annotations = group.map(|group| json!({"muster.dev/pod-group": group}));
        let conditions =
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": pending}]);
        let conditions = if pending.is_empty() { json!([]) } else { conditions };
        serde_json::from_value(json!({
            "metadata": {"namespace": "d", "name": name, "annotations": annotations},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase, "conditions": conditions},
        }))
        .unwrap()
    }

    fn group(name: &str, conditions: &Value) -> Value {
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup", "metadata": {"namespace": "d", "name": name},
            "status": {"conditions": conditions}})
    }

    #[test]
    fn each_group_state_is_reported_once() {
        let mut log = ClusterLog::default();
        for number in 0..4 {
            log.observe_pod(&pod(&format!("a-{number}"), Some("a"), &format!("n-{}", number / 2), "Running", ""));
        }
        let pending = json!([{"type": "PodGroupScheduled", "status": "False", "message": "2 of 4 fit"}]);
        log.observe_group(&group("a", &pending));
        assert_eq!(log.take_lines(), ["PodGroup d/a waits: 2 of 4 fit"]);
        log.observe_group(&group("a", &pending));
        assert!(log.take_lines().is_empty());
        let placed = json!({"type": "PodGroupScheduled", "status": "True"});
        log.observe_group(&group("a", &json!([placed])));
        assert_eq!(log.take_lines(), ["PodGroup d/a is placed: 4 pods on 2 nodes"]);
        log.observe_group(&group("a", &json!([placed, {"type": "Completed", "status": "True"}])));
        log.observe_group(&group("0", &json!([placed])));
        let expected = ["PodGroup d/a has ended", "PodGroup d/0 is placed: 0 pods on 0 nodes"];
        assert_eq!(log.take_lines(), expected, "in the order of observation");
    }

    #[test]
    fn workload_replicas_and_native_groups_have_distinct_names() {
        let scheduled = json!([{"type": "PodGroupScheduled", "status": "True"}]);
        let workload = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "Workload", "metadata": {"namespace": "d", "name": "w"},
            "status": {"podGroups": [{"name": "g", "replicaKey": "r1", "conditions": scheduled}]}});
        let native = json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"namespace": "d", "name": "w"},
            "status": {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}]}});
        let mut log = ClusterLog::default();
        log.observe_group(&workload);
        log.observe_group(&native);
        let mut member = pod("x", Some("g"), "n", "Running", "");
        let more = [("muster.dev/workload", "w"), ("muster.dev/replica-key", "r1")];
        let written = member.metadata.annotations.as_mut().unwrap();
        written.extend(more.map(|(key, value)| (key.to_owned(), value.to_owned())));
        log.observe_pod(&member);
        let expected = [
            "Workload d/w, group g (r1) is placed: 1 pod on 1 node",
            "native PodGroup d/w is placed: 0 pods on 0 nodes",
        ];
        assert_eq!(log.take_lines(), expected);
    }

    #[test]
    fn single_pods_with_the_same_state_share_a_line() {
        let mut log = ClusterLog::default();
        for number in 0..5 {
            log.observe_pod(&pod(&format!("p-{number}"), None, "n-0", "Pending", ""));
        }
        log.observe_pod(&pod("q", None, "", "Pending", "no room: none"));
        let lines = log.take_lines();
        let expected = [
            "5 pods placed (d/p-0 on n-0, d/p-1 on n-0, d/p-2 on n-0 and 2 more)",
            "1 pod waiting (d/q): no room: none",
        ];
        assert_eq!(lines, expected);
        log.observe_pod(&pod("q", None, "", "Pending", "no room: none"));
        log.observe_pod(&pod("p-0", None, "n-0", "Succeeded", ""));
        log.pod_deleted(&pod("p-1", None, "n-0", "Succeeded", ""));
        assert_eq!(log.take_lines(), ["1 pod ended (d/p-0)"]);
    }

    #[test]
    fn pod_of_an_unknown_group_is_reported_by_itself() {
        let mut log = ClusterLog::default();
        log.observe_pod(&pod("p", Some("nowhere"), "", "Pending", ""));
        assert!(log.take_lines().is_empty());
        log.observe_pod(&pod("p", Some("nowhere"), "", "Pending", "no such object"));
        assert_eq!(log.take_lines(), ["1 pod waiting (d/p): no such object"]);
    }

    #[test]
    fn excess_lines_are_counted() {
        let mut log = ClusterLog::default();
        let pending = json!([{"type": "PodGroupScheduled", "status": "False", "message": "no"}]);
        (0..100).for_each(|number| log.observe_group(&group(&format!("g-{number}"), &pending)));
        let lines = log.take_lines();
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (17, "... and 84 more groups"));
    }
}
