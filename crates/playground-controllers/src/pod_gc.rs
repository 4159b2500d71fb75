//! The pod garbage collector: deletes pods whose node no longer exists, terminating pods that were never bound or are
//! on an out-of-service node, and the oldest terminated pods above the threshold.
//!
//! Invariant: a pod is never deleted for a node that a read from the server still finds. Must not depend on the owners
//! of the pods.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt};
use muster_api::wire::Node;
use muster_api::wire::object::{Kind, Object};
use muster_clock::Clock;
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use muster_playground_client::conditions;
use muster_playground_client::task::Task;
use muster_playground_client::untyped::{self, UntypedPod};
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Key, Selection};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use super::reconcile::{Controller, WorkQueue, run};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Settings of the controller.
#[derive(Clone, Copy, Debug)]
pub struct PodGcSettings {
    /// The sync period.
    pub sync_period: Duration,
    /// How long a node must be missing before its pods are deleted.
    pub quarantine: Duration,
    /// How many terminated pods are kept; 0 keeps all.
    pub terminated_max: usize,
}

impl Default for PodGcSettings {
    fn default() -> Self {
        Self { sync_period: Duration::from_secs(20), quarantine: Duration::from_secs(40), terminated_max: 12_500 }
    }
}

/// The pod garbage collector. It runs until this is dropped.
#[derive(Debug)]
pub struct PodGc {
    pub(super) task: Task,
}

impl PodGc {
    /// Starts the controller. Needs a tokio runtime.
    pub fn start(client: Client, settings: PodGcSettings, clock: Clock) -> Self {
        let events = stream::select_all([
            watch(Api::<Node>::all(client.clone()), Selection::default()).map(Event::Node).boxed(),
            watch(Api::<GcPod>::all(client.clone()), Selection::default()).map(Event::Pod).boxed(),
        ]);
        let controller = PodGcController {
            client,
            settings,
            clock,
            nodes: Cache::default(),
            pods: Cache::default(),
            missing: BTreeMap::new(),
        };
        Self { task: Task::start("pod garbage collector", run(controller, events)) }
    }
}

type GcPod = Object<GcPodKind>;

/// The kind `Pod`, as far as this controller needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GcPodKind;

impl Kind for GcPodKind {
    type Spec = GcPodSpec;
    type Status = GcPodStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GcPodSpec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct GcPodStatus {
    phase: Option<String>,
    reason: Option<String>,
}

fn node_of(pod: &GcPod) -> &str {
    pod.spec.node_name.as_deref().unwrap_or_default()
}

fn is_terminated(pod: &GcPod) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn is_terminating(pod: &GcPod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Drops fields that this controller does not use, which are most of the memory when there are many pods.
fn strip_unused_fields(pod: &mut GcPod) {
    pod.metadata.labels = None;
    pod.metadata.annotations = None;
    pod.metadata.owner_references = None;
}

#[allow(clippy::large_enum_variant)] // only one exists at a time
enum Event {
    Node(Delta<Node>),
    Pod(Delta<GcPod>),
}

struct PodGcController {
    client: Client,
    settings: PodGcSettings,
    clock: Clock,
    nodes: Cache<Node>,
    pods: Cache<GcPod>,
    /// Nodes that pods name and the cache does not have, with the end of their quarantine.
    missing: BTreeMap<String, Instant>,
}

impl Controller for PodGcController {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut WorkQueue) {
        let first = !self.has_synced();
        match event {
            Event::Node(event) => drop(self.nodes.apply(event)),
            Event::Pod(event) => drop(self.pods.apply(event.modify(strip_unused_fields))),
        }
        if first && self.has_synced() {
            queue.add(Key::default());
        }
    }

    fn has_synced(&self) -> bool {
        self.nodes.has_synced() && self.pods.has_synced()
    }

    async fn reconcile(&mut self, _: &Key) -> Result<Option<Duration>, kube::Error> {
        // A pod that fails now is found again in the next round.
        let pods_to_delete = self.pods_to_delete().await;
        for (pod, reason) in &pods_to_delete {
            drop(self.delete_pod(pod, *reason).await);
        }
        Ok(Some(self.settings.sync_period))
    }
}

/// Why a pod is deleted, if a condition has to record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeletionReason {
    NodeGone,
    NoCondition,
}

