//! What all kubelets of a shape do, as one state machine: events in, acts out, the time handed in.
//!
//! Invariants: no act without a need (what was said and confirmed is not said again); at most one act of a pod or of
//! a node's chore is under way; a dead node acts on nothing, and when it comes back it knows only what the API shows.
//! It must not do input or output or know a clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::selector::Labels;
use muster_api::toleration::Taint;
use muster_api::wire::Node;
use muster_playground_client::mirror::Key;
use muster_playground_client::seen::{self, SeenPod};
use serde_json::Value;

use super::KubeletSettings;
use super::fit::Needs;
use super::life::{Life, later};
use super::meetings::Meetings;
use super::sketch::{Addresses, Sketch};
use crate::shape::NodeShape;

const RETRY_MS_MIN: i64 = 100;
const RETRY_MS_MAX: i64 = 10_000;

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    Pod(Arc<SeenPod>),
    PodGone(Key),
    /// All pods there are have been told.
    PodsListed,
    /// All nodes there are have been told.
    NodesListed,
    Node(Box<Node>),
    /// An act was done, or not.
    Done(Task, Outcome),
    Kill(usize),
    Revive(usize),
}

/// What an act is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    Node(usize, Chore),
    /// A pod by name and UID.
    Status(Key, String),
    Remove(Key, String),
}

/// What a kubelet does for its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chore {
    Register,
    Renew,
    Heartbeat,
}

pub(super) const CHORES: [Chore; 3] = [Chore::Register, Chore::Renew, Chore::Heartbeat];

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Act {
    pub(super) task: Task,
    /// The change of a pod's status.
    pub(super) body: Value,
}

/// What became of an act.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// Done, and what the pod is now.
    Done(Option<Arc<SeenPod>>),
    /// The object is not there any more.
    Gone,
    /// It has changed meanwhile, or something else failed: try again.
    Retry,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Chore(usize, Chore),
    Pod(Key),
}

/// Something that is tried until it is done.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    pub(super) due: Option<Timestamp>,
    pub(super) busy: bool,
    pub(super) failures: u32,
}

impl Attempt {
    /// It did not work: the next time is later, and later each time.
    pub(super) fn failed(&mut self, now: Timestamp) -> Timestamp {
        let wait_ms = RETRY_MS_MAX.min(RETRY_MS_MIN << self.failures.min(16));
        self.failures += 1;
        let due = later(now, wait_ms);
        self.due = Some(due);
        due
    }
}

/// What a kubelet knows of its node.
pub(super) struct NodeState {
    pub(super) shape: Arc<NodeShape>,
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) alive: bool,
    pub(super) chores: [Attempt; 3],
    /// Whether its lease has been renewed since it was registered.
    pub(super) renewed: bool,
    pub(super) pods: BTreeSet<Key>,
    pub(super) addresses_given: u64,
}

/// What a kubelet knows of a pod.
pub(super) struct PodState {
    pub(super) seen: Arc<SeenPod>,
    pub(super) node: usize,
    /// Nothing until the kubelet has looked at the pod.
    pub(super) life: Option<Life>,
    /// Nothing if they cannot be read; then the pod is refused.
    pub(super) needs: Option<Needs>,
    pub(super) addresses: Addresses,
    /// What was last said and confirmed.
    pub(super) said: Option<Sketch>,
    /// What is being said.
    pub(super) saying: Option<Sketch>,
    pub(super) attempt: Attempt,
    /// Whether the pod's removal was asked for and granted.
    pub(super) removed: bool,
    /// When its timer is due.
    pub(super) wakes: Option<Timestamp>,
}

/// All kubelets.
pub(super) struct Machine {
    pub(super) settings: KubeletSettings,
    pub(super) nodes: Vec<NodeState>,
    pub(super) by_name: HashMap<String, usize>,
    pub(super) pods: BTreeMap<Key, PodState>,
    pub(super) timers: BTreeSet<(Timestamp, Timer)>,
    /// Who must meet whom.
    pub(super) meetings: Meetings,
    /// Pods that are to be looked after.
    pub(super) dirty: BTreeSet<Key>,
    pods_listed: bool,
    nodes_listed: bool,
}

impl Machine {
    pub(super) fn new(nodes: &[Arc<NodeShape>], settings: KubeletSettings, now: Timestamp) -> Self {
        let mut machine = Self {
            settings,
            nodes: Vec::new(),
            by_name: nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index)).collect(),
            pods: BTreeMap::new(),
            timers: BTreeSet::new(),
            meetings: Meetings::default(),
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
                chores: Default::default(),
                renewed: false,
                pods: BTreeSet::new(),
                addresses_given: 0,
            });
            machine.schedule(index, Chore::Register, Some(now));
        }
        machine
    }

    pub(super) fn shape(&self, node: usize) -> &Arc<NodeShape> {
        &self.nodes[node].shape
    }

    /// The node that a task is for, if it is still known.
    pub(super) fn node_of(&self, task: &Task) -> Option<usize> {
        match task {
            Task::Node(node, _) => Some(*node),
            Task::Status(key, _) | Task::Remove(key, _) => self.pods.get(key).map(|pod| pod.node),
        }
    }

    /// When a tick is due even if nothing happens.
    pub(super) fn next_wakeup(&self) -> Option<Timestamp> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// Takes in an event.
    pub(super) fn observe(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::Pod(pod) => self.see(pod),
            Event::PodGone(key) => self.forget(&key),
            Event::PodsListed => self.pods_listed = true,
            Event::NodesListed => self.nodes_listed = true,
            Event::Node(node) => self.see_node(&node),
            Event::Done(Task::Node(node, chore), outcome) => self.after_chore(node, chore, &outcome, now),
            Event::Done(Task::Status(key, uid), outcome) => self.after_status(&key, &uid, outcome, now),
            Event::Done(Task::Remove(key, uid), outcome) => self.after_removal(&key, &uid, &outcome, now),
            Event::Kill(node) => self.kill(node),
            Event::Revive(node) => self.revive(node, now),
        }
    }

    /// Lets happen what is due, and answers what is to be done about it.
    pub(super) fn tick(&mut self, now: Timestamp) -> Vec<Act> {
        let mut acts = Vec::new();
        while self.next_wakeup().is_some_and(|time| time <= now) {
            let Some((_, timer)) = self.timers.pop_first() else { break };
            match timer {
                Timer::Chore(node, chore) => acts.extend(self.begin_chore(node, chore)),
                Timer::Pod(key) => {
                    if let Some(pod) = self.pods.get_mut(&key) {
                        pod.wakes = None;
                    }
                    self.dirty.insert(key);
                }
            }
        }
        if !(self.pods_listed && self.nodes_listed) {
            // A pod must not be let in while others that run there, or the node's taints, have not been told yet.
            return acts;
        }
        let mut dirty: Vec<Key> = std::mem::take(&mut self.dirty).into_iter().collect();
        // Those that are there already come before those that want to come in, and these in the order of their age.
        dirty.sort_by_cached_key(|key| {
            let pod = self.pods.get(key).filter(|pod| pod.life.is_none() && seen::phase(&pod.seen) == "Pending");
            pod.map(|pod| pod.seen.metadata.creation_timestamp.as_ref().map(|time| time.0))
        });
        acts.extend(dirty.iter().filter_map(|key| self.look_after(key, now)));
        acts
    }
}
