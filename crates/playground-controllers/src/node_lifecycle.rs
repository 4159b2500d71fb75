//! The part of a control plane that nodes need: it notices silent kubelets, keeps the taints that tell so, and takes
//! pods away from nodes that they do not tolerate.
//!
//! A real cluster has all this already; this client is for the playground. It must not know how kubelets work, only
//! what they write: leases, heartbeats and conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use muster_api::invalid::FieldPath;
use muster_api::toleration::{Effect, WrittenToleration};
use muster_determinism::clock::Clock;
use muster_playground_client::conditions;
use muster_playground_client::mirror::{Key, Mirror, key_of, watch};
use muster_playground_client::refusal::{is_conflict, is_not_found};
use muster_playground_client::seen::{self, SeenPod};
use muster_playground_client::task::Task;
use serde_json::{Value, json};

use super::pod_card::{PodCard, is_going, node_name, ready_since};
use super::reconcile::{Controller, Queue, run};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Conditions that nobody knows any more when a kubelet is silent.
const KEPT_BY_KUBELET: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// How patient the client is with nodes.
#[derive(Clone, Copy, Debug)]
pub struct NodeLifecycleSettings {
    /// After this long without a word a node counts as lost.
    pub grace: Duration,
}

impl Default for NodeLifecycleSettings {
    fn default() -> Self {
        Self { grace: Duration::from_secs(40) }
    }
}

/// Looks after nodes until it is dropped.
#[derive(Debug)]
pub struct NodeLifecycle {
    pub(super) task: Task,
}

impl NodeLifecycle {
    /// Starts the client. Needs a tokio runtime.
    pub fn start(client: Client, settings: NodeLifecycleSettings, clock: Clock) -> Self {
        let bound = watcher::Config::default().fields("spec.nodeName!=");
        let everything = watcher::Config::default;
        let events = stream::select_all([
            watch(Api::<Node>::all(client.clone()), everything()).map(Event::Node).boxed(),
            watch(Api::<Lease>::namespaced(client.clone(), "kube-node-lease"), everything()).map(Event::Lease).boxed(),
            watch(Api::<PodCard>::all(client.clone()), bound).map(Event::Pod).boxed(),
        ]);
        let overseer = Overseer::new(client, settings, clock);
        Self { task: Task::start("node lifecycle controller", run(overseer, events)) }
    }
}

#[allow(clippy::large_enum_variant)] // there is one at a time
enum Event {
    Node(watcher::Event<Node>),
    Lease(watcher::Event<Lease>),
    Pod(watcher::Event<PodCard>),
}

/// The last word of a kubelet, and when it was noticed. Only differences count: its clock may be wrong.
struct Heard {
    renewed: Option<MicroTime>,
    heartbeat: Option<Time>,
    at: Timestamp,
}

struct Overseer {
    client: Client,
    clock: Clock,
    grace: Duration,
    nodes: Mirror<Node>,
    leases: Mirror<Lease>,
    pods: Mirror<PodCard>,
    pods_on: BTreeMap<String, BTreeSet<Key>>,
    heard: BTreeMap<String, Heard>,
}

impl Controller for Overseer {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut Queue) {
        match event {
            Event::Node(event) => {
                for change in self.nodes.take(event) {
                    let Some(node) = change.new.or(change.old) else { continue };
                    self.hear_node(&node);
                    queue.soon(key_of(&*node));
                }
            }
            Event::Lease(event) => {
                for change in self.leases.take(event) {
                    if let Some(lease) = change.new {
                        self.hear_lease(&lease);
                    }
                }
            }
            Event::Pod(event) => {
                for change in self.pods.take(event.modify(slim)) {
                    self.place(change.old.as_deref(), change.new.as_deref(), queue);
                }
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.nodes.is_complete() && self.leases.is_complete() && self.pods.is_complete()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(node) = self.nodes.get(key) else {
            self.heard.remove(&key.1);
            return Ok(None);
        };
        let mut node = Node::clone(node);
        let now = self.clock.now();
        let silent_at = self.heard.get(&key.1).map_or(now, |heard| plus(heard.at, self.grace));
        let lost = ready(&node).is_some_and(|one| one.status == "Unknown");
        if silent_at <= now && !lost {
            node = self.mark_lost(&node, now).await?;
        }
        self.set_taints(&node, now).await?;
        let next_eviction = self.evict(&node, now).await?;
        let next_look = (silent_at > now).then_some(silent_at);
        let next = [next_look, next_eviction].into_iter().flatten().min();
        Ok(next.map(|time| Duration::try_from(time.duration_since(now)).unwrap_or_default()))
    }
}

impl Overseer {
    fn new(client: Client, settings: NodeLifecycleSettings, clock: Clock) -> Self {
        Self {
            client,
            clock,
            grace: settings.grace,
            nodes: Mirror::default(),
            leases: Mirror::default(),
            pods: Mirror::default(),
            pods_on: BTreeMap::new(),
            heard: BTreeMap::new(),
        }
    }

    fn hear_node(&mut self, node: &Node) {
        let heartbeat = ready(node).and_then(|one| one.last_heartbeat_time.clone());
        let at = self.clock.now();
        let heard = self.heard.entry(node.name_any()).or_insert(Heard { renewed: None, heartbeat: None, at });
        // Our own word about a lost node keeps its last heartbeat.
        if heartbeat.is_some() && heard.heartbeat != heartbeat {
            heard.heartbeat = heartbeat;
            heard.at = at;
        }
    }

    fn hear_lease(&mut self, lease: &Lease) {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let at = self.clock.now();
        let heard = self.heard.entry(lease.name_any()).or_insert(Heard { renewed: None, heartbeat: None, at });
        if heard.renewed != renewed {
            heard.renewed = renewed;
            heard.at = at;
        }
    }

