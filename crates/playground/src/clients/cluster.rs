//! Everything that a simulated cluster needs beside the API server, in one piece.

use std::time::Duration;

use kube::Client;

use super::task::Task;
use super::{
    Budgets, Deployments, JobSets, Jobs, KubeletSettings, Kubelets, LeaderWorkerSets, NodeLifecycle,
    NodeLifecycleSettings, PodGarbage, PodGarbageSettings, Replicas, Shape, ShapeError, StatefulSets, jobset,
};
use crate::clock::Clock;

/// How long it waits to try again when a definition could not be written.
const INSTALL_AGAIN: Duration = Duration::from_secs(1);

/// Nodes that run pods, and the controllers that look after nodes, disruption budgets, jobs and sets of pods. They work
/// until this is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes.
    pub kubelets: Kubelets,
    _controllers: (NodeLifecycle, Budgets, PodGarbage),
    _jobs: (Jobs, JobSets, Task),
    _sets: (Replicas, Deployments, StatefulSets, LeaderWorkerSets),
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
        let sweeper = PodGarbage::start(client.clone(), PodGarbageSettings::default(), clock);
        let install = Task::start(install(client.clone()));
        let jobs = (Jobs::start(client.clone(), clock), JobSets::start(client.clone(), clock), install);
        let sets = (
            Replicas::start(client.clone(), clock),
            Deployments::start(client.clone(), clock),
            StatefulSets::start(client.clone(), clock),
            LeaderWorkerSets::start(client.clone(), clock),
        );
        Ok(Self { kubelets, _controllers: (lifecycle, budgets, sweeper), _jobs: jobs, _sets: sets })
    }
}

/// Makes the kinds known that the controllers bring along.
async fn install(client: Client) {
    while jobset::install(&client).await.is_err() {
        tokio::time::sleep(INSTALL_AGAIN).await;
    }
}
