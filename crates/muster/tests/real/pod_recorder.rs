//! A recorder of pods: it watches all pods and keeps what the API showed of each.
//!
//! Invariant: a pod that was ever shown on two nodes, and a node that was ever overcommitted, stay recorded. Must not
//! depend on the test cases nor on the scheduler's code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, utils::StreamBackoff};
use kube::{Api, Client};
use tokio::task::JoinHandle;

/// The label with the name of a pod's gang.
pub(crate) const GANG: &str = "gang";
pub(crate) const GPU: &str = "nvidia.com/gpu";
/// How many pods a failing test prints.
const SHOWN_MAX: usize = 40;

/// A watch of all pods, until it is dropped.
pub(crate) struct PodRecorder {
    pods: Arc<Mutex<RecordedPods>>,
    task: JoinHandle<()>,
}

/// The recorded pods.
#[derive(Debug, Default)]
pub(crate) struct RecordedPods {
    /// By UID, including deleted ones.
    pods: BTreeMap<String, RecordedPod>,
    /// The GPUs of each node.
    room: BTreeMap<String, i64>,
    /// Pods of a list that is not complete yet.
    listed: Option<BTreeSet<String>>,
    /// Violations that no test allows.
    moved: Vec<String>,
    /// Nodes that were ever overcommitted.
    overcommitted: BTreeSet<String>,
}

/// The last recorded state of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) gang: String,
    pub(crate) node: String,
    pub(crate) phase: String,
    pub(crate) reason: String,
    pub(crate) gone: bool,
    gpus: i64,
}

/// The number of pods of a gang by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCounts {
    /// Exist and are not finished.
    pub(crate) alive: usize,
    /// Of those, are bound.
    pub(crate) bound: usize,
    /// Of those, are running.
    pub(crate) running: usize,
    /// Were ever rejected by a kubelet.
    pub(crate) refused: usize,
    /// Were bound and are deleted.
    pub(crate) removed: usize,
}

impl RecordedPod {
    fn of(pod: &Pod) -> Self {
        let (spec, status) = (pod.spec.clone().unwrap_or_default(), pod.status.clone().unwrap_or_default());
        let requests = spec.containers.iter().filter_map(|one| one.resources.as_ref()?.requests.as_ref()?.get(GPU));
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            gang: pod.metadata.labels.as_ref().and_then(|labels| labels.get(GANG).cloned()).unwrap_or_default(),
            node: spec.node_name.unwrap_or_default(),
            phase: status.phase.unwrap_or_default(),
            reason: status.reason.unwrap_or_default(),
            gone: false,
            gpus: requests.map(|amount| amount.0.parse::<i64>().expect("whole GPUs")).sum(),
        }
    }

    /// Whether it uses capacity, or waits for some.
    pub(crate) fn is_alive(&self) -> bool {
        !self.gone && self.phase != "Succeeded" && self.phase != "Failed"
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.is_alive() && !self.node.is_empty()
    }
}

impl PodRecorder {
    /// Starts a watch on the current runtime.
    pub(crate) fn start(client: Client) -> Self {
        let pods = Arc::new(Mutex::new(RecordedPods::default()));
        let kept = Arc::clone(&pods);
        let task = tokio::spawn(async move {
            let events = watcher(Api::<Pod>::all(client), watcher::Config::default()).default_backoff();
            let mut events: std::pin::Pin<&mut StreamBackoff<_, _>> = pin!(events);
            while let Some(event) = events.next().await {
                // The watcher retries by itself, starting with a list: an unavailable API server is part of the tests.
                if let Ok(event) = event {
                    kept.lock().expect("no thread panics while holding the lock").handle(event);
                }
            }
        });
        Self { pods, task }
    }

    pub(crate) fn pods(&self) -> MutexGuard<'_, RecordedPods> {
        self.pods.lock().expect("no thread panics while holding the lock")
    }
}

impl Drop for PodRecorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RecordedPods {
    /// Sets the number of GPUs of a node.
    pub(crate) fn set_gpus(&mut self, node: &str, gpus: i64) {
        self.room.insert(node.to_owned(), gpus);
    }

