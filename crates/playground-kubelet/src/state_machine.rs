//! The state machine of all kubelets of a shape: takes events and the time, returns requests.
//!
//! Invariants: no needless request (a confirmed status is not sent again); at most one request per pod and per node
//! task is in flight; a stopped node sends nothing, and after its restart it has only the state that the API shows.
//! Must not do I/O or depend on a clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::selector::Labels;
use muster_api::toleration::Taint;
use muster_api::wire::Node;
use muster_playground_client::untyped::{self, UntypedPod};
use muster_reflector::Key;
use serde_json::Value;

use super::KubeletSettings;
use super::admission::PodRequirements;
use super::desired_status::{Addresses, DesiredStatus};
use super::mounting::PodEvent;
use super::pod_lifecycle::{PodLifecycle, later};
use super::rendezvous::RendezvousIndex;
use super::volumes::{VolumeEvent, VolumeIndex};
use crate::shape::NodeShape;

const RETRY_MS_MIN: i64 = 100;
const RETRY_MS_MAX: i64 = 10_000;

/// Input of the state machine.
#[derive(Debug)]
pub(super) enum Event {
    Pod(Arc<UntypedPod>),
    PodGone(Key),
    /// The initial list of pods is complete.
    PodsListed,
    /// The initial list of nodes is complete.
    NodesListed,
    Node(Box<Node>),
    /// A claim, volume, driver or attachment changed.
    Volume(Box<VolumeEvent>),
    /// A request was answered or failed.
    Done(Operation, Outcome),
    Kill(usize),
    Revive(usize),
}

/// What a request does; identifies it while it is in flight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Node(usize, NodeTask),
    /// Pods by key and UID.
    PatchStatus(Key, String),
    DeletePod(Key, String),
}

/// A periodic task of a kubelet for its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NodeTask {
    Register,
    RenewLease,
    Heartbeat,
}

pub(super) const NODE_TASKS: [NodeTask; 3] = [NodeTask::Register, NodeTask::RenewLease, NodeTask::Heartbeat];

/// A request to send.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ApiRequest {
    pub(super) operation: Operation,
    /// The status patch of a pod.
    pub(super) body: Value,
}

/// The outcome of a request.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// It succeeded; the pod as returned.
    Done(Option<Arc<UntypedPod>>),
    /// The object no longer exists.
    Gone,
    /// A conflict or another failure: retry.
    Retry,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    NodeTask(usize, NodeTask),
    Pod(Key),
}

/// An operation that is retried until it succeeds.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    pub(super) due: Option<Timestamp>,
    pub(super) in_flight: bool,
    pub(super) failures: u32,
}

impl Attempt {
    /// Sets the next retry with exponential backoff.
    pub(super) fn failed(&mut self, now: Timestamp) -> Timestamp {
        let wait_ms = RETRY_MS_MAX.min(RETRY_MS_MIN << self.failures.min(16));
        self.failures += 1;
        let due = later(now, wait_ms);
        self.due = Some(due);
        due
    }
}

/// A kubelet's state of its node.
pub(super) struct NodeState {
    pub(super) shape: Arc<NodeShape>,
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) alive: bool,
    pub(super) tasks: [Attempt; 3],
    /// Whether its lease has been renewed since it was registered.
    pub(super) renewed: bool,
    pub(super) pods: BTreeSet<Key>,
    pub(super) addresses_allocated: u64,
}

/// A kubelet's state of a pod.
pub(super) struct PodState {
    pub(super) observed: Arc<UntypedPod>,
    pub(super) node: usize,
    /// Nothing until the kubelet has synced the pod.
    pub(super) lifecycle: Option<PodLifecycle>,
    /// Nothing if they cannot be read; then the pod is rejected.
    pub(super) requirements: Option<PodRequirements>,
    pub(super) addresses: Addresses,
    /// The last status that the API confirmed.
    pub(super) confirmed_status: Option<DesiredStatus>,
    /// The status in flight.
    pub(super) in_flight_status: Option<DesiredStatus>,
    pub(super) attempt: Attempt,
    /// Whether the API accepted the deletion.
    pub(super) deletion_accepted: bool,
    /// What was reported last about volumes that cannot be mounted, and when.
    pub(super) mount_report: Option<(Timestamp, String)>,
    /// When its timer is due.
    pub(super) timer_due: Option<Timestamp>,
}

