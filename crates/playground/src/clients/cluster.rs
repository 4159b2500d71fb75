//! Everything that a simulated cluster needs beside the API server, in one piece.

use kube::Client;

use super::{Budgets, KubeletSettings, Kubelets, NodeLifecycle, NodeLifecycleSettings, Replicas, Shape, ShapeError};
use crate::clock::Clock;

/// Nodes that run pods, and the controllers that look after nodes, disruption budgets and replica sets. They work until
/// this is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes.
    pub kubelets: Kubelets,
    _controllers: (NodeLifecycle, Budgets, Replicas),
}

impl Cluster {
    /// Starts all of it with the usual settings. Needs a tokio runtime.
    ///
    /// The clock must agree with the server's: `Server::clock`, or [`Clock::real`] on a real cluster.
    pub fn start(client: &Client, shape: &Shape, clock: Clock) -> Result<Self, ShapeError> {
        Self::start_with(client, shape, KubeletSettings::default(), clock)
    }

    /// The same, with kubelets of other settings.
    pub fn start_with(
        client: &Client,
        shape: &Shape,
        settings: KubeletSettings,
        clock: Clock,
    ) -> Result<Self, ShapeError> {
        let kubelets = Kubelets::start(client.clone(), shape, settings, clock)?;
        let lifecycle = NodeLifecycle::start(client.clone(), NodeLifecycleSettings::default(), clock);
        let budgets = Budgets::start(client.clone(), clock);
        let replicas = Replicas::start(client.clone(), clock);
        Ok(Self { kubelets, _controllers: (lifecycle, budgets, replicas) })
    }
}
