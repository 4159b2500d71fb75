//! `muster-lab bench null-binder`: a binder without any scheduling, as an upper bound for the server.
//!
//! It lists the nodes once, watches its pods and binds them round robin, with as many requests in flight as the
//! scheduler, through the same kind of client on one thread. It keeps reading while it binds: a server ends watches of
//! slow readers.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use muster_api::wire::Pod;
use muster_runtime::Settings;
use tokio::sync::mpsc;

/// The `schedulerName` of its pods.
pub(crate) const NULL_BINDER: &str = "null-binder";

/// The cluster to bind on.
#[derive(Args)]
pub(crate) struct Options {
    /// The kubeconfig of the cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
}

/// Binds until it is killed.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = muster::client::config(Some(&options.kubeconfig)).await?;
        bind_for_ever(&muster::client::connect(&config)?).await
    })
}

async fn bind_for_ever(client: &kube::Client) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    let nodes: Vec<String> = nodes.items.into_iter().filter_map(|node| node.metadata.name).collect();
    if nodes.is_empty() {
        bail!("there are no nodes");
    }
    let (found, waiting) = mpsc::unbounded_channel();
    let watched = watch(Api::all(client.clone()), found);
    let waiting = futures::stream::unfold(waiting, async |mut waiting| Some((waiting.recv().await?, waiting)));
    let binds = waiting.enumerate().map(|(number, pod)| bind(client.clone(), pod, &nodes[number % nodes.len()]));
    let binds = binds.buffer_unordered(Settings::default().binds_in_flight_max);
    tokio::try_join!(watched, binds.try_for_each(async |()| Ok(())))?;
    Ok(())
}

/// Sends each pod once.
async fn watch(pods: Api<Pod>, found: mpsc::UnboundedSender<Pod>) -> anyhow::Result<()> {
    let mine = watcher::Config::default().fields(&format!("spec.schedulerName={NULL_BINDER}"));
    let events = watcher(pods, mine).default_backoff();
    futures::pin_mut!(events);
    let mut known = HashSet::new();
    while let Some(event) = events.try_next().await? {
        if let Event::InitApply(pod) | Event::Apply(pod) = event
            && pod.spec.node_name.is_empty()
            && known.insert(pod.metadata.uid.clone())
        {
            found.send(pod)?;
        }
    }
    Ok(())
}

async fn bind(client: kube::Client, pod: Pod, node: &str) -> anyhow::Result<()> {
    let name = pod.metadata.name.unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client, pod.metadata.namespace.as_deref().unwrap_or("default"));
    let target =
        ObjectReference { kind: Some("Node".to_owned()), name: Some(node.to_owned()), ..ObjectReference::default() };
    let metadata = ObjectMeta { name: Some(name.clone()), uid: pod.metadata.uid, ..ObjectMeta::default() };
    let binding = Binding { metadata, target };
    let parameters = PostParams::default();
    pods.create_subresource::<Binding, kube::core::Status>("binding", &name, &parameters, &binding).await?;
    Ok(())
}
