//! What the API shows of the sets at one moment, and what is not as it should be at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use kube::api::{DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::api;
use super::sets::{JOB_SET, LEADER_WORKER_SET, PAIRS, SET, SIZE, Set};

const WORKLOAD: (&str, &str) = ("muster.dev/v1alpha1", "Workload");
const POD_GROUP: (&str, &str) = ("muster.dev/v1alpha1", "PodGroup");
/// How labels of a LeaderWorkerSet's pods begin.
const REPLICA: &str = "leaderworkerset.sigs.k8s.io/";

/// How a set stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stance {
    /// All of its pods run.
    Runs,
    /// It has pods, and none of them has a place.
    Waits,
    /// It has started, lost members to those who delete, and says so: before they were made again others took the room.
    Lost,
    /// Anything else.
    Between,
}

/// What there is.
pub(super) struct Look {
    pods: Vec<DynamicObject>,
    job_sets: Vec<DynamicObject>,
    leader_worker_sets: Vec<DynamicObject>,
    workloads: Vec<DynamicObject>,
    groups: Vec<DynamicObject>,
}

impl Look {
    pub(super) async fn at(client: &Client) -> Result<Self, String> {
        let list = async |kind: (&str, &str)| {
            let listed = api(client, kind).list(&ListParams::default()).await;
            listed.map(|list| list.items).map_err(|error| format!("list {}: {error}", kind.1))
        };
        Ok(Self {
            job_sets: list(JOB_SET).await?,
            leader_worker_sets: list(LEADER_WORKER_SET).await?,
            workloads: list(WORKLOAD).await?,
            groups: list(POD_GROUP).await?,
            pods: list(("v1", "Pod")).await?,
        })
    }

    /// Whether nothing is left.
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

    fn stance(&self, set: Set) -> Stance {
        let pods = self.pods_of(set);
        let runs = |pod: &&&DynamicObject| {
            pod.data["status"]["phase"] == "Running" && pod.metadata.deletion_timestamp.is_none()
        };
        let bound = self.bound_of(set);
        if pods.len() == SIZE && pods.iter().filter(runs).count() == SIZE {
            Stance::Runs
        } else if bound == 0 && !pods.is_empty() {
            Stance::Waits
        } else if bound > 0 && self.is_degraded(set) {
            Stance::Lost
        } else {
            Stance::Between
        }
    }

    /// Whether a group of the set says that it has lost members.
    fn is_degraded(&self, set: Set) -> bool {
        let name = set.name();
        let workloads = self.workloads.iter().filter(|one| one.name_any() == format!("w-{name}"));
        let groups = self.groups.iter().filter(|one| one.name_any().starts_with(&format!("{name}-")));
        workloads.chain(groups).any(|object| says_degraded(&object.data["status"]))
    }

    fn pairs() -> impl Iterator<Item = [Set; 2]> {
        PAIRS.iter().map(|pair| [Set::new(*pair, "a"), Set::new(*pair, "b")])
    }

    /// The names of the sets with a stance.
    pub(super) fn sets_that(&self, stance: Stance) -> impl Iterator<Item = String> {
        Self::pairs().flatten().filter(move |set| self.stance(*set) == stance).map(Set::name)
    }

    /// A pair both of which have places.
    pub(super) fn rivals(&self) -> Option<String> {
        let both = |[a, b]: &[Set; 2]| self.bound_of(*a) > 0 && self.bound_of(*b) > 0;
        Self::pairs().find(both).map(|[a, b]| format!("{} and {} both have places", a.name(), b.name()))
    }

    /// What is not as it should be at rest.
    pub(super) fn unsettled(&self) -> Vec<String> {
        let mut missing: Vec<String> = Self::pairs().filter_map(|pair| self.unsettled_pair(pair)).collect();
        missing.extend(differing("Workloads", &owned(&self.workloads), &self.workloads_wanted()));
        missing.extend(differing("PodGroups", &owned(&self.groups), &self.groups_wanted()));
        missing
    }

    fn unsettled_pair(&self, pair: [Set; 2]) -> Option<String> {
        use Stance::{Lost, Runs, Waits};
        let stances = pair.map(|set| self.stance(set));
        let is_settled = matches!(stances, [Runs, Waits | Lost] | [Waits | Lost, Runs]);
        (!is_settled).then(|| {
            let told =
                |set: Set| format!("{} has {} pods, {} bound", set.name(), self.pods_of(set).len(), self.bound_of(set));
            pair.map(told).join(", ")
        })
    }

    /// A Workload for each JobSet, as name and owner.
    fn workloads_wanted(&self) -> BTreeSet<(String, String)> {
        self.job_sets.iter().map(|set| (format!("w-{}", set.name_any()), set.uid().unwrap_or_default())).collect()
    }

    /// A PodGroup for each leader.
    fn groups_wanted(&self) -> BTreeSet<(String, String)> {
        let label = |pod: &DynamicObject, key: &str| pod.labels().get(&format!("{REPLICA}{key}")).cloned();
        let name = |pod: &DynamicObject| {
            let parts = ["name", "group-index", "template-revision-hash"];
            parts.map(|part| label(pod, part).unwrap_or_default()).join("-")
        };
        let leaders = self.pods.iter().filter(|pod| label(pod, "worker-index").as_deref() == Some("0"));
        leaders.map(|pod| (name(pod), pod.uid().unwrap_or_default())).collect()
    }

    /// All of it, for whoever has to find out why.
    pub(super) fn told(&self) -> String {
        let mut text = String::new();
        for pod in &self.pods {
            let scheduled = condition(pod, "PodScheduled");
            let going = if pod.metadata.deletion_timestamp.is_some() { ", going" } else { "" };
            let references: BTreeMap<_, _> =
                pod.annotations().iter().filter(|(key, _)| key.starts_with("muster.dev/")).collect();
            let (node, phase) = (&pod.data["spec"]["nodeName"], &pod.data["status"]["phase"]);
            writeln!(text, "pod {}{going}: {node} {phase} {scheduled} {references:?}", pod.name_any()).expect("text");
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
fn says_degraded(status: &Value) -> bool {
    match status {
        Value::Object(fields) if fields.get("type").is_some_and(|kind| kind == "Degraded") => {
            status["status"] == "True"
        }
        Value::Object(fields) => fields.values().any(says_degraded),
        Value::Array(entries) => entries.iter().any(says_degraded),
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

/// Names, each with the owner.
fn owned(objects: &[DynamicObject]) -> BTreeSet<(String, String)> {
    let owner =
        |object: &DynamicObject| object.owner_references().first().map(|owner| owner.uid.clone()).unwrap_or_default();
    objects.iter().map(|object| (object.name_any(), owner(object))).collect()
}

fn differing(what: &str, found: &BTreeSet<(String, String)>, wanted: &BTreeSet<(String, String)>) -> Option<String> {
    (found != wanted).then(|| {
        let lacking: Vec<_> = wanted.difference(found).collect();
        let orphans: Vec<_> = found.difference(wanted).collect();
        format!("{what}: lacking {lacking:?}, without an owner {orphans:?}")
    })
}
