//! The load: creates objects on the server in this process, some requests at once, bypassing the front.

use anyhow::{Context, bail};
use axum::body::Body;
use futures::StreamExt;
use http_body_util::BodyExt;
use muster_playground::Server;
use serde_json::{Value, json};

use super::objects::{bound_pod, gang, node, node_name, waiting_pod};

/// How many requests are in flight at once.
const CLIENTS: usize = 8;

const PODS: &str = "/api/v1/namespaces/default/pods";
const GANGS: &str = "/apis/muster.dev/v1alpha1/namespaces/default/podgroups";

/// Objects that are created at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) name: &'static str,
    pub(crate) groups: usize,
    /// Pods of each; a group of none is a plain pod.
    pub(crate) size: usize,
}

impl Batch {
    /// Plain pods.
    pub(crate) fn plain(name: &'static str, pods: usize) -> Self {
        Self { name, groups: pods, size: 0 }
    }

    /// Gangs of identical pods.
    pub(crate) fn gangs(name: &'static str, groups: usize, size: usize) -> Self {
        Self { name, groups, size }
    }

    pub(crate) fn pods(self) -> usize {
        self.groups * self.size.max(1)
    }

    /// All objects in order of creation: a gang, then its pods.
    fn objects(self, scheduler: &'static str) -> impl Iterator<Item = (&'static str, Value)> {
        (0..self.groups).flat_map(move |group| {
            let name = format!("{}-{group}", self.name);
            let object = (self.size > 0).then(|| (GANGS, gang(&name, self.size)));
            let member_of = (self.size > 0).then(|| name.clone());
            let pods = (0..self.size.max(1)).map(move |number| {
                (PODS, waiting_pod(&format!("{name}-{scheduler}-{number}"), scheduler, member_of.as_deref()))
            });
            object.into_iter().chain(pods)
        })
    }
}

/// Installs Muster's CRDs.
pub(crate) async fn install_kinds(server: &Server) -> anyhow::Result<()> {
    for text in [muster_api::crds::WORKLOADS, muster_api::crds::PODGROUPS] {
        let definition: Value = serde_saphyr::from_str(text)?;
        post(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
    }
    Ok(())
}

/// Creates nodes, and bound pods of another scheduler.
pub(crate) async fn fill(server: &Server, nodes: usize, pods: usize) -> anyhow::Result<()> {
    create(server, (0..nodes).map(|number| ("/api/v1/nodes", node(number)))).await?;
    for number in 0..nodes {
        // A new node is tainted as not ready, and there is no controller to remove the taint.
        let path = format!("/api/v1/nodes/{}", node_name(number));
        send(server, "PATCH", &path, "application/merge-patch+json", &json!({"spec": {"taints": null}})).await?;
    }
    create(server, (0..pods).map(|number| (PODS, bound_pod(number, number % nodes)))).await
}

/// Creates a batch.
pub(crate) async fn create_batch(server: &Server, batch: Batch, scheduler: &'static str) -> anyhow::Result<()> {
    create(server, batch.objects(scheduler)).await
}

async fn create(server: &Server, objects: impl Iterator<Item = (&'static str, Value)>) -> anyhow::Result<()> {
    let mut under_way = futures::stream::iter(objects)
        .map(|(path, object)| {
            let server = server.clone();
            tokio::spawn(async move { post(&server, path, &object).await })
        })
        .buffered(CLIENTS);
    while let Some(done) = under_way.next().await {
        done.context("a request")??;
    }
    Ok(())
}

async fn post(server: &Server, path: &str, object: &Value) -> anyhow::Result<()> {
    send(server, "POST", path, "application/json", object).await
}

async fn send(server: &Server, method: &str, path: &str, kind: &str, body: &Value) -> anyhow::Result<()> {
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", kind);
    let response = server.answer(request.body(Body::from(body.to_string()))?).await;
    let code = response.status();
    if !code.is_success() {
        let text = response.into_body().collect().await.context("reading an error")?.to_bytes();
        bail!("{method} {path}: {code}: {}", String::from_utf8_lossy(&text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_has_its_pods_and_gangs() {
        let count = |batch: Batch, path| batch.objects("muster").filter(|(to, _)| *to == path).count();
        let gangs = Batch::gangs("g", 3, 4);
        assert_eq!((gangs.pods(), count(gangs, PODS), count(gangs, GANGS)), (12, 12, 3));
        let plain = Batch::plain("p", 5);
        assert_eq!((plain.pods(), count(plain, PODS), count(plain, GANGS)), (5, 5, 0));
    }
}
