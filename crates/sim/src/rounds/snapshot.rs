//! A snapshot of the sets from the API, and what in it differs from the expected settled state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use kube::api::{DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::sets::{JOB_SET, LEADER_WORKER_SET, PAIRS, SET, SIZE, Set};
use super::{Problem, api};

const WORKLOAD: (&str, &str) = ("muster.dev/v1alpha1", "Workload");
const POD_GROUP: (&str, &str) = ("muster.dev/v1alpha1", "PodGroup");
/// The prefix of the labels of a LeaderWorkerSet's pods.
const REPLICA: &str = "leaderworkerset.sigs.k8s.io/";

/// The state of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetState {
    /// All of its pods run.
    Runs,
    /// It has pods, and none of them is bound.
    Waits,
    /// It started, lost members to deletions and reports that it is degraded: others took the capacity before they were
    /// recreated.
    Lost,
    /// Any other state.
    Other,
}

/// The objects at one moment.
pub(super) struct Snapshot {
    pods: Vec<DynamicObject>,
    job_sets: Vec<DynamicObject>,
    leader_worker_sets: Vec<DynamicObject>,
    workloads: Vec<DynamicObject>,
    groups: Vec<DynamicObject>,
}

impl Snapshot {
    pub(super) async fn at(client: &Client) -> Result<Self, Problem> {
        let list = async |kind: (&str, &str)| {
            let listed = api(client, kind).list(&ListParams::default()).await;
            listed
                .map(|list| list.items)
                .map_err(|error| Problem::Request { attempt: format!("list {}", kind.1), error })
        };
        Ok(Self {
            job_sets: list(JOB_SET).await?,
            leader_worker_sets: list(LEADER_WORKER_SET).await?,
            workloads: list(WORKLOAD).await?,
            groups: list(POD_GROUP).await?,
            pods: list(("v1", "Pod")).await?,
        })
    }

    /// Whether no objects are left.
    pub(super) fn is_empty(&self) -> bool {
        let sets = [&self.job_sets, &self.leader_worker_sets];
        sets.into_iter().chain([&self.pods, &self.workloads, &self.groups]).all(Vec::is_empty)
    }

    fn pods_of(&self, set: Set) -> Vec<&DynamicObject> {
        let name = set.name();
        self.pods.iter().filter(|pod| pod.labels().get(SET) == Some(&name)).collect()
    }

    fn bound_of(&self, set: Set) -> usize {
        self.pods_of(set).iter().filter(|pod| is_bound(pod)).count()
    }

    fn state_of(&self, set: Set) -> SetState {
        let pods = self.pods_of(set);
        let runs = |pod: &&&DynamicObject| {
            pod.data["status"]["phase"] == "Running" && pod.metadata.deletion_timestamp.is_none()
        };
        let bound = self.bound_of(set);
        if pods.len() == SIZE && pods.iter().filter(runs).count() == SIZE {
            SetState::Runs
        } else if bound == 0 && !pods.is_empty() {
            SetState::Waits
        } else if bound > 0 && self.is_degraded(set) {
            SetState::Lost
        } else {
            SetState::Other
        }
    }

    /// Whether a group of the set is reported as degraded.
    fn is_degraded(&self, set: Set) -> bool {
        let name = set.name();
        let workloads = self.workloads.iter().filter(|one| one.name_any() == format!("w-{name}"));
        let groups = self.groups.iter().filter(|one| one.name_any().starts_with(&format!("{name}-")));
        workloads.chain(groups).any(|object| reports_degraded(&object.data["status"]))
    }

    fn pairs() -> impl Iterator<Item = [Set; 2]> {
        PAIRS.iter().map(|pair| [Set::new(*pair, "a"), Set::new(*pair, "b")])
    }

    /// The names of the sets in a state.
    pub(super) fn sets_in_state(&self, state: SetState) -> impl Iterator<Item = String> {
        Self::pairs().flatten().filter(move |set| self.state_of(*set) == state).map(Set::name)
    }

    /// A pair of which both sets have bound pods.
    pub(super) fn pair_with_both_bound(&self) -> Option<String> {
        let both = |[a, b]: &[Set; 2]| self.bound_of(*a) > 0 && self.bound_of(*b) > 0;
        Self::pairs().find(both).map(|[a, b]| format!("{} and {} both have bound pods", a.name(), b.name()))
    }

