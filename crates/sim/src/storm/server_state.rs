//! The state of the server: a cache that is never stale, fed by watches that are polled at every write.
//!
//! Objects are decoded here, without the scheduler's code, into the few fields that checks and users need. Must not
//! depend on who wrote an object or on the rules.

use std::collections::BTreeMap;
use std::pin::Pin;

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use http::Request;
use muster_playground::Server;
use serde_json::Value;

use super::RunError;
use super::volumes::{self, Claim, Volume};

/// The watched kinds and their paths.
const WATCHED: [(Table, &str); 8] = [
    (Table::Pods, "/api/v1/pods"),
    (Table::Nodes, "/api/v1/nodes"),
    (Table::Sets, "/apis/apps/v1/replicasets"),
    (Table::Claims, "/api/v1/persistentvolumeclaims"),
    (Table::Volumes, "/api/v1/persistentvolumes"),
    (Table::Groups(Kind::PodGroup), "/apis/muster.dev/v1alpha1/podgroups"),
    (Table::Groups(Kind::Workload), "/apis/muster.dev/v1alpha1/workloads"),
    (Table::Groups(Kind::Native), "/apis/scheduling.k8s.io/v1beta1/podgroups"),
];
/// A hundred years: the watches never time out.
const WATCH_TIMEOUT_SECONDS: &str = "3155760000";

/// The kind of object that defines a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    PodGroup,
    Workload,
    Native,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Pods,
    Nodes,
    Sets,
    Claims,
    Volumes,
    Groups(Kind),
}

/// One group or replica of a group: the object, the group inside it, the replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupKey {
    pub(super) kind: Kind,
    pub(super) object: String,
    pub(super) group: String,
    pub(super) replica: String,
}

/// The requests of a pod or the allocatable resources of a node: whole CPUs and GPUs, so that nothing is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Amounts {
    pub(super) cpu: i64,
    pub(super) gpu: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    /// Empty while it is not bound.
    pub(super) node: String,
    pub(super) phase: String,
    pub(super) reason: String,
    pub(super) terminating: bool,
    pub(super) gated: bool,
    pub(super) scheduler: String,
    pub(super) ours: bool,
    pub(super) controlled: bool,
    pub(super) requests: Amounts,
    /// The value of the node label `pool` in its node selector.
    pub(super) pool: Option<String>,
    pub(super) tolerated: Vec<String>,
    pub(super) group: Option<GroupKey>,
    pub(super) subset: String,
    /// The names of its claims.
    pub(super) claims: Vec<String>,
    /// It has an unsupported field and can never be scheduled.
    pub(super) unsupported: bool,
    pub(super) nominated: String,
    pub(super) priority: i64,
    /// It has the condition `DisruptionTarget` because Muster preempts it.
    pub(super) marked: bool,
    /// Reason and message of `PodScheduled=False`.
    pub(super) unscheduled_condition: Option<(String, String)>,
    /// The start that it was bound for; null without a stamp.
    pub(super) stamp: Value,
}

impl Pod {
    pub(super) fn finished(&self) -> bool {
        self.phase == "Succeeded" || self.phase == "Failed"
    }

    /// It is bound, not finished and not terminating.
    pub(super) fn is_placed(&self) -> bool {
        !self.node.is_empty() && !self.finished() && !self.terminating
    }

    /// Counts towards the minimum of its group.
    pub(super) fn counts_towards_minimum(&self) -> bool {
        self.ours && (self.is_placed() || self.phase == "Succeeded")
    }

    /// It is pending, has no scheduling gates and belongs to Muster.
    pub(super) fn is_pending(&self) -> bool {
        self.ours && self.node.is_empty() && !self.finished() && !self.terminating && !self.gated
    }

    /// Whether a kubelet refused it before it ran.
    pub(super) fn refused(&self) -> bool {
        self.phase == "Failed" && self.reason.starts_with("OutOf")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) allocatable: Amounts,
    pub(super) pods_max: i64,
    pub(super) pool: String,
    pub(super) cordoned: bool,
    /// Keys of taints that keep new pods off the node.
    pub(super) taints: Vec<String>,
}

