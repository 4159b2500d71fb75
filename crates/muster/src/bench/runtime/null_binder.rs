//! The null binder: what the server takes from a client that thinks nothing.
//!
//! It watches its pods and binds them round robin, with as many requests on their way as the scheduler has, through the
//! same kind of client on one thread.

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Binding, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{PostParams, WatchEvent, WatchParams};
use muster_api::wire::Pod;
use muster_runtime::Settings;

/// The `schedulerName` of its pods.
pub(crate) const NULL_BINDER: &str = "null-binder";

/// Binds until it is killed.
pub(crate) fn bind_for_ever(server: &str, nodes: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut config = kube::Config::new(server.parse().context("--server")?);
        config.default_retry = false;
        let client = kube::Client::try_from(config)?;
        let pods: Api<Pod> = Api::all(client.clone());
        let mine = WatchParams::default().fields(&format!("spec.schedulerName={NULL_BINDER}"));
        let events = pods.watch(&mine, "0").await?;
        let new = events.try_filter_map(async |event| match event {
            WatchEvent::Added(pod) if pod.spec.node_name.is_empty() => Ok(Some(pod)),
            _ => Ok(None),
        });
        let binds = new.enumerate().map(|(number, pod)| bind(client.clone(), pod, number % nodes));
        let binds = binds.buffer_unordered(Settings::default().binds_in_flight_max);
        binds.try_for_each(async |()| Ok(())).await
    })
}

async fn bind(client: kube::Client, pod: kube::Result<Pod>, node: usize) -> anyhow::Result<()> {
    let pod = pod?;
    let name = pod.metadata.name.unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client, pod.metadata.namespace.as_deref().unwrap_or("default"));
    let target = ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some(super::objects::node_name(node)),
        ..ObjectReference::default()
    };
    let metadata = ObjectMeta { name: Some(name.clone()), uid: pod.metadata.uid, ..ObjectMeta::default() };
    let binding = Binding { metadata, target };
    let parameters = PostParams::default();
    pods.create_subresource::<Binding, kube::core::Status>("binding", &name, &parameters, &binding).await?;
    Ok(())
}
