//! A witness: it watches all pods and keeps what the API showed of each, from its first sight on.
//!
//! Invariant: a pod that was ever shown on two nodes, and a node that was ever shown with more than it has, are noted
//! and never forgotten. It must not know what a test is about, nor anything of the scheduler's own arithmetic.

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

/// The label by which pods tell which gang they are of.
pub(crate) const GANG: &str = "gang";
pub(crate) const GPU: &str = "nvidia.com/gpu";
/// How many pods a failing test tells of.
const TOLD_MAX: usize = 40;

/// A watch of all pods, for as long as this lives.
pub(crate) struct Witness {
    book: Arc<Mutex<Book>>,
    task: JoinHandle<()>,
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// By UID, also those that are gone.
    pods: BTreeMap<String, Seen>,
    /// The GPUs of each node.
    room: BTreeMap<String, i64>,
    /// Pods of a list that is not complete yet.
    listed: Option<BTreeSet<String>>,
    /// What must not happen, whatever the test is about.
    moved: Vec<String>,
    /// Nodes that were ever given more than they have.
    overfull: BTreeSet<String>,
}

/// A pod as it was last shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) gang: String,
    pub(crate) node: String,
    pub(crate) phase: String,
    pub(crate) reason: String,
    pub(crate) gone: bool,
    gpus: i64,
}

/// How many pods of a gang there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// That are there and have not ended.
    pub(crate) alive: usize,
    /// Of those, that are on a node.
    pub(crate) bound: usize,
    /// Of those, that run.
    pub(crate) running: usize,
    /// That were ever refused by a kubelet.
    pub(crate) refused: usize,
    /// That were on a node and are there no more.
    pub(crate) removed: usize,
}

impl Seen {
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

    /// Whether it takes room on its node, or asks for some.
    pub(crate) fn is_alive(&self) -> bool {
        !self.gone && self.phase != "Succeeded" && self.phase != "Failed"
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.is_alive() && !self.node.is_empty()
    }
}

impl Witness {
    /// Begins to watch on the current runtime.
    pub(crate) fn start(client: Client) -> Self {
        let book = Arc::new(Mutex::new(Book::default()));
        let kept = Arc::clone(&book);
        let task = tokio::spawn(async move {
            let events = watcher(Api::<Pod>::all(client), watcher::Config::default()).default_backoff();
            let mut events: std::pin::Pin<&mut StreamBackoff<_, _>> = pin!(events);
            while let Some(event) = events.next().await {
                // It comes back by itself, and with a list: an API server that is away is part of the tests.
                if let Ok(event) = event {
                    kept.lock().expect("nobody panics with it").take(event);
                }
            }
        });
        Self { book, task }
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("nobody panics with it")
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Book {
    /// A node has so many GPUs.
    pub(crate) fn expect_room(&mut self, node: &str, gpus: i64) {
        self.room.insert(node.to_owned(), gpus);
    }

    fn take(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed = Some(BTreeSet::new()),
            Event::InitApply(pod) => {
                let uid = self.see(&pod);
                self.listed.get_or_insert_default().insert(uid);
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                for (_, pod) in self.pods.iter_mut().filter(|(uid, _)| !listed.contains(*uid)) {
                    pod.gone = true;
                }
                self.overfull.extend(self.overfull_now());
            }
            Event::Apply(pod) => {
                let uid = self.see(&pod);
                let node = self.pods[&uid].node.clone();
                if self.is_overfull(&node) {
                    self.overfull.insert(node);
                }
            }
            Event::Delete(pod) => {
                let uid = self.see(&pod);
                self.pods.get_mut(&uid).expect("it was just seen").gone = true;
            }
        }
    }

    fn see(&mut self, pod: &Pod) -> String {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let now = Seen::of(pod);
        if let Some(before) = self.pods.get(&uid)
            && !before.node.is_empty()
            && before.node != now.node
        {
            self.moved.push(format!("{} was on {} and then on {:?}", now.name, before.node, now.node));
        }
        self.pods.insert(uid.clone(), now);
        uid
    }

    fn is_overfull(&self, node: &str) -> bool {
        let taken = self.pods.values().filter(|pod| pod.node == node && pod.is_alive()).map(|pod| pod.gpus);
        self.room.get(node).is_some_and(|room| taken.sum::<i64>() > *room)
    }

    /// Nodes whose pods ask for more than there is.
    pub(crate) fn overfull_now(&self) -> Vec<String> {
        self.room.keys().filter(|node| self.is_overfull(node)).cloned().collect()
    }

    /// Nodes of which that was ever true.
    pub(crate) fn overfull_ever(&self) -> &BTreeSet<String> {
        &self.overfull
    }

    /// Pods that changed their node, which nobody can do.
    pub(crate) fn moved(&self) -> &[String] {
        &self.moved
    }

    /// The pods of a gang that are there, and those that were.
    pub(crate) fn pods_of<'a>(&'a self, gang: &'a str) -> impl Iterator<Item = &'a Seen> {
        self.pods.values().filter(move |pod| pod.gang == gang)
    }

    /// The pods of a namespace that are there, and those that were.
    pub(crate) fn pods_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Seen> {
        self.pods.values().filter(move |pod| pod.namespace == namespace)
    }

    pub(crate) fn tally(&self, gang: &str) -> Tally {
        let mut tally = Tally::default();
        for pod in self.pods_of(gang) {
            tally.alive += usize::from(pod.is_alive());
            tally.bound += usize::from(pod.is_bound());
            tally.running += usize::from(pod.is_bound() && pod.phase == "Running");
            tally.refused += usize::from(pod.phase == "Failed" && pod.reason.starts_with("OutOf"));
            tally.removed += usize::from(pod.gone && !pod.node.is_empty());
        }
        tally
    }

    /// All gangs and, of those that are not whole, pods: for whoever has to find out why something failed.
    pub(crate) fn told(&self) -> String {
        let mut text = String::new();
        let gangs: BTreeSet<&str> = self.pods.values().map(|pod| pod.gang.as_str()).collect();
        for gang in &gangs {
            writeln!(text, "gang {gang:?}: {:?}", self.tally(gang)).expect("text");
        }
        let odd = self.pods.values().filter(|pod| pod.is_alive() && pod.phase != "Running" || !pod.reason.is_empty());
        for pod in odd.take(TOLD_MAX) {
            let Seen { namespace, name, node, phase, reason, gone, .. } = pod;
            writeln!(text, "pod {namespace}/{name}: node {node:?}, {phase} {reason}, gone: {gone}").expect("text");
        }
        writeln!(text, "moved: {:?}; overfull now: {:?}, ever: {:?}", self.moved, self.overfull_now(), self.overfull)
            .expect("text");
        text
    }
}