/// The scheduling policy of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Basic,
    /// The minimum of each subset; one subset without a name if there are none.
    Gang(Vec<(String, usize)>),
}

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) uid: String,
    /// The groups inside it; one without a name if the object is the group.
    pub(super) policies: Vec<(String, Policy)>,
    /// The members of each group have to be on nodes of one pool.
    pub(super) one_pool: bool,
    pub(super) generation: i64,
    pub(super) status: Value,
}

#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) replicas: i64,
}

/// A pod before and after a change.
#[derive(Debug)]
pub(super) struct PodChange {
    pub(super) before: Option<Pod>,
    pub(super) after: Option<Pod>,
}

type Lines = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// The cache.
pub(super) struct ServerState {
    /// By UID.
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) sets: BTreeMap<String, Set>,
    pub(super) claims: BTreeMap<String, Claim>,
    pub(super) volumes: BTreeMap<String, Volume>,
    pub(super) objects: BTreeMap<(Kind, String), Object>,
    watches: Vec<(Table, Lines)>,
}

impl ServerState {
    /// Opens the watches.
    pub(super) async fn of(server: &Server) -> Result<Self, RunError> {
        let mut watches = Vec::new();
        for (table, path) in WATCHED {
            let uri = format!("{path}?watch=true&timeoutSeconds={WATCH_TIMEOUT_SECONDS}");
            let request = Request::get(&uri).body(kube::client::Body::empty())?;
            let response = server.answer(request).await;
            if !response.status().is_success() {
                return Err(RunError::Setup { path: uri, status: response.status() });
            }
            let lines = response.into_body().into_data_stream().filter_map(|chunk| std::future::ready(chunk.ok()));
            watches.push((table, Box::pin(lines) as Lines));
        }
        let (pods, nodes, sets, claims, volumes, objects) = Default::default();
        Ok(Self { pods, nodes, sets, claims, volumes, objects, watches })
    }

