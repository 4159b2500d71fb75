//! Starts everything that a simulated cluster needs in addition to the API server.

use kube::Client;
use muster_clock::Clock;
use muster_playground_controllers::Controllers;
use muster_playground_kubelet::{KubeletSettings, Kubelets, Shape, ShapeError};

/// Simulated nodes, and the controllers of nodes, disruption budgets, jobs and sets of pods. They run until this is
/// dropped.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes.
    pub kubelets: Kubelets,
    controllers: Controllers,
}

impl Cluster {
    /// Starts everything with default settings. Needs a tokio runtime.
    ///
    /// The clock must agree with the server's: `Server::clock`, or [`Clock::real`] on a real cluster.
    pub fn start(client: &Client, shape: &Shape, clock: Clock) -> Result<Self, ShapeError> {
        Self::start_with(client, shape, KubeletSettings::default(), clock)
    }

    /// The same with other kubelet settings.
    pub fn start_with(
        client: &Client,
        shape: &Shape,
        settings: KubeletSettings,
        clock: Clock,
    ) -> Result<Self, ShapeError> {
        let kubelets = Kubelets::start(client.clone(), shape, settings, clock)?;
        Ok(Self { kubelets, controllers: Controllers::start(client, clock) })
    }

    /// Waits until one of the clients has ended, which happens only by a bug, and returns its name.
    pub async fn ended(&self) -> &'static str {
        tokio::select! {
            biased;
            name = self.kubelets.ended() => name,
            name = self.controllers.ended() => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muster_playground_server::{Server, Settings};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_client_runs_on_a_server() {
        let server = Server::start(Settings::default());
        let shape = Shape::from_json(r#"{"pools": [{"name": "n", "count": 1, "capacity": {"cpu": "1"}}]}"#).unwrap();
        let cluster = Cluster::start(&server.client(), &shape, server.clock()).unwrap();
        let ended = timeout(Duration::from_secs(60), cluster.ended()).await;
        assert!(ended.is_err(), "{ended:?} has ended");
    }
}