    fn handle(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed = Some(BTreeSet::new()),
            Event::InitApply(pod) => {
                let uid = self.record(&pod);
                self.listed.get_or_insert_default().insert(uid);
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                for (_, pod) in self.pods.iter_mut().filter(|(uid, _)| !listed.contains(*uid)) {
                    pod.gone = true;
                }
                self.overcommitted.extend(self.overcommitted_now());
            }
            Event::Apply(pod) => {
                let uid = self.record(&pod);
                let node = self.pods[&uid].node.clone();
                if self.is_overcommitted(&node) {
                    self.overcommitted.insert(node);
                }
            }
            Event::Delete(pod) => {
                let uid = self.record(&pod);
                self.pods.get_mut(&uid).expect("it was just seen").gone = true;
            }
        }
    }

    fn record(&mut self, pod: &Pod) -> String {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let now = RecordedPod::of(pod);
        if let Some(before) = self.pods.get(&uid)
            && !before.node.is_empty()
            && before.node != now.node
        {
            self.moved.push(format!("{} was on {} and then on {:?}", now.name, before.node, now.node));
        }
        self.pods.insert(uid.clone(), now);
        uid
    }

    fn is_overcommitted(&self, node: &str) -> bool {
        let taken = self.pods.values().filter(|pod| pod.node == node && pod.is_alive()).map(|pod| pod.gpus);
        self.room.get(node).is_some_and(|room| taken.sum::<i64>() > *room)
    }

    /// Nodes whose pods request more than they have.
    pub(crate) fn overcommitted_now(&self) -> Vec<String> {
        self.room.keys().filter(|node| self.is_overcommitted(node)).cloned().collect()
    }

    /// Nodes that were ever overcommitted.
    pub(crate) fn ever_overcommitted(&self) -> &BTreeSet<String> {
        &self.overcommitted
    }

    /// Pods that changed their node, which the API does not allow.
    pub(crate) fn moved(&self) -> &[String] {
        &self.moved
    }

    /// The pods of a gang, including deleted ones.
    pub(crate) fn pods_of<'a>(&'a self, gang: &'a str) -> impl Iterator<Item = &'a RecordedPod> {
        self.pods.values().filter(move |pod| pod.gang == gang)
    }

    /// The pods of a namespace, including deleted ones.
    pub(crate) fn pods_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a RecordedPod> {
        self.pods.values().filter(move |pod| pod.namespace == namespace)
    }

    pub(crate) fn counts(&self, gang: &str) -> PodCounts {
        let mut counts = PodCounts::default();
        for pod in self.pods_of(gang) {
            counts.alive += usize::from(pod.is_alive());
            counts.bound += usize::from(pod.is_bound());
            counts.running += usize::from(pod.is_bound() && pod.phase == "Running");
            counts.refused += usize::from(pod.phase == "Failed" && pod.reason.starts_with("OutOf"));
            counts.removed += usize::from(pod.gone && !pod.node.is_empty());
        }
        counts
    }

    /// All gangs and the pods of incomplete ones, for failure messages.
    pub(crate) fn dump(&self) -> String {
        let mut text = String::new();
        let gangs: BTreeSet<&str> = self.pods.values().map(|pod| pod.gang.as_str()).collect();
        for gang in &gangs {
            writeln!(text, "gang {gang:?}: {:?}", self.counts(gang)).expect("text");
        }
        let not_running =
            self.pods.values().filter(|pod| pod.is_alive() && pod.phase != "Running" || !pod.reason.is_empty());
        for pod in not_running.take(SHOWN_MAX) {
            let RecordedPod { namespace, name, node, phase, reason, gone, .. } = pod;
            writeln!(text, "pod {namespace}/{name}: node {node:?}, {phase} {reason}, gone: {gone}").expect("text");
        }
        writeln!(
            text,
            "moved: {:?}; overcommitted now: {:?}, ever: {:?}",
            self.moved,
            self.overcommitted_now(),
            self.overcommitted
        )
        .expect("text");
        text
    }
}
