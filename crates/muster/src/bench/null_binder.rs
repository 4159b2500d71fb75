//! `muster bench null-binder`: what a server takes from a client that thinks nothing.
//!
//! It lists the nodes once, watches its pods and binds them round robin, with as many requests on their way as the
//! scheduler has, through the same kind of client on one thread.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use muster_api::wire::Pod;
use muster_runtime::Settings;

/// The `schedulerName` of its pods.
pub(crate) const NULL_BINDER: &str = "null-binder";

/// Where it binds.
#[derive(Args)]
pub(crate) struct Options {
    /// The cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
}

/// Binds until it is killed.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = crate::run::client::config(Some(&options.kubeconfig)).await?;
        bind_for_ever(&crate::run::client::connect(&config)?).await
    })
}

async fn bind_for_ever(client: &kube::Client) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    let nodes: Vec<String> = nodes.items.into_iter().filter_map(|node| node.metadata.name).collect();
    if nodes.is_empty() {
        bail!("there are no nodes");
    }
    let pods: Api<Pod> = Api::all(client.clone());
    let mine = WatchParams::default().fields(&format!("spec.schedulerName={NULL_BINDER}"));
    let events = pods.watch(&mine, "0").await?;
    let new = events.try_filter_map(async |event| match event {
        WatchEvent::Added(pod) if pod.spec.node_name.is_empty() => Ok(Some(pod)),
        _ => Ok(None),
    });
    let binds = new.enumerate().map(|(number, pod)| bind(client.clone(), pod, &nodes[number % nodes.len()]));
    let binds = binds.buffer_unordered(Settings::default().binds_in_flight_max);
    binds.try_for_each(async |()| Ok(())).await
}

async fn bind(client: kube::Client, pod: kube::Result<Pod>, node: &str) -> anyhow::Result<()> {
    let pod = pod?;
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