    /// The differences from the settled state.
    pub(super) fn differences(&self) -> Vec<String> {
        let mut missing: Vec<String> = Self::pairs().filter_map(|pair| self.pair_difference(pair)).collect();
        missing.extend(difference("Workloads", &owned(&self.workloads), &self.expected_workloads()));
        missing.extend(difference("PodGroups", &owned(&self.groups), &self.expected_groups()));
        missing
    }

    fn pair_difference(&self, pair: [Set; 2]) -> Option<String> {
        use SetState::{Lost, Runs, Waits};
        let states = pair.map(|set| self.state_of(set));
        let is_settled = matches!(states, [Runs, Waits | Lost] | [Waits | Lost, Runs]);
        (!is_settled).then(|| {
            let describe =
                |set: Set| format!("{} has {} pods, {} bound", set.name(), self.pods_of(set).len(), self.bound_of(set));
            pair.map(describe).join(", ")
        })
    }

    /// The expected Workloads, one for each JobSet, as name and owner.
    fn expected_workloads(&self) -> BTreeSet<(String, String)> {
        self.job_sets.iter().map(|set| (format!("w-{}", set.name_any()), set.uid().unwrap_or_default())).collect()
    }

    /// The expected PodGroups, one for each leader.
    fn expected_groups(&self) -> BTreeSet<(String, String)> {
        let label = |pod: &DynamicObject, key: &str| pod.labels().get(&format!("{REPLICA}{key}")).cloned();
        let name = |pod: &DynamicObject| {
            let parts = ["name", "group-index", "template-revision-hash"];
            parts.map(|part| label(pod, part).unwrap_or_default()).join("-")
        };
        let leaders = self.pods.iter().filter(|pod| label(pod, "worker-index").as_deref() == Some("0"));
        leaders.map(|pod| (name(pod), pod.uid().unwrap_or_default())).collect()
    }

    /// A dump of all objects for failure messages.
    pub(super) fn description(&self) -> String {
        let mut text = String::new();
        for pod in &self.pods {
            let scheduled = condition(pod, "PodScheduled");
            let terminating = if pod.metadata.deletion_timestamp.is_some() { ", terminating" } else { "" };
            let references: BTreeMap<_, _> =
                pod.annotations().iter().filter(|(key, _)| key.starts_with("muster.dev/")).collect();
            let (node, phase) = (&pod.data["spec"]["nodeName"], &pod.data["status"]["phase"]);
            writeln!(text, "pod {}{terminating}: {node} {phase} {scheduled} {references:?}", pod.name_any())
                .expect("text");
        }
        for (kind, objects) in [
            ("JobSet", &self.job_sets),
            ("LeaderWorkerSet", &self.leader_worker_sets),
            ("Workload", &self.workloads),
            ("PodGroup", &self.groups),
        ] {
            for object in objects {
                let owners = object.owner_references();
                let owners: Vec<&str> = owners.iter().map(|owner| owner.uid.as_str()).collect();
                let uid = object.uid().unwrap_or_default();
                let status = &object.data["status"];
                writeln!(text, "{kind} {} {uid}, owned by {owners:?}: {status}", object.name_any()).expect("text");
            }
        }
        text
    }
}

/// Whether a condition `Degraded` is true anywhere in a status.
fn reports_degraded(status: &Value) -> bool {
    match status {
        Value::Object(fields) if fields.get("type").is_some_and(|kind| kind == "Degraded") => {
            status["status"] == "True"
        }
        Value::Object(fields) => fields.values().any(reports_degraded),
        Value::Array(entries) => entries.iter().any(reports_degraded),
        _ => false,
    }
}

fn is_bound(pod: &DynamicObject) -> bool {
    pod.data["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
}

fn condition(pod: &DynamicObject, kind: &str) -> String {
    let conditions = pod.data["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|one| one["type"] == kind);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    found
        .map(|one| format!("{} {}: {}", text(&one["status"]), text(&one["reason"]), text(&one["message"])))
        .unwrap_or_default()
}

/// Names with their owners' UIDs.
fn owned(objects: &[DynamicObject]) -> BTreeSet<(String, String)> {
    let owner =
        |object: &DynamicObject| object.owner_references().first().map(|owner| owner.uid.clone()).unwrap_or_default();
    objects.iter().map(|object| (object.name_any(), owner(object))).collect()
}

fn difference(what: &str, found: &BTreeSet<(String, String)>, expected: &BTreeSet<(String, String)>) -> Option<String> {
    (found != expected).then(|| {
        let missing: Vec<_> = expected.difference(found).collect();
        let orphans: Vec<_> = found.difference(expected).collect();
        format!("{what}: missing {missing:?}, without an owner {orphans:?}")
    })
}
