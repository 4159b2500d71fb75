//! The sweeper of pods: takes away those that nobody else will, because their node is gone or was never there, and
//! those that ended long ago when there are too many of them.
//!
//! Invariant: a pod is never swept for a node that a look at the server still finds. It must not know whose pods they
//! are.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use muster_api::wire::Node;
use muster_api::wire::object::{Kind, Object};
use muster_determinism::clock::Clock;
use muster_playground_client::conditions;
use muster_playground_client::mirror::{Key, Mirror, watch};
use muster_playground_client::refusal::{is_conflict, is_not_found};
use muster_playground_client::seen::{self, SeenPod};
use muster_playground_client::task::Task;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use super::reconcile::{Controller, Queue, run};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// How patient the sweeper is.
#[derive(Clone, Copy, Debug)]
pub struct PodGarbageSettings {
    /// How often it goes round.
    pub every: Duration,
    /// How long a node must be missing before its pods are swept.
    pub quarantine: Duration,
    /// How many pods that have ended are kept; all of them if it is 0.
    pub ended_max: usize,
}

impl Default for PodGarbageSettings {
    fn default() -> Self {
        Self { every: Duration::from_secs(20), quarantine: Duration::from_secs(40), ended_max: 12_500 }
    }
}

/// Sweeps until it is dropped.
#[derive(Debug)]
pub struct PodGarbage {
    pub(super) task: Task,
}

impl PodGarbage {
    /// Starts the client. Needs a tokio runtime.
    pub fn start(client: Client, settings: PodGarbageSettings, clock: Clock) -> Self {
        let everything = watcher::Config::default;
        let events = stream::select_all([
            watch(Api::<Node>::all(client.clone()), everything()).map(Event::Node).boxed(),
            watch(Api::<SweptPod>::all(client.clone()), everything()).map(Event::Pod).boxed(),
        ]);
        let sweeper = Sweeper {
            client,
            settings,
            clock,
            nodes: Mirror::default(),
            pods: Mirror::default(),
            missing: BTreeMap::new(),
        };
        Self { task: Task::start("pod garbage collector", run(sweeper, events)) }
    }
}

type SweptPod = Object<SweptPodKind>;

/// The kind `Pod`, as far as the sweeper looks at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SweptPodKind;

impl Kind for SweptPodKind {
    type Spec = SweptSpec;
    type Status = SweptStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SweptSpec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct SweptStatus {
    phase: Option<String>,
    reason: Option<String>,
}

fn node_of(pod: &SweptPod) -> &str {
    pod.spec.node_name.as_deref().unwrap_or_default()
}

fn has_ended(pod: &SweptPod) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn is_terminating(pod: &SweptPod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Drops what the sweeper does not look at; of many pods that is most of the memory.
fn slim(pod: &mut SweptPod) {
    pod.metadata.labels = None;
    pod.metadata.annotations = None;
    pod.metadata.owner_references = None;
}

#[allow(clippy::large_enum_variant)] // there is one at a time
enum Event {
    Node(watcher::Event<Node>),
    Pod(watcher::Event<SweptPod>),
}

struct Sweeper {
    client: Client,
    settings: PodGarbageSettings,
    clock: Clock,
    nodes: Mirror<Node>,
    pods: Mirror<SweptPod>,
    /// Nodes that pods name and nobody has seen, and until when that may be a mistake.
    missing: BTreeMap<String, Instant>,
}

impl Controller for Sweeper {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut Queue) {
        let first = !self.is_ready();
        match event {
            Event::Node(event) => drop(self.nodes.take(event)),
            Event::Pod(event) => {
                let event = match event {
                    watcher::Event::Apply(mut pod) => {
                        slim(&mut pod);
                        watcher::Event::Apply(pod)
                    }
                    watcher::Event::InitApply(mut pod) => {
                        slim(&mut pod);
                        watcher::Event::InitApply(pod)
                    }
                    event => event,
                };
                drop(self.pods.take(event));
            }
        }
        if first && self.is_ready() {
            queue.soon(Key::default());
        }
    }

    fn is_ready(&self) -> bool {
        self.nodes.is_complete() && self.pods.is_complete()
    }

    async fn reconcile(&mut self, _: &Key) -> Result<Option<Duration>, kube::Error> {
        // What fails now is found again at the next round.
        let victims = self.victims().await;
        for (pod, why) in &victims {
            drop(self.sweep(pod, *why).await);
        }
        Ok(Some(self.settings.every))
    }
}

/// Why a pod is swept, where the pod is to tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    NodeGone,
    Untold,
}

