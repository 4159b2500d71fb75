//! What happens on the cluster, as lines for people: who was placed, who waits and why, who has ended.
//!
//! Pure: pods and groups go in as they are seen, lines come out when they are asked for, each fact once.
//! It must not know watches, clocks or the terminal.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::keys::{annotations, conditions};
use muster_api::wire::Pod;
use muster_api::wire::condition::Condition;
use serde::Deserialize as _;
use serde_json::Value;

/// The most lines about groups, and about pods, that are told at once.
const LINES_MAX: usize = 16;
/// The most names in one line.
const NAMES_MAX: usize = 3;

/// A group by its kind and name.
pub(super) type GroupName = String;

/// How a group fares.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fare {
    Waits(String),
    Placed,
    Degraded(String),
    Ended,
}

/// What is known of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Note {
    group: Option<GroupName>,
    node: String,
    ended: bool,
    /// Why it waits.
    waits: Option<String>,
}

/// What has been seen, and what of it is yet to be told.
#[derive(Debug, Default)]
pub(super) struct Story {
    pods: BTreeMap<String, Note>,
    groups: BTreeMap<GroupName, Fare>,
    news_of_pods: BTreeSet<String>,
    /// In the order in which they came in, by a number that only grows.
    news_of_groups: BTreeMap<GroupName, u64>,
    seen: u64,
}

impl Story {
    /// Takes in a pod as it is now.
    pub(super) fn see_pod(&mut self, pod: &Pod) {
        let name = full_name(pod);
        let waits = Condition::find(&pod.status.conditions, conditions::POD_SCHEDULED);
        let waits = waits.filter(|condition| !condition.is_true() && condition.reason != "SchedulingGated");
        let note = Note {
            group: group_of(pod),
            node: pod.spec.node_name.clone(),
            ended: matches!(&*pod.status.phase, "Succeeded" | "Failed"),
            waits: waits.map(|condition| condition.message.clone()),
        };
        // What a member does is told of its group, if there is one.
        let is_alone = note.group.as_ref().is_none_or(|group| !self.groups.contains_key(group) && note.waits.is_some());
        if is_alone && self.pods.get(&name).unwrap_or(&Note::default()) != &note {
            self.news_of_pods.insert(name.clone());
        }
        self.pods.insert(name, note);
    }

    /// A pod is gone.
    pub(super) fn lose_pod(&mut self, pod: &Pod) {
        let name = full_name(pod);
        self.pods.remove(&name);
        self.news_of_pods.remove(&name);
    }

    /// Takes in a group object, whatever its kind, as it is now.
    pub(super) fn see_group(&mut self, object: &Value) {
        for (name, list) in instances(object) {
            let Some(fare) = Fare::of(&list) else { continue };
            if self.groups.get(&name) != Some(&fare) {
                self.groups.insert(name.clone(), fare);
                self.seen += 1;
                self.news_of_groups.insert(name, self.seen);
            }
        }
    }

    /// A group object is gone.
    pub(super) fn lose_group(&mut self, object: &Value) {
        for (name, _) in instances(object) {
            self.groups.remove(&name);
            self.news_of_groups.remove(&name);
        }
    }

    /// What is new since the last time.
    pub(super) fn take_lines(&mut self) -> Vec<String> {
        let mut groups: Vec<(u64, GroupName)> =
            std::mem::take(&mut self.news_of_groups).into_iter().map(|(name, seen)| (seen, name)).collect();
        groups.sort_unstable();
        // A line costs a look at every pod.
        let more = groups.len().saturating_sub(LINES_MAX);
        groups.truncate(LINES_MAX);
        let mut lines: Vec<String> = groups.iter().filter_map(|(_, name)| self.tell_group(name)).collect();
        if more > 0 {
            lines.push(format!("... and {more} more groups"));
        }
        lines.extend(self.tell_pods().into_iter().take(LINES_MAX));
        lines
    }

    fn tell_group(&self, name: &GroupName) -> Option<String> {
        Some(match self.groups.get(name)? {
            Fare::Waits(why) => format!("{name} waits: {why}"),
            Fare::Degraded(why) => format!("{name} is degraded: {why}"),
            Fare::Ended => format!("{name} has ended"),
            Fare::Placed => {
                let placed = self.pods.values().filter(|pod| pod.group.as_ref() == Some(name) && !pod.node.is_empty());
                let nodes: BTreeSet<&str> = placed.clone().map(|pod| &*pod.node).collect();
                format!("{name} is placed: {} on {}", count(placed.count(), "pod"), count(nodes.len(), "node"))
            }
        })
    }

