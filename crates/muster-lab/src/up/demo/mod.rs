//! Demos of a new cluster: objects that are created step by step, and texts that explain them.
//!
//! A demo consists of objects as users write them; nothing is scripted beyond that. Its size follows the number of
//! nodes of `--nodes`, each with eight GPUs.

mod board;
mod deadlock;
mod topology;
mod training;

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use muster_api::wire::Pod;
use muster_playground::Server;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::objects;

pub(super) use board::show;

/// The GPUs of a node.
const GPUS: u32 = 8;
/// The resource that the demos request.
const GPU: &str = "nvidia.com/gpu";
/// How long a gang of a Job works.
const WORK_SECONDS: u32 = 120;
/// The namespace of all demos.
const NAMESPACE: &str = "demo";
/// The ConfigMap that marks a cluster whose demo is decided.
const DECIDED_MARK: &str = "muster-up";
const MARK_NAMESPACE: &str = "kube-system";
/// How long the pods of a step may take to be bound.
const STEP_MAX: Duration = Duration::from_secs(30);

/// A demo and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demo {
    /// A gang that runs, one that is pending, and plain pods.
    Training { nodes: u32 },
    /// Two gangs with capacity for one, scheduled pod by pod and as gangs.
    Deadlock { nodes: u32 },
    /// Gangs in one zone and in one rack, and one that finds no free rack.
    Topology { nodes: u32 },
}

/// Objects that are created together.
struct Step {
    objects: Vec<Value>,
    /// The next step starts when so many pods with this label are bound.
    then: Option<(&'static str, usize)>,
}

impl Demo {
    /// On fewer nodes there is nothing to see.
    pub(super) const NODES_MIN: u32 = 4;

    /// Why there is nothing to see on its nodes.
    pub(super) fn unsuitable(self) -> Option<String> {
        match self {
            Demo::Topology { nodes } => topology::unsuitable(nodes),
            Demo::Training { .. } | Demo::Deadlock { .. } => None,
        }
    }

    /// What the demo shows, and commands to look at it.
    pub(super) fn introduction(self) -> String {
        match self {
            Demo::Training { nodes } => training::introduction(nodes),
            Demo::Deadlock { nodes } => deadlock::introduction(nodes),
            Demo::Topology { nodes } => topology::introduction(nodes),
        }
    }

    /// Creates the objects of the demo.
    pub(super) async fn start(self, server: &Server) -> anyhow::Result<()> {
        let client = server.client();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        objects::create(&client, &namespace).await?;
        let steps = match self {
            Demo::Training { nodes } => training::steps(nodes),
            Demo::Deadlock { nodes } => deadlock::steps(nodes),
            Demo::Topology { nodes } => topology::steps(nodes),
        };
        for step in steps {
            for object in &step.objects {
                objects::create(&client, object).await?;
            }
            if let Some((label, pods)) = step.then {
                await_bound(server, label, pods).await.with_context(|| format!("the demo's pods {label}"))?;
            }
        }
        if let Demo::Topology { .. } = self {
            println!("The racks, node by node, each pod with its rank:\n{}\n", topology::racks(server).await?);
        }
        Ok(())
    }
}

/// Whether the demo of this cluster is decided already.
pub(super) async fn is_decided(server: &Server) -> anyhow::Result<bool> {
    Ok(config_maps(server).get_opt(DECIDED_MARK).await?.is_some())
}

/// Records that the demo is decided: later starts show none unless it is requested.
pub(super) async fn record_decided(server: &Server) -> anyhow::Result<()> {
    let mark = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": MARK_NAMESPACE, "name": DECIDED_MARK},
        "data": {"about": "muster-lab up has put its demo on this cluster, or was told not to"}});
    objects::create(&server.client(), &mark).await
}

fn config_maps(server: &Server) -> Api<ConfigMap> {
    Api::namespaced(server.client(), MARK_NAMESPACE)
}

/// Waits until so many pods with a label are bound.
async fn await_bound(server: &Server, label: &str, wanted: usize) -> anyhow::Result<()> {
    let pods = Api::<Pod>::namespaced(server.client(), NAMESPACE);
    let selection = ListParams::default().labels(label);
    let mut changes = server.revisions();
    let ends = Instant::now() + STEP_MAX;
    loop {
        let found = pods.list(&selection).await?;
        let count = found.iter().filter(|pod| !pod.spec.node_name.is_empty()).count();
        if count >= wanted {
            return Ok(());
        }
        let left = ends.saturating_duration_since(Instant::now());
        match timeout(left, changes.changed()).await {
            Ok(changed) => changed?,
            Err(_) => bail!("{count} of {wanted} were placed within {} s", STEP_MAX.as_secs()),
        }
    }
}

/// The PodGroup of a gang.
fn gang(name: &str, pods: u32) -> Value {
    json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup", "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"policy": {"gang": {"minCount": pods}}}})
}

/// A Job whose pods have a rank each and are members of the group of its name.
fn indexed_job(name: &str, pods: u32) -> Value {
    let mut annotations = work_annotations(name, pods, WORK_SECONDS);
    annotations["muster.dev/pod-group"] = json!(name);
    let mut spec = pod_spec(GPUS);
    spec["restartPolicy"] = json!("Never");
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"parallelism": pods, "completions": pods, "completionMode": "Indexed",
            "template": {"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": spec}}})
}

/// The spec of an idle pod with so many GPUs.
fn pod_spec(gpus: u32) -> Value {
    json!({"schedulerName": muster_api::keys::SCHEDULER_NAME, "containers": [{
        "name": "main", "image": "registry.example/work", "resources": {"limits": {GPU: gpus}},
    }]})
}

/// Annotations of a pod that runs for so long once its whole gang runs.
fn work_annotations(gang: &str, pods: u32, seconds: u32) -> Value {
    json!({"playground.muster.dev/meets": format!("{gang}/{pods}"), "playground.muster.dev/run-seconds": seconds.to_string()})
}

/// A watch of all pods of the demo.
fn pods_of(server: &Server) -> impl futures::Stream<Item = kube::runtime::watcher::Event<Pod>> + Send + Unpin {
    let pods = Api::<Pod>::namespaced(server.client(), NAMESPACE);
    let events = kube::runtime::watcher(pods, kube::runtime::watcher::Config::default());
    Box::pin(kube::runtime::WatchStreamExt::default_backoff(events).filter_map(|event| async { event.ok() }))
}
