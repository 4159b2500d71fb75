//! What a new cluster shows of itself: objects that are put on it step by step, and the words that explain them.
//!
//! A demo is made of the objects that users write; nothing in it is played. Its size follows the number of nodes that
//! `--nodes` makes, each with eight GPUs.

mod board;
mod deadlock;
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
/// The resource that the demos count.
const GPU: &str = "nvidia.com/gpu";
/// The namespace of all demos.
const NAMESPACE: &str = "demo";
/// Says that this cluster has had its demo.
const MARK: &str = "muster-up";
const MARK_NAMESPACE: &str = "kube-system";
/// How long a step's pods may take to be placed.
const STEP_MAX: Duration = Duration::from_secs(30);

/// A demo and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demo {
    /// A gang that runs, one that waits, and plain pods.
    Training { nodes: u32 },
    /// Two gangs with room for one, by pods and by gangs.
    Deadlock { nodes: u32 },
}

/// Objects that are put on the cluster together.
struct Step {
    objects: Vec<Value>,
    /// The next step comes when so many pods with this label are placed.
    then: Option<(&'static str, usize)>,
}

impl Demo {
    /// On fewer nodes there is nothing to see.
    pub(super) const NODES_MIN: u32 = 4;

    /// What there is to see, and what to type.
    pub(super) fn introduction(self) -> String {
        match self {
            Demo::Training { nodes } => training::introduction(nodes),
            Demo::Deadlock { nodes } => deadlock::introduction(nodes),
        }
    }

    /// Puts the demo on the cluster.
    pub(super) async fn start(self, server: &Server) -> anyhow::Result<()> {
        let client = server.client();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        objects::create(&client, &namespace).await?;
        let steps = match self {
            Demo::Training { nodes } => training::steps(nodes),
            Demo::Deadlock { nodes } => deadlock::steps(nodes),
        };
        for step in steps {
            for object in &step.objects {
                objects::create(&client, object).await?;
            }
            if let Some((label, pods)) = step.then {
                placed(server, label, pods).await.with_context(|| format!("the demo's pods {label}"))?;
            }
        }
        Ok(())
    }
}

/// Whether it has been decided on this cluster what it shows of itself.
pub(super) async fn is_settled(server: &Server) -> anyhow::Result<bool> {
    Ok(marks(server).get_opt(MARK).await?.is_some())
}

/// Remembers that it has been decided: the next start shows nothing that nobody asks for.
pub(super) async fn settle(server: &Server) -> anyhow::Result<()> {
    let mark = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": MARK_NAMESPACE, "name": MARK},
        "data": {"about": "muster-lab up has put its demo on this cluster, or was told not to"}});
    objects::create(&server.client(), &mark).await
}

fn marks(server: &Server) -> Api<ConfigMap> {
    Api::namespaced(server.client(), MARK_NAMESPACE)
}

/// Waits until so many pods with a label have a node.
async fn placed(server: &Server, label: &str, wanted: usize) -> anyhow::Result<()> {
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

/// A gang's object.
fn gang(name: &str, pods: u32) -> Value {
    json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup", "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"policy": {"gang": {"minCount": pods}}}})
}

/// The spec of a pod that does nothing on so many GPUs.
fn pod_spec(gpus: u32) -> Value {
    json!({"schedulerName": muster_api::keys::SCHEDULER_NAME, "containers": [{
        "name": "main", "image": "registry.example/work", "resources": {"limits": {GPU: gpus}},
    }]})
}

/// Annotations of a pod that works for so long once all of its gang run.
fn works(gang: &str, pods: u32, seconds: u32) -> Value {
    json!({"playground.muster.dev/meets": format!("{gang}/{pods}"), "playground.muster.dev/run-seconds": seconds.to_string()})
}

/// How many pods of a label there are, for whoever counts them.
fn pods_of(server: &Server) -> impl futures::Stream<Item = kube::runtime::watcher::Event<Pod>> + Send + Unpin {
    let pods = Api::<Pod>::namespaced(server.client(), NAMESPACE);
    let events = kube::runtime::watcher(pods, kube::runtime::watcher::Config::default());
    Box::pin(kube::runtime::WatchStreamExt::default_backoff(events).filter_map(|event| async { event.ok() }))
}
