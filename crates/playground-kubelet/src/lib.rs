//! Simulated kubelets for all nodes of a shape: one task, one watch of pods, one of nodes.
//!
//! `state_machine` makes all decisions without clock or API; `driver` connects it to both.
//! Must not depend on the internals of the API server; the kubelets work on every cluster that lets them register
//! nodes.

mod admission;
pub mod annotations;
mod api_requests;
mod behavior;
mod desired_status;
mod driver;
mod mounting;
mod node_objects;
mod node_tasks;
mod pod_lifecycle;
mod pod_worker;
mod rendezvous;
pub mod shape;
mod state_machine;
mod storage_objects;
#[cfg(test)]
mod tests;
mod volumes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use muster_clock::Clock;
use muster_playground_client::task::Task;
use tokio::sync::{mpsc, oneshot};

use self::driver::{Command, Driver};
pub use self::shape::{Domain, NodeShape, Pool, PoolCapacity, PoolDriver, PoolTaint, Shape, ShapeError};

/// How often kubelets send heartbeats, and how fast time passes in their containers.
#[derive(Clone, Copy, Debug)]
pub struct KubeletSettings {
    /// How often leases are renewed.
    pub renew_every: Duration,
    /// How often the Ready condition's heartbeat is written.
    pub heartbeat_every: Duration,
    /// The maximum number of requests in flight.
    pub requests_max: usize,
    /// Speed-up factor for the times of containers (start, run, stop). Must be positive.
    pub speed: f64,
}

impl Default for KubeletSettings {
    fn default() -> Self {
        Self {
            renew_every: Duration::from_secs(10),
            heartbeat_every: Duration::from_secs(300),
            requests_max: 64,
            speed: 1.0,
        }
    }
}

impl KubeletSettings {
    fn renew_ms(&self) -> i64 {
        (self.renew_every.as_millis() as i64).max(1)
    }

    fn heartbeat_ms(&self) -> i64 {
        (self.heartbeat_every.as_millis() as i64).max(1)
    }
}

/// The shape has no such node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no kubelet runs for a node {0:?}")]
pub struct UnknownNode(pub String);

/// The kubelets of a shape. They run until this is dropped.
#[derive(Debug)]
pub struct Kubelets {
    by_name: HashMap<String, usize>,
    commands: mpsc::UnboundedSender<(Command, oneshot::Sender<()>)>,
    task: Task,
}

impl Kubelets {
    /// Starts a kubelet for every node of the shape. Needs a tokio runtime.
    ///
    /// New nodes carry the taint `node.kubernetes.io/not-ready` until the node lifecycle controller of the playground
    /// or of a real cluster sees that they are ready and takes it off.
    pub fn start(client: Client, shape: &Shape, settings: KubeletSettings, clock: Clock) -> Result<Self, ShapeError> {
        Ok(Self::start_nodes(client, shape.nodes()?, settings, clock))
    }

    /// Starts a kubelet for each of these nodes, whose names must differ. Needs a tokio runtime.
    pub fn start_nodes(client: Client, nodes: Vec<NodeShape>, settings: KubeletSettings, clock: Clock) -> Self {
        let nodes: Vec<_> = nodes.into_iter().map(Arc::new).collect();
        let by_name = nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index)).collect();
        let (commands, received) = mpsc::unbounded_channel();
        let driver = Driver::new(client, &nodes, settings, clock, received);
        Self { by_name, commands, task: Task::start("kubelets", driver.run()) }
    }

    /// Stops a kubelet: it sends nothing until it is revived.
    pub async fn kill(&self, node: &str) -> Result<(), UnknownNode> {
        self.command(node, Command::Kill).await
    }

    /// Restarts a stopped kubelet; it resumes from what the API shows.
    pub async fn revive(&self, node: &str) -> Result<(), UnknownNode> {
        self.command(node, Command::Revive).await
    }

    /// Waits until the kubelets have ended, which happens only by a bug, and returns their task's name.
    pub async fn ended(&self) -> &'static str {
        self.task.ended().await
    }

    async fn command(&self, node: &str, command: fn(usize) -> Command) -> Result<(), UnknownNode> {
        let index = *self.by_name.get(node).ok_or_else(|| UnknownNode(node.to_owned()))?;
        let (done, acknowledged) = oneshot::channel();
        // The task ends only with this handle, so that the command is received.
        if self.commands.send((command(index), done)).is_ok() {
            acknowledged.await.ok();
        }
        Ok(())
    }
}