    /// Reads all pending watch events in order; returns the changes of pods.
    pub(super) fn catch_up(&mut self) -> Result<Vec<PodChange>, RunError> {
        let mut events = Vec::new();
        for (table, lines) in &mut self.watches {
            while let Some(chunk) = lines.next().now_or_never() {
                let chunk = chunk.ok_or(RunError::WatchEnded)?;
                for line in chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    let event: Value = serde_json::from_slice(line)?;
                    if event["type"] == "ERROR" {
                        return Err(RunError::WatchFailed(event));
                    }
                    let version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                    events.push((version.parse::<u64>().unwrap_or(0), *table, event));
                }
            }
        }
        events.sort_by_key(|(version, _, _)| *version);
        Ok(events.iter().filter_map(|(_, table, event)| self.apply(*table, event)).collect())
    }

    fn apply(&mut self, table: Table, event: &Value) -> Option<PodChange> {
        let (object, gone) = (&event["object"], event["type"] == "DELETED");
        let name = text(&object["metadata"]["name"]);
        match table {
            Table::Pods => {
                let pod = pod(object);
                let uid = pod.uid.clone();
                let before = self.pods.remove(&uid);
                let after = (!gone).then_some(pod);
                if let Some(after) = &after {
                    self.pods.insert(uid, after.clone());
                }
                return Some(PodChange { before, after });
            }
            Table::Nodes => put(&mut self.nodes, name, (!gone).then(|| node(object))),
            Table::Sets => {
                let set = Set { name: name.clone(), replicas: object["spec"]["replicas"].as_i64().unwrap_or(1) };
                put(&mut self.sets, name, (!gone).then_some(set));
            }
            Table::Claims => put(&mut self.claims, name, (!gone).then(|| volumes::claim(object))),
            Table::Volumes => put(&mut self.volumes, name, (!gone).then(|| volumes::volume(object))),
            Table::Groups(kind) => put(&mut self.objects, (kind, name), (!gone).then(|| group_object(kind, object))),
        }
        None
    }

    pub(super) fn members<'a>(&'a self, key: &'a GroupKey) -> impl Iterator<Item = &'a Pod> {
        self.pods.values().filter(move |pod| pod.group.as_ref() == Some(key))
    }

    /// The policy of a group, if its object exists and defines it.
    pub(super) fn policy(&self, key: &GroupKey) -> Option<&Policy> {
        let object = self.objects.get(&(key.kind, key.object.clone()))?;
        object.policies.iter().find(|(name, _)| *name == key.group).map(|(_, policy)| policy)
    }

    /// The pools that members of a group may be bound in, if all of them have to be in one: those in which the most are, of
    /// pods other than this one.
    pub(super) fn open_pools(&self, key: &GroupKey, except: &str) -> Option<Vec<&str>> {
        self.objects.get(&(key.kind, key.object.clone())).filter(|object| object.one_pool)?;
        let mut pools: BTreeMap<&str, usize> = self.nodes.values().map(|node| (node.pool.as_str(), 0)).collect();
        for member in self.members(key).filter(|pod| pod.is_placed() && pod.uid != except) {
            if let Some(node) = self.nodes.get(&member.node) {
                *pools.entry(node.pool.as_str()).or_default() += 1;
            }
        }
        let most = pools.values().copied().max().unwrap_or(0);
        Some(pools.into_iter().filter(|(_, count)| *count == most).map(|(pool, _)| pool).collect())
    }

    /// The minimum of each subset and how many of its members count towards it.
    pub(super) fn progress(&self, key: &GroupKey) -> Option<Vec<(usize, usize)>> {
        let Some(Policy::Gang(minimums)) = self.policy(key) else { return None };
        let counted = |subset: &str| {
            self.members(key)
                .filter(|pod| pod.counts_towards_minimum() && belongs_to(pod, subset, minimums.len()))
                .count()
        };
        Some(minimums.iter().map(|(subset, minimum)| (*minimum, counted(subset))).collect())
    }

    /// The conditions of a group, without the prefix `muster.dev/`.
    pub(super) fn conditions(&self, key: &GroupKey) -> Vec<Condition> {
        let Some(object) = self.objects.get(&(key.kind, key.object.clone())) else { return Vec::new() };
        let list = match key.kind {
            Kind::PodGroup | Kind::Native => &object.status["conditions"],
            Kind::Workload => &self.instance(key)["conditions"],
        };
        list.as_array().into_iter().flatten().map(Condition::of).collect()
    }

    /// The entry of a replica in the status of a Workload.
    pub(super) fn instance(&self, key: &GroupKey) -> &Value {
        let object = self.objects.get(&(key.kind, key.object.clone()));
        let list = object.and_then(|object| object.status["podGroups"].as_array());
        let is_meant = |one: &&Value| text(&one["name"]) == key.group && text(&one["replicaKey"]) == key.replica;
        list.into_iter().flatten().find(is_meant).unwrap_or(&Value::Null)
    }

    /// All groups that pods reference or that are objects of their own.
    pub(super) fn groups(&self) -> Vec<GroupKey> {
        let named = self.pods.values().filter_map(|pod| pod.group.clone());
        let own = self.objects.keys().filter(|(kind, _)| *kind != Kind::Workload).map(|(kind, name)| GroupKey {
            kind: *kind,
            object: name.clone(),
            group: String::new(),
            replica: String::new(),
        });
        let mut keys: Vec<GroupKey> = named.chain(own).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

/// A condition of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) kind: String,
    pub(super) holds: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Condition {
    fn of(value: &Value) -> Self {
        let kind = text(&value["type"]);
        Self {
            kind: kind.strip_prefix("muster.dev/").unwrap_or(&kind).to_owned(),
            holds: value["status"] == "True",
            reason: text(&value["reason"]),
            message: text(&value["message"]),
        }
    }
}

/// Whether the pod belongs to the subset; in a group with one subset, pods need not name it.
pub(super) fn belongs_to(pod: &Pod, subset: &str, subsets: usize) -> bool {
    pod.subset == subset || (pod.subset.is_empty() && subsets == 1)
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn amounts(list: &Value) -> Amounts {
    let whole = |name: &str| text(&list[name]).parse().unwrap_or(0);
    Amounts { cpu: whole("cpu"), gpu: whole("nvidia.com/gpu") }
}

fn pod(object: &Value) -> Pod {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let unscheduled_condition =
        list(&status["conditions"]).into_iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
    let (group, subset, unsupported) = reference(object);
    Pod {
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        node: text(&spec["nodeName"]),
        phase: text(&status["phase"]),
        reason: text(&status["reason"]),
        terminating: !metadata["deletionTimestamp"].is_null(),
        gated: !list(&spec["schedulingGates"]).is_empty(),
        scheduler: text(&spec["schedulerName"]),
        ours: spec["schedulerName"] == "muster",
        controlled: list(&metadata["ownerReferences"]).iter().any(|one| one["controller"] == true),
        requests: amounts(&spec["containers"][0]["resources"]["requests"]),
        pool: spec["nodeSelector"]["pool"].as_str().map(ToOwned::to_owned),
        tolerated: list(&spec["tolerations"])
            .iter()
            .filter(|one| one["effect"] != "NoExecute")
            .map(|one| text(&one["key"]))
            .collect(),
        group,
        subset,
        claims: volumes::claims_of(object),
        unsupported: unsupported || !spec["resourceClaims"].is_null(),
        nominated: text(&status["nominatedNodeName"]),
        priority: spec["priority"].as_i64().unwrap_or(0),
        marked: list(&status["conditions"]).iter().any(|one| {
            one["type"] == "DisruptionTarget" && one["status"] == "True" && one["reason"] == "PreemptionByScheduler"
        }),
        unscheduled_condition: unscheduled_condition.map(|one| (text(&one["reason"]), text(&one["message"]))),
        stamp: serde_json::from_str(&text(&metadata["annotations"]["muster.dev/start"])).unwrap_or_default(),
    }
}

/// The group that a pod references, its subset, and whether it references groups in two ways.
fn reference(object: &Value) -> (Option<GroupKey>, String, bool) {
    let note = |key: &str| object["metadata"]["annotations"][key].as_str().map(ToOwned::to_owned);
    let native = object["spec"]["schedulingGroup"]["podGroupName"].as_str().map(ToOwned::to_owned);
    let (group, workload) = (note("muster.dev/pod-group"), note("muster.dev/workload"));
    if native.is_some() && group.is_some() {
        return (None, String::new(), true);
    }
    let key = match (native, group, workload) {
        (Some(object), _, _) => Some((Kind::Native, object, String::new())),
        (None, Some(group), Some(workload)) => Some((Kind::Workload, workload, group)),
        (None, Some(object), None) => Some((Kind::PodGroup, object, String::new())),
        (None, None, _) => None,
    };
    let replica = note("muster.dev/replica-key").unwrap_or_default();
    let key = key.map(|(kind, object, group)| GroupKey { kind, object, group, replica });
    (key, note("muster.dev/subset").unwrap_or_default(), false)
}

fn node(object: &Value) -> Node {
    let spec = &object["spec"];
    let allocatable = &object["status"]["allocatable"];
    let taints = spec["taints"].as_array().into_iter().flatten();
    Node {
        name: text(&object["metadata"]["name"]),
        allocatable: amounts(allocatable),
        pods_max: text(&allocatable["pods"]).parse().unwrap_or(0),
        pool: text(&object["metadata"]["labels"]["pool"]),
        cordoned: spec["unschedulable"] == true,
        taints: taints.filter(|one| one["effect"] != "PreferNoSchedule").map(|one| text(&one["key"])).collect(),
    }
}

fn group_object(kind: Kind, object: &Value) -> Object {
    let spec = &object["spec"];
    let policies = match kind {
        Kind::PodGroup => vec![(String::new(), policy(&spec["policy"], &spec["subsets"]))],
        Kind::Native => vec![(String::new(), policy(&spec["schedulingPolicy"], &Value::Null))],
        Kind::Workload => {
            let groups = spec["podGroups"].as_array().into_iter().flatten();
            groups.map(|one| (text(&one["name"]), policy(&one["policy"], &Value::Null))).collect()
        }
    };
    Object {
        uid: text(&object["metadata"]["uid"]),
        policies,
        one_pool: [&spec["topology"], &spec["podGroups"][0]["topology"]].into_iter().any(Value::is_array),
        generation: object["metadata"]["generation"].as_i64().unwrap_or(0),
        status: object["status"].clone(),
    }
}

fn policy(policy: &Value, subsets: &Value) -> Policy {
    let count = |value: &Value| value.as_u64().unwrap_or(0) as usize;
    if let Some(subsets) = subsets.as_array() {
        return Policy::Gang(subsets.iter().map(|one| (text(&one["name"]), count(&one["minMember"]))).collect());
    }
    match policy["gang"].as_object() {
        Some(gang) => Policy::Gang(vec![(String::new(), gang.get("minCount").map_or(0, count))]),
        None => Policy::Basic,
    }
}