impl PodGcController {
    async fn pods_to_delete(&mut self) -> Vec<(GcPod, DeletionReason)> {
        let gone = self.gone_nodes().await;
        let mut pods_to_delete: Vec<(GcPod, DeletionReason)> = Vec::new();
        for pod in self.pods.all() {
            let node = node_of(pod);
            if gone.iter().any(|name| name == node) {
                pods_to_delete.push(((**pod).clone(), DeletionReason::NodeGone));
            } else if is_terminating(pod) && (node.is_empty() || self.is_out_of_service(node)) {
                pods_to_delete.push(((**pod).clone(), DeletionReason::NoCondition));
            }
        }
        pods_to_delete.extend(self.above_threshold().into_iter().map(|pod| (pod, DeletionReason::NoCondition)));
        pods_to_delete
    }

    /// The nodes that have been missing for long enough and that the server does not have either.
    async fn gone_nodes(&mut self) -> Vec<String> {
        let now = Instant::now();
        let named: Vec<&str> = self.pods.all().map(|pod| node_of(pod)).filter(|node| !node.is_empty()).collect();
        let mut missing = BTreeMap::new();
        for name in named {
            if self.nodes.find("", name).is_none() && !missing.contains_key(name) {
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
        let Some(node) = self.nodes.find("", name) else { return false };
        let is_ready = node.status.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True");
        !is_ready && node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
    }

    /// Terminated pods above the threshold: evicted ones first, then the oldest.
    fn above_threshold(&self) -> Vec<GcPod> {
        if self.settings.terminated_max == 0 {
            return Vec::new();
        }
        let mut ended: Vec<&GcPod> = self.pods.all().map(|pod| &**pod).filter(|pod| is_terminated(pod)).collect();
        let surplus = ended.len().saturating_sub(self.settings.terminated_max);
        let age = |pod: &GcPod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let rank = |pod: &GcPod| -> (bool, Option<Timestamp>, String) {
            (pod.status.reason.as_deref() != Some("Evicted"), age(pod), pod.name_any())
        };
        if surplus > 0 {
            ended.sort_by_cached_key(|pod| rank(pod));
        }
        ended.into_iter().take(surplus).cloned().collect()
    }

    /// Marks a pod as failed if it has not terminated, and deletes it without grace period.
    async fn delete_pod(&self, pod: &GcPod, reason: DeletionReason) -> Result<(), kube::Error> {
        let namespace = pod.namespace().unwrap_or_default();
        if !is_terminated(pod) {
            self.mark_failed(pod, &namespace, reason).await?;
        }
        let pods: Api<GcPod> = Api::namespaced(self.client.clone(), &namespace);
        let only = Preconditions { uid: pod.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default().grace_period(0) };
        match pods.delete(&pod.name_any(), &parameters).await {
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    async fn mark_failed(&self, pod: &GcPod, namespace: &str, reason: DeletionReason) -> Result<(), kube::Error> {
        let pods: Api<UntypedPod> = Api::namespaced(self.client.clone(), namespace);
        let Some(current) = pods.get_opt(&pod.name_any()).await? else { return Ok(()) };
        if current.metadata.uid != pod.metadata.uid || untyped::is_finished(&current) {
            return Ok(());
        }
        let mut list = current.status["conditions"].as_array().cloned().unwrap_or_default();
        if reason == DeletionReason::NodeGone {
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
            });
            conditions::set(&mut list, condition, self.clock.now());
        }
        let patch = json!({
            "metadata": {"uid": current.metadata.uid, "resourceVersion": current.metadata.resource_version},
            "status": {"phase": "Failed", "conditions": list},
        });
        match pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }
}