    /// Remembers where pods are; a tainted node has a look at those that come.
    fn place(&mut self, old: Option<&PodCard>, new: Option<&PodCard>, queue: &mut Queue) {
        // A list may show another pod of the name, on another node.
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
            queue.soon(node);
        }
    }

    /// Says that nobody knows how the node is, and that its pods serve nobody.
    async fn mark_lost(&self, node: &Node, now: Timestamp) -> Result<Node, kube::Error> {
        let never = ready(node).is_none();
        let (reason, message) = if never {
            ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
        } else {
            ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        };
        let present = node.status.as_ref().and_then(|status| status.conditions.clone());
        let mut list = present.and_then(|list| serde_json::to_value(list).ok()).unwrap_or_else(|| json!([]));
        for kind in KEPT_BY_KUBELET {
            let heartbeat = conditions::find(&list, kind).map_or(Value::Null, |one| one["lastHeartbeatTime"].clone());
            let condition = json!({
                "type": kind, "status": "Unknown", "reason": reason, "message": message,
                "lastHeartbeatTime": heartbeat,
            });
            if let Some(list) = list.as_array_mut() {
                conditions::put(list, condition, now);
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

    /// Keeps the taints that follow from the node's conditions, and leaves the others alone.
    async fn set_taints(&self, node: &Node, now: Timestamp) -> Result<(), kube::Error> {
        let spec = node.spec.clone().unwrap_or_default();
        let present = spec.taints.unwrap_or_default();
        let mut wanted: Vec<(&str, &str)> = Vec::new();
        match ready(node).map(|one| one.status.as_str()) {
            // A node that has not said anything keeps what it came with.
            None => {
                let kept = |key: &str, effect: &str| present.iter().any(|one| one.key == key && one.effect == effect);
                wanted.extend([(NOT_READY, "NoSchedule")].into_iter().filter(|(key, effect)| kept(key, effect)));
            }
            Some("True") => {}
            Some("False") => wanted.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
            Some(_) => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
        }
        if spec.unschedulable == Some(true) {
            wanted.push((UNSCHEDULABLE, "NoSchedule"));
        }
        let ours = |taint: &Taint| [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&taint.key.as_str());
        let same = |taint: &Taint, key: &str, effect: &str| taint.key == key && taint.effect == effect;
        let mut taints = present.clone();
        taints.retain(|one| !ours(one) || wanted.iter().any(|(key, effect)| same(one, key, effect)));
        for (key, effect) in wanted {
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

    /// Deletes the pods whose time on the node is over. Answers when the next one's is.
    async fn evict(&self, node: &Node, now: Timestamp) -> Result<Option<Timestamp>, kube::Error> {
        let taints: Vec<&Taint> = no_execute(node).collect();
        if taints.is_empty() {
            return Ok(None);
        }
        let mut next: Option<Timestamp> = None;
        for key in self.pods_on.get(&node.name_any()).into_iter().flatten() {
            let Some(pod) = self.pods.get(key) else { continue };
            if is_going(pod) {
                continue;
            }
            match time_to_go(pod, &taints, now) {
                Some(time) if time <= now => self.delete(key, pod).await?,
                time => next = [next, time].into_iter().flatten().min(),
            }
        }
        Ok(next)
    }

    async fn delete(&self, key: &Key, pod: &PodCard) -> Result<(), kube::Error> {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
        });
        self.set_condition(key, pod, &condition).await?;
        let pods: Api<PodCard> = Api::namespaced(self.client.clone(), &key.0);
        let only = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        match pods.delete(&key.1, &parameters).await {
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Sets a condition of a pod, if the pod is still there.
    async fn set_condition(&self, key: &Key, pod: &PodCard, condition: &Value) -> Result<(), kube::Error> {
        let pods: Api<SeenPod> = Api::namespaced(self.client.clone(), &key.0);
        let Some(whole) = pods.get_opt(&key.1).await? else { return Ok(()) };
        if whole.metadata.uid != pod.metadata.uid || seen::is_finished(&whole) {
            return Ok(());
        }
        let mut list = whole.status["conditions"].as_array().cloned().unwrap_or_default();
        conditions::put(&mut list, condition.clone(), self.clock.now());
        let patch = json!({
            "metadata": {"uid": whole.metadata.uid, "resourceVersion": whole.metadata.resource_version},
            "status": {"conditions": list},
        });
        match pods.patch_status(&key.1, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }
}

/// Drops what nobody looks at here; of many pods that is most of the memory.
fn slim(pod: &mut PodCard) {
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

/// When a pod has to leave a node with these taints; never if there is no time.
fn time_to_go(pod: &PodCard, taints: &[&Taint], now: Timestamp) -> Option<Timestamp> {
    let path = FieldPath::Root("spec.tolerations");
    // What cannot be read may tolerate everything: nobody is driven out by a misunderstanding.
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
        Some(muster_determinism::clock::after(since, seconds.max(0)))
    });
    times.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::silent;

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_came_again_elsewhere_is_on_one_node() {
        let mut overseer = Overseer::new(silent::client(), NodeLifecycleSettings::default(), Clock::real());
        let mut queue = Queue::default();
        for node in ["n-0", "n-1"] {
            let pod = json!({"metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": node}});
            overseer.observe(Event::Pod(watcher::Event::Init), &mut queue);
            let listed = watcher::Event::InitApply(serde_json::from_value(pod).unwrap());
            overseer.observe(Event::Pod(listed), &mut queue);
            overseer.observe(Event::Pod(watcher::Event::InitDone), &mut queue);
            assert_eq!(overseer.pods_on.keys().collect::<Vec<_>>(), [node]);
        }
    }
}
