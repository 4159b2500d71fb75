//! The node lifecycle and taint eviction controllers: detects kubelets that stop posting status, keeps the condition
//! taints, and deletes pods that do not tolerate a NoExecute taint.
//!
//! A real cluster has its own; this one is for the playground. Must not depend on how kubelets work, only on what they
//! write: leases, heartbeats and conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt};
use muster_api::invalid::FieldPath;
use muster_api::toleration::{Effect, WrittenToleration};
use muster_clock::Clock;
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_playground_client::conditions;
use muster_playground_client::task::Task;
use muster_playground_client::untyped::{self, UntypedPod};
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Key, Selection, key_of};
use serde_json::{Value, json};

use super::pod_record::{PodRecord, is_terminating, node_name, ready_since};
use super::reconcile::{Controller, WorkQueue, run};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Conditions that become `Unknown` when the kubelet stops posting status.
const KUBELET_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Settings of the controller.
#[derive(Clone, Copy, Debug)]
pub struct NodeLifecycleSettings {
    /// The node monitor grace period: how long a node may be silent before it counts as lost.
    pub grace: Duration,
}

impl Default for NodeLifecycleSettings {
    fn default() -> Self {
        Self { grace: Duration::from_secs(40) }
    }
}

/// The node lifecycle controller. It runs until this is dropped.
#[derive(Debug)]
pub struct NodeLifecycle {
    pub(super) task: Task,
}

impl NodeLifecycle {
    /// Starts the controller. Needs a tokio runtime.
    pub fn start(client: Client, settings: NodeLifecycleSettings, clock: Clock) -> Self {
        let bound = Selection::fields("spec.nodeName!=");
        let events = stream::select_all([
            watch(Api::<Node>::all(client.clone()), Selection::default()).map(Event::Node).boxed(),
            watch(Api::<Lease>::namespaced(client.clone(), "kube-node-lease"), Selection::default())
                .map(Event::Lease)
                .boxed(),
            watch(Api::<PodRecord>::all(client.clone()), bound).map(Event::Pod).boxed(),
        ]);
        let controller = NodeLifecycleController::new(client, settings, clock);
        Self { task: Task::start("node lifecycle controller", run(controller, events)) }
    }
}

#[allow(clippy::large_enum_variant)] // only one exists at a time
enum Event {
    Node(Delta<Node>),
    Lease(Delta<Lease>),
    Pod(Delta<PodRecord>),
}

/// The last sign of life of a kubelet and when it was observed. Only changes count, since the kubelet's clock may be
/// wrong.
struct LastSeen {
    renewed: Option<MicroTime>,
    heartbeat: Option<Time>,
    at: Timestamp,
}

struct NodeLifecycleController {
    client: Client,
    clock: Clock,
    grace: Duration,
    nodes: Cache<Node>,
    leases: Cache<Lease>,
    pods: Cache<PodRecord>,
    pods_on: BTreeMap<String, BTreeSet<Key>>,
    last_seen: BTreeMap<String, LastSeen>,
}

impl Controller for NodeLifecycleController {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut WorkQueue) {
        match event {
            Event::Node(event) => {
                for change in self.nodes.apply(event) {
                    let Some(node) = change.new.or(change.old) else { continue };
                    self.observe_heartbeat(&node);
                    queue.add(key_of(&*node));
                }
            }
            Event::Lease(event) => {
                for change in self.leases.apply(event) {
                    if let Some(lease) = change.new {
                        self.observe_lease_renewal(&lease);
                    }
                }
            }
            Event::Pod(event) => {
                for change in self.pods.apply(event.modify(strip_unused_fields)) {
                    self.index_pod(change.old.as_deref(), change.new.as_deref(), queue);
                }
            }
        }
    }

    fn has_synced(&self) -> bool {
        self.nodes.has_synced() && self.leases.has_synced() && self.pods.has_synced()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(node) = self.nodes.get(key) else {
            self.last_seen.remove(&key.1);
            return Ok(None);
        };
        let mut node = Node::clone(node);
        let now = self.clock.now();
        let silent_at = self.last_seen.get(&key.1).map_or(now, |last_seen| plus(last_seen.at, self.grace));
        let lost = ready(&node).is_some_and(|one| one.status == "Unknown");
        if silent_at <= now && !lost {
            node = self.mark_lost(&node, now).await?;
        }
        self.set_taints(&node, now).await?;
        let next_eviction = self.evict(&node, now).await?;
        let next_check = (silent_at > now).then_some(silent_at);
        let next = [next_check, next_eviction].into_iter().flatten().min();
        Ok(next.map(|time| Duration::try_from(time.duration_since(now)).unwrap_or_default()))
    }
}