    /// Pods of no group, those with the same news in one line.
    fn tell_pods(&mut self) -> Vec<String> {
        let mut alike: BTreeMap<(u8, String), Vec<String>> = BTreeMap::new();
        for name in std::mem::take(&mut self.news_of_pods) {
            let Some(pod) = self.pods.get(&name) else { continue };
            let (place, said) = match (pod.ended, &*pod.node, &pod.waits) {
                (true, ..) => (name, (2, "ended".to_owned())),
                (false, "", Some(why)) => (name, (1, format!("waiting: {why}"))),
                (false, "", None) => continue,
                (false, node, _) => (format!("{name} on {node}"), (0, "placed".to_owned())),
            };
            alike.entry(said).or_default().push(place);
        }
        let told = alike.into_iter().map(|((_, what), names)| {
            let shown = names.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = names.len().saturating_sub(NAMES_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let (what, why) =
                what.split_once(": ").map_or((&*what, String::new()), |(what, why)| (what, format!(": {why}")));
            format!("{} {what} ({shown}{more}){why}", count(names.len(), "pod"))
        });
        told.collect()
    }
}

impl Fare {
    fn of(list: &[Condition]) -> Option<Self> {
        let of = |kind: &str| {
            let native = format!("{}{kind}", conditions::NATIVE_PREFIX);
            Condition::find(list, kind).or_else(|| list.iter().find(|one| one.kind == native))
        };
        if of(conditions::COMPLETED).is_some_and(Condition::is_true) {
            return Some(Fare::Ended);
        }
        if let Some(degraded) = of(conditions::DEGRADED).filter(|condition| condition.is_true()) {
            return Some(Fare::Degraded(degraded.message.clone()));
        }
        let scheduled =
            of(conditions::POD_GROUP_SCHEDULED).or_else(|| of(conditions::POD_GROUP_INITIALLY_SCHEDULED))?;
        Some(if scheduled.is_true() { Fare::Placed } else { Fare::Waits(scheduled.message.clone()) })
    }
}

/// The groups that an object stands for, with the conditions of each.
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

    fn pod(name: &str, group: Option<&str>, node: &str, phase: &str, waits: &str) -> Pod {
        let annotations = group.map(|group| json!({"muster.dev/pod-group": group}));
        let conditions =
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": waits}]);
        let conditions = if waits.is_empty() { json!([]) } else { conditions };
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
    fn a_group_is_told_by_how_it_fares_each_fact_once() {
        let mut story = Story::default();
        for number in 0..4 {
            story.see_pod(&pod(&format!("a-{number}"), Some("a"), &format!("n-{}", number / 2), "Running", ""));
        }
        let waits = json!([{"type": "PodGroupScheduled", "status": "False", "message": "2 of 4 fit"}]);
        story.see_group(&group("a", &waits));
        assert_eq!(story.take_lines(), ["PodGroup d/a waits: 2 of 4 fit"]);
        story.see_group(&group("a", &waits));
        assert!(story.take_lines().is_empty());
        let placed = json!({"type": "PodGroupScheduled", "status": "True"});
        story.see_group(&group("a", &json!([placed])));
        assert_eq!(story.take_lines(), ["PodGroup d/a is placed: 4 pods on 2 nodes"]);
        story.see_group(&group("a", &json!([placed, {"type": "Completed", "status": "True"}])));
        story.see_group(&group("0", &json!([placed])));
        let expected = ["PodGroup d/a has ended", "PodGroup d/0 is placed: 0 pods on 0 nodes"];
        assert_eq!(story.take_lines(), expected, "in the order of their coming");
    }

    #[test]
    fn replicas_of_a_workload_and_native_groups_have_names_of_their_own() {
        let scheduled = json!([{"type": "PodGroupScheduled", "status": "True"}]);
        let workload = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "Workload", "metadata": {"namespace": "d", "name": "w"},
            "status": {"podGroups": [{"name": "g", "replicaKey": "r1", "conditions": scheduled}]}});
        let native = json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"namespace": "d", "name": "w"},
            "status": {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}]}});
        let mut story = Story::default();
        story.see_group(&workload);
        story.see_group(&native);
        let mut member = pod("x", Some("g"), "n", "Running", "");
        let more = [("muster.dev/workload", "w"), ("muster.dev/replica-key", "r1")];
        let written = member.metadata.annotations.as_mut().unwrap();
        written.extend(more.map(|(key, value)| (key.to_owned(), value.to_owned())));
        story.see_pod(&member);
        let expected = [
            "Workload d/w, group g (r1) is placed: 1 pod on 1 node",
            "native PodGroup d/w is placed: 0 pods on 0 nodes",
        ];
        assert_eq!(story.take_lines(), expected);
    }

    #[test]
    fn lone_pods_with_the_same_news_share_a_line() {
        let mut story = Story::default();
        for number in 0..5 {
            story.see_pod(&pod(&format!("p-{number}"), None, "n-0", "Pending", ""));
        }
        story.see_pod(&pod("q", None, "", "Pending", "no room: none"));
        let lines = story.take_lines();
        let expected = [
            "5 pods placed (d/p-0 on n-0, d/p-1 on n-0, d/p-2 on n-0 and 2 more)",
            "1 pod waiting (d/q): no room: none",
        ];
        assert_eq!(lines, expected);
        story.see_pod(&pod("q", None, "", "Pending", "no room: none"));
        story.see_pod(&pod("p-0", None, "n-0", "Succeeded", ""));
        story.lose_pod(&pod("p-1", None, "n-0", "Succeeded", ""));
        assert_eq!(story.take_lines(), ["1 pod ended (d/p-0)"]);
    }

    #[test]
    fn a_pod_whose_group_nobody_knows_is_told_by_itself() {
        let mut story = Story::default();
        story.see_pod(&pod("p", Some("nowhere"), "", "Pending", ""));
        assert!(story.take_lines().is_empty());
        story.see_pod(&pod("p", Some("nowhere"), "", "Pending", "no such object"));
        assert_eq!(story.take_lines(), ["1 pod waiting (d/p): no such object"]);
    }

    #[test]
    fn a_flood_is_counted() {
        let mut story = Story::default();
        let waits = json!([{"type": "PodGroupScheduled", "status": "False", "message": "no"}]);
        (0..100).for_each(|number| story.see_group(&group(&format!("g-{number}"), &waits)));
        let lines = story.take_lines();
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (17, "... and 84 more groups"));
    }
}
