//! The driver: creates nodes, gangs and pods through the API, some at once.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cases::Case;
use super::objects::{NAMESPACE, NODES, PODS, node, node_name, pod, storage, waiting};

/// How many requests are in flight at once.
const CLIENTS: usize = 32;
/// How long the controllers may take to prepare a namespace, and a scheduler to bind its first pod.
const READY_WITHIN: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(50);
const FIRST_POD: &str = "first";

/// A client that creates the objects for schedulers.
#[derive(Clone)]
pub(crate) struct Driver {
    client: kube::Client,
}

impl Driver {
    pub(crate) async fn connect(kubeconfig: &Path) -> anyhow::Result<Self> {
        let config = muster::client::config(Some(kubeconfig)).await?;
        Ok(Self { client: muster::client::connect(&config)? })
    }

    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Waits until pods can be created: each needs the service account of its namespace.
    pub(crate) async fn wait_for_account(&self) -> anyhow::Result<()> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
        self.until("the namespace has no service account", || self.get(&path), |found| found.is_some()).await
    }

    /// Creates the nodes of a case, and the volumes of its claims.
    pub(crate) async fn create_nodes(&self, case: Case) -> anyhow::Result<()> {
        let created = (0..case.nodes).map(|number| async move {
            self.send("POST", NODES, &node(number, case.node)).await?;
            // A new node is tainted as not ready, and there is no controller to remove the taint.
            let path = format!("{NODES}/{}", node_name(number));
            self.send("PATCH", &path, &json!({"spec": {"taints": null}})).await
        });
        all(created).await?;
        all(storage(case).map(|(path, object)| async move { self.send("POST", path, &object).await })).await
    }

    /// Creates the gangs and pods of a case.
    pub(crate) async fn create_pods(&self, case: Case, scheduler: &'static str) -> anyhow::Result<()> {
        all(waiting(case, scheduler).map(|(path, object)| async move { self.send("POST", path, &object).await })).await
    }

    /// Waits until the scheduler binds a pod, and deletes that pod: then the scheduler is ready.
    pub(crate) async fn wait_for_scheduler(&self, case: Case, scheduler: &str) -> anyhow::Result<()> {
        self.send("POST", PODS, &pod(FIRST_POD, scheduler, None, case.pod)).await?;
        let path = format!("{PODS}/{FIRST_POD}");
        let bound = |found: Option<&Value>| found.is_some_and(|pod| pod["spec"]["nodeName"].is_string());
        self.until("the scheduler binds no pod", || self.get(&path), bound).await?;
        self.send("DELETE", &path, &json!({"gracePeriodSeconds": 0})).await?;
        self.until("the first pod is not deleted", || self.get(&path), |found| found.is_none()).await
    }

    /// The API server's metrics.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        self.client.request_text(request).await.context("reading the API server's metrics")
    }

    async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.client.request(http::Request::get(path).body(Vec::new())?).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error).with_context(|| format!("GET {path}")),
        }
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<()> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("Content-Type", kind);
        self.client
            .request_text(request.body(body.to_string().into_bytes())?)
            .await
            .with_context(|| format!("{method} {path}"))?;
        Ok(())
    }

    async fn until<F: Future<Output = anyhow::Result<Option<Value>>>>(
        &self,
        otherwise: &str,
        read: impl Fn() -> F,
        good: impl Fn(Option<&Value>) -> bool,
    ) -> anyhow::Result<()> {
        let ends = Instant::now() + READY_WITHIN;
        while !good(read().await?.as_ref()) {
            if Instant::now() > ends {
                bail!("{otherwise} after {} s", READY_WITHIN.as_secs());
            }
            sleep(POLL_EVERY).await;
        }
        Ok(())
    }
}

async fn all(requests: impl Iterator<Item = impl Future<Output = anyhow::Result<()>>>) -> anyhow::Result<()> {
    let mut under_way = futures::stream::iter(requests).buffer_unordered(CLIENTS);
    while let Some(done) = under_way.next().await {
        done?;
    }
    Ok(())
}