impl NodeLifecycleController {
    fn new(client: Client, settings: NodeLifecycleSettings, clock: Clock) -> Self {
        Self {
            client,
            clock,
            grace: settings.grace,
            nodes: Cache::default(),
            leases: Cache::default(),
            pods: Cache::default(),
            pods_on: BTreeMap::new(),
            last_seen: BTreeMap::new(),
        }
    }

    fn observe_heartbeat(&mut self, node: &Node) {
        let heartbeat = ready(node).and_then(|one| one.last_heartbeat_time.clone());
        let at = self.clock.now();
        let last_seen =
            self.last_seen.entry(node.name_any()).or_insert(LastSeen { renewed: None, heartbeat: None, at });
        // The conditions that this controller writes for a lost node keep its last heartbeat.
        if heartbeat.is_some() && last_seen.heartbeat != heartbeat {
            last_seen.heartbeat = heartbeat;
            last_seen.at = at;
        }
    }

    fn observe_lease_renewal(&mut self, lease: &Lease) {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let at = self.clock.now();
        let last_seen =
            self.last_seen.entry(lease.name_any()).or_insert(LastSeen { renewed: None, heartbeat: None, at });
        if last_seen.renewed != renewed {
            last_seen.renewed = renewed;
            last_seen.at = at;
        }
    }

    /// Indexes pods by node, and enqueues a tainted node for its new pods.
    fn index_pod(&mut self, old: Option<&PodRecord>, new: Option<&PodRecord>, queue: &mut WorkQueue) {
        // A relist may show another pod of the same name on another node.
        if let Some(old) = old.filter(|old| new.is_none_or(|new| node_name(new) != node_name(old)))
            && let Some(pods) = self.pods_on.get_mut(node_name(old))
        {
            pods.remove(&key_of(old));
            if pods.is_empty() {
                self.pods_on.remove(node_name(old));
            }
        }
        let Some(new) = new else { return };
        let node = (String::new(), node_name(new).to_owned());
        self.pods_on.entry(node.1.clone()).or_default().insert(key_of(new));
        if self.nodes.get(&node).is_some_and(|node| no_execute(node).next().is_some()) {
            queue.add(node);
        }
    }

