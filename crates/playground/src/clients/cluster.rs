//! Everything that a simulated cluster needs beside the API server, in one piece.

use std::time::Duration;

use futures::future::select_all;
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
    controllers: (NodeLifecycle, Budgets, PodGarbage),
    jobs: (Jobs, JobSets),
    sets: (Replicas, Deployments, StatefulSets, LeaderWorkerSets),
    _install: Task,
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
        let install = Task::start("definition of job sets", install(client.clone()));
        let jobs = (Jobs::start(client.clone(), clock), JobSets::start(client.clone(), clock));
        let sets = (
            Replicas::start(client.clone(), clock),
            Deployments::start(client.clone(), clock),
            StatefulSets::start(client.clone(), clock),
            LeaderWorkerSets::start(client.clone(), clock),
        );
        Ok(Self { kubelets, controllers: (lifecycle, budgets, sweeper), jobs, sets, _install: install })
    }

    /// Waits until one of the clients has ended, which it does only by a fault of its own, and answers which.
    pub async fn ended(&self) -> &'static str {
        let (lifecycle, budgets, sweeper) = &self.controllers;
        let (jobs, job_sets) = &self.jobs;
        let (replicas, deployments, stateful_sets, leader_workers) = &self.sets;
        let tasks = [
            &self.kubelets.task,
            &lifecycle.task,
            &budgets.task,
            &sweeper.task,
            &jobs.task,
            &job_sets.task,
            &replicas.task,
            &deployments.task,
            &stateful_sets.task,
            &leader_workers.task,
        ];
        select_all(tasks.map(|task| Box::pin(task.ended()))).await.0
    }
}

/// Makes the kinds known that the controllers bring along.
async fn install(client: Client) {
    while jobset::install(&client).await.is_err() {
        tokio::time::sleep(INSTALL_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Server, Settings};
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_fails_is_named() {
        let server = Server::start(Settings::default());
        let pool = serde_json::json!({"name": "n", "count": 1, "capacity": {"cpu": "1"}});
        let shape = Shape::from_json(&serde_json::json!({"pools": [pool]}).to_string()).unwrap();
        let mut cluster = Cluster::start(&server.client(), &shape, server.clock()).unwrap();
        let minute = Duration::from_secs(60);
        assert!(timeout(minute, cluster.ended()).await.is_err(), "all of them work");
        cluster.sets.1.task = Task::start("deployment controller", async { panic!("on purpose") });
        assert_eq!(timeout(minute, cluster.ended()).await, Ok("deployment controller"));
    }
}
