//! An in-process cluster: installs Muster's kinds, then binds a pod that runs and ends, all within a moment.
//!
//! `cargo run -p muster-playground --example first`

use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, PostParams};
use muster_playground::components::{Cluster, Shape};
use muster_playground::{Server, Settings};
use serde_json::json;

// Under paused time a sleep ends as soon as all tasks are idle.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::time::pause();
    let server = Server::start(Settings::default());
    let client = server.client();

    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for text in [muster_api::crds::WORKLOADS, muster_api::crds::PODGROUPS] {
        let made = definitions.create(&PostParams::default(), &serde_saphyr::from_str(text)?).await?;
        println!("installed {}", made.metadata.name.unwrap_or_default());
    }

    let _cluster = Cluster::start(&client, &Shape::default(), server.clock())?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let nodes: Api<Node> = Api::all(client.clone());
    println!("{} nodes", nodes.list(&ListParams::default()).await?.items.len());

    let pods: Api<Pod> = Api::default_namespaced(client);
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "train"},
        "spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "train:1", "command": ["sleep", "3600"], "resources": {"limits": {"nvidia.com/gpu": 8}}},
        ]},
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    let binding: Binding =
        serde_json::from_value(json!({"metadata": {"name": "train"}, "target": {"kind": "Node", "name": "node-00"}}))?;
    let _: serde_json::Value = pods.create_subresource("binding", "train", &PostParams::default(), &binding).await?;

    for _ in 0..3 {
        let status = pods.get("train").await?.status.unwrap_or_default();
        println!("{} train is {}", server.now(), status.phase.unwrap_or_default());
        tokio::time::sleep(Duration::from_secs(1900)).await;
    }
    Ok(())
}