    /// Sets the node's conditions to `Unknown` and marks its pods not ready.
    async fn mark_lost(&self, node: &Node, now: Timestamp) -> Result<Node, kube::Error> {
        let never = ready(node).is_none();
        let (reason, message) = if never {
            ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
        } else {
            ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        };
        let present = node.status.as_ref().and_then(|status| status.conditions.clone());
        let mut list = present.and_then(|list| serde_json::to_value(list).ok()).unwrap_or_else(|| json!([]));
        for kind in KUBELET_CONDITIONS {
            let heartbeat = conditions::find(&list, kind).map_or(Value::Null, |one| one["lastHeartbeatTime"].clone());
            let condition = json!({
                "type": kind, "status": "Unknown", "reason": reason, "message": message,
                "lastHeartbeatTime": heartbeat,
            });
            if let Some(list) = list.as_array_mut() {
                conditions::set(list, condition, now);
            }
        }
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version}, "status": {"conditions": list},
        });
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.patch_status(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        for key in self.pods_on.get(&node.name_any()).into_iter().flatten() {
            if let Some(pod) = self.pods.get(key).filter(|pod| ready_since(pod).is_some()) {
                self.set_condition(key, pod, &json!({"type": "Ready", "status": "False"})).await?;
            }
        }
        Ok(node)
    }

    /// Keeps the taints that follow from the node's conditions; other taints are left alone.
    async fn set_taints(&self, node: &Node, now: Timestamp) -> Result<(), kube::Error> {
        let spec = node.spec.clone().unwrap_or_default();
        let present = spec.taints.unwrap_or_default();
        let mut desired: Vec<(&str, &str)> = Vec::new();
        match ready(node).map(|one| one.status.as_str()) {
            // A node without a Ready condition keeps its initial taint.
            None => {
                let kept = |key: &str, effect: &str| present.iter().any(|one| one.key == key && one.effect == effect);
                desired.extend([(NOT_READY, "NoSchedule")].into_iter().filter(|(key, effect)| kept(key, effect)));
            }
            Some("True") => {}
            Some("False") => desired.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
            Some(_) => desired.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
        }
        if spec.unschedulable == Some(true) {
            desired.push((UNSCHEDULABLE, "NoSchedule"));
        }
        let ours = |taint: &Taint| [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&taint.key.as_str());
        let same = |taint: &Taint, key: &str, effect: &str| taint.key == key && taint.effect == effect;
        let mut taints = present.clone();
        taints.retain(|one| !ours(one) || desired.iter().any(|(key, effect)| same(one, key, effect)));
        for (key, effect) in desired {
            if !taints.iter().any(|one| same(one, key, effect)) {
                let time_added = (effect == "NoExecute").then_some(Time(now));
                let (key, effect) = (key.to_owned(), effect.to_owned());
                taints.push(Taint { key, effect, time_added, value: None });
            }
        }
        if taints == present {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints},
        });
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Deletes the pods whose toleration time is over. Returns when the next one is due.
    async fn evict(&self, node: &Node, now: Timestamp) -> Result<Option<Timestamp>, kube::Error> {
        let taints: Vec<&Taint> = no_execute(node).collect();
        if taints.is_empty() {
            return Ok(None);
        }
        let mut next: Option<Timestamp> = None;
        for key in self.pods_on.get(&node.name_any()).into_iter().flatten() {
            let Some(pod) = self.pods.get(key) else { continue };
            if is_terminating(pod) {
                continue;
            }
            match eviction_time(pod, &taints, now) {
                Some(time) if time <= now => self.delete(key, pod).await?,
                time => next = [next, time].into_iter().flatten().min(),
            }
        }
        Ok(next)
    }

    async fn delete(&self, key: &Key, pod: &PodRecord) -> Result<(), kube::Error> {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
        });
        self.set_condition(key, pod, &condition).await?;
        let pods: Api<PodRecord> = Api::namespaced(self.client.clone(), &key.0);
        let only = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        match pods.delete(&key.1, &parameters).await {
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Sets a condition of a pod, if the pod still exists.
    async fn set_condition(&self, key: &Key, pod: &PodRecord, condition: &Value) -> Result<(), kube::Error> {
        let pods: Api<UntypedPod> = Api::namespaced(self.client.clone(), &key.0);
        let Some(current) = pods.get_opt(&key.1).await? else { return Ok(()) };
        if current.metadata.uid != pod.metadata.uid || untyped::is_finished(&current) {
            return Ok(());
        }
        let mut list = current.status["conditions"].as_array().cloned().unwrap_or_default();
        conditions::set(&mut list, condition.clone(), self.clock.now());
        let patch = json!({
            "metadata": {"uid": current.metadata.uid, "resourceVersion": current.metadata.resource_version},
            "status": {"conditions": list},
        });
        match pods.patch_status(&key.1, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }
}

/// Drops fields that this controller does not use, which are most of the memory when there are many pods.
fn strip_unused_fields(pod: &mut PodRecord) {
    pod.metadata.labels = None;
    pod.metadata.annotations = None;
    pod.metadata.owner_references = None;
    pod.spec.volumes = None;
}

fn plus(time: Timestamp, span: Duration) -> Timestamp {
    SignedDuration::try_from(span).ok().and_then(|span| time.checked_add(span).ok()).unwrap_or(Timestamp::MAX)
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|one| one.type_ == "Ready")
}

fn no_execute(node: &Node) -> impl Iterator<Item = &Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().filter(|taint| taint.effect == "NoExecute")
}

/// When a pod has to leave a node with these taints; `None` if never.
fn eviction_time(pod: &PodRecord, taints: &[&Taint], now: Timestamp) -> Option<Timestamp> {
    let path = FieldPath::Root("spec.tolerations");
    // Invalid tolerations may tolerate everything: the pod is not deleted for them.
    let tolerations =
        WrittenToleration::validate_all(pod.spec.tolerations.as_deref().unwrap_or_default(), &path).ok()?;
    let times = taints.iter().filter_map(|taint| {
        let checked = muster_api::toleration::Taint {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: Effect::NoExecute,
        };
        let mut fitting = tolerations.iter().filter(|one| one.tolerates(&checked)).peekable();
        if fitting.peek().is_none() {
            return Some(now);
        }
        let seconds = fitting.filter_map(|one| one.seconds).min()?;
        let since = taint.time_added.as_ref().map_or(now, |time| time.0);
        Some(muster_clock::after(since, seconds.max(0)))
    });
    times.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hanging_server;

    #[tokio::test(start_paused = true)]
    async fn recreated_pod_is_indexed_on_one_node() {
        let mut controller =
            NodeLifecycleController::new(hanging_server::client(), NodeLifecycleSettings::default(), Clock::real());
        let mut queue = WorkQueue::default();
        for node in ["n-0", "n-1"] {
            let pod = json!({"metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": node}});
            controller.observe(Event::Pod(Delta::ListStarted), &mut queue);
            let listed = Delta::Listed(serde_json::from_value(pod).unwrap());
            controller.observe(Event::Pod(listed), &mut queue);
            controller.observe(Event::Pod(Delta::ListDone), &mut queue);
            assert_eq!(controller.pods_on.keys().collect::<Vec<_>>(), [node]);
        }
    }
}