/// All kubelets.
pub(super) struct StateMachine {
    pub(super) settings: KubeletSettings,
    pub(super) nodes: Vec<NodeState>,
    pub(super) by_name: HashMap<String, usize>,
    pub(super) pods: BTreeMap<Key, PodState>,
    pub(super) timers: BTreeSet<(Timestamp, Timer)>,
    /// The pods of each rendezvous.
    pub(super) rendezvous: RendezvousIndex,
    /// What the volumes of pods depend on.
    pub(super) volumes: VolumeIndex,
    /// Events to record.
    pub(super) events: Vec<PodEvent>,
    /// Pods that need a sync.
    pub(super) dirty: BTreeSet<Key>,
    pods_listed: bool,
    nodes_listed: bool,
}

impl StateMachine {
    pub(super) fn new(nodes: &[Arc<NodeShape>], settings: KubeletSettings, now: Timestamp) -> Self {
        let mut machine = Self {
            settings,
            nodes: Vec::new(),
            by_name: nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index)).collect(),
            pods: BTreeMap::new(),
            timers: BTreeSet::new(),
            rendezvous: RendezvousIndex::default(),
            volumes: VolumeIndex::default(),
            events: Vec::new(),
            dirty: BTreeSet::new(),
            pods_listed: false,
            nodes_listed: false,
        };
        for (index, shape) in nodes.iter().enumerate() {
            machine.nodes.push(NodeState {
                labels: shape.labels.clone(),
                taints: shape.taints.clone(),
                shape: Arc::clone(shape),
                alive: true,
                tasks: Default::default(),
                renewed: false,
                pods: BTreeSet::new(),
                addresses_allocated: 0,
            });
            machine.schedule(index, NodeTask::Register, Some(now));
        }
        machine
    }

    pub(super) fn shape(&self, node: usize) -> &Arc<NodeShape> {
        &self.nodes[node].shape
    }

    /// The node of an operation, if it is still known.
    pub(super) fn node_of(&self, operation: &Operation) -> Option<usize> {
        match operation {
            Operation::Node(node, _) => Some(*node),
            Operation::PatchStatus(key, _) | Operation::DeletePod(key, _) => self.pods.get(key).map(|pod| pod.node),
        }
    }

    /// When the next tick is due without an event.
    pub(super) fn next_wakeup(&self) -> Option<Timestamp> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// Processes an event.
    pub(super) fn observe(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::Pod(pod) => self.observe_pod(pod),
            Event::PodGone(key) => self.forget_pod(&key),
            Event::PodsListed => self.pods_listed = true,
            Event::NodesListed => self.nodes_listed = true,
            Event::Node(node) => self.observe_node(&node),
            Event::Volume(event) => self.dirty.extend(self.volumes.observe(*event)),
            Event::Done(Operation::Node(node, task), outcome) => self.on_task_done(node, task, &outcome, now),
            Event::Done(Operation::PatchStatus(key, uid), outcome) => self.on_status_done(&key, &uid, outcome, now),
            Event::Done(Operation::DeletePod(key, uid), outcome) => self.on_deletion_done(&key, &uid, &outcome, now),
            Event::Kill(node) => self.kill(node),
            Event::Revive(node) => self.revive(node, now),
        }
    }

    /// Processes everything that is due and returns the requests to send.
    pub(super) fn tick(&mut self, now: Timestamp) -> Vec<ApiRequest> {
        let mut requests = Vec::new();
        while self.next_wakeup().is_some_and(|time| time <= now) {
            let Some((_, timer)) = self.timers.pop_first() else { break };
            match timer {
                Timer::NodeTask(node, task) => requests.extend(self.begin_task(node, task)),
                Timer::Pod(key) => {
                    if let Some(pod) = self.pods.get_mut(&key) {
                        pod.timer_due = None;
                    }
                    self.dirty.insert(key);
                }
            }
        }
        if !(self.pods_listed && self.nodes_listed) {
            // Admission has to wait until all running pods and the node's taints are known.
            return requests;
        }
        let mut dirty: Vec<Key> = std::mem::take(&mut self.dirty).into_iter().collect();
        // Pods that are already on the node come before those to be admitted, which are ordered by age.
        dirty.sort_by_cached_key(|key| {
            let pod =
                self.pods.get(key).filter(|pod| pod.lifecycle.is_none() && untyped::phase(&pod.observed) == "Pending");
            pod.map(|pod| pod.observed.metadata.creation_timestamp.as_ref().map(|time| time.0))
        });
        requests.extend(dirty.iter().filter_map(|key| self.sync_pod(key, now)));
        requests
    }
}
