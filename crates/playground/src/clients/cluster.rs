//! Everything that a simulated cluster needs beside the API server, in one piece.

use kube::Client;

use super::{
    Budgets, Deployments, KubeletSettings, Kubelets, LeaderWorkerSets, NodeLifecycle, NodeLifecycleSettings, Replicas,
    Shape, ShapeError, StatefulSets,
};
use crate::clock::Clock;

/// Nodes that run pods, and the controllers that look after nodes, disruption budgets and sets of pods. They work until
/// this is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes.
    pub kubelets: Kubelets,
    _controllers: (NodeLifecycle, Budgets),
    _sets: (Replicas, Deployments, StatefulSets, LeaderWorkerSets),
}

impl Cluster {
    /// Starts all of it with the usual settings. Needs a tokio runtime.
    ///
    /// The clock must agree with the server's: `Server::clock`, or [`Clock::real`] on a real cluster.
    pub fn start(client: &Client, shape: &Shape, clock: Clock) -> Result<Self, ShapeError> {
        let kubelets = Kubelets::start(client.clone(), shape, KubeletSettings::default(), clock)?;
        let lifecycle = NodeLifecycle::start(client.clone(), NodeLifecycleSettings::default(), clock);
        let budgets = Budgets::start(client.clone(), clock);
        let sets = (
            Replicas::start(client.clone(), clock),
            Deployments::start(client.clone(), clock),
            StatefulSets::start(client.clone(), clock),
            LeaderWorkerSets::start(client.clone(), clock),
        );
        Ok(Self { kubelets, _controllers: (lifecycle, budgets), _sets: sets })
    }
}