impl Sweeper {
    async fn victims(&mut self) -> Vec<(SweptPod, Why)> {
        let gone = self.gone_nodes().await;
        let mut victims: Vec<(SweptPod, Why)> = Vec::new();
        for pod in self.pods.all() {
            let node = node_of(pod);
            if gone.iter().any(|name| name == node) {
                victims.push(((**pod).clone(), Why::NodeGone));
            } else if is_terminating(pod) && (node.is_empty() || self.is_out_of_service(node)) {
                victims.push(((**pod).clone(), Why::Untold));
            }
        }
        victims.extend(self.too_many().into_iter().map(|pod| (pod, Why::Untold)));
        victims
    }

    /// The nodes that have been missing for long enough, and that the server does not have either.
    async fn gone_nodes(&mut self) -> Vec<String> {
        let now = Instant::now();
        let named: Vec<&str> = self.pods.all().map(|pod| node_of(pod)).filter(|node| !node.is_empty()).collect();
        let mut missing = BTreeMap::new();
        for name in named {
            let key = (String::new(), name.to_owned());
            if self.nodes.get(&key).is_none() && !missing.contains_key(name) {
                let until = self.missing.get(name).copied().unwrap_or(now + self.settings.quarantine);
                missing.insert(name.to_owned(), until);
            }
        }
        self.missing = missing;
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut gone = Vec::new();
        for name in self.missing.iter().filter(|(_, until)| **until <= now).map(|(name, _)| name) {
            if matches!(nodes.get_metadata_opt(name).await, Ok(None)) {
                gone.push(name.clone());
            }
        }
        gone
    }

    fn is_out_of_service(&self, name: &str) -> bool {
        let Some(node) = self.nodes.get(&(String::new(), name.to_owned())) else { return false };
        let is_ready = node.status.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True");
        !is_ready && node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
    }

    /// Ended pods beyond what is kept: evicted ones first, then the oldest.
    fn too_many(&self) -> Vec<SweptPod> {
        if self.settings.ended_max == 0 {
            return Vec::new();
        }
        let mut ended: Vec<&SweptPod> = self.pods.all().map(|pod| &**pod).filter(|pod| has_ended(pod)).collect();
        let surplus = ended.len().saturating_sub(self.settings.ended_max);
        let age = |pod: &SweptPod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let rank = |pod: &SweptPod| -> (bool, Option<Timestamp>, String) {
            (pod.status.reason.as_deref() != Some("Evicted"), age(pod), pod.name_any())
        };
        if surplus > 0 {
            ended.sort_by_cached_key(|pod| rank(pod));
        }
        ended.into_iter().take(surplus).cloned().collect()
    }

    /// Marks a pod as failed if it has not ended, and deletes it without grace.
    async fn sweep(&self, pod: &SweptPod, why: Why) -> Result<(), kube::Error> {
        let namespace = pod.namespace().unwrap_or_default();
        if !has_ended(pod) {
            self.mark(pod, &namespace, why).await?;
        }
        let pods: Api<SweptPod> = Api::namespaced(self.client.clone(), &namespace);
        let only = Preconditions { uid: pod.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default().grace_period(0) };
        match pods.delete(&pod.name_any(), &parameters).await {
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    async fn mark(&self, pod: &SweptPod, namespace: &str, why: Why) -> Result<(), kube::Error> {
        let pods: Api<SeenPod> = Api::namespaced(self.client.clone(), namespace);
        let Some(whole) = pods.get_opt(&pod.name_any()).await? else { return Ok(()) };
        if whole.metadata.uid != pod.metadata.uid || seen::is_finished(&whole) {
            return Ok(());
        }
        let mut list = whole.status["conditions"].as_array().cloned().unwrap_or_default();
        if why == Why::NodeGone {
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
            });
            conditions::put(&mut list, condition, self.clock.now());
        }
        let patch = json!({
            "metadata": {"uid": whole.metadata.uid, "resourceVersion": whole.metadata.resource_version},
            "status": {"phase": "Failed", "conditions": list},
        });
        match pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }
}
