//! All controllers, started together.

use std::time::Duration;

use futures::future::select_all;
use kube::Client;
use muster_determinism::clock::Clock;
use muster_playground_client::task::Task;

use super::{
    Budgets, Deployments, JobSets, Jobs, LeaderWorkerSets, NodeLifecycle, NodeLifecycleSettings, PodGarbage,
    PodGarbageSettings, Replicas, StatefulSets, jobset,
};

/// How long it waits to try again when a definition could not be written.
const INSTALL_AGAIN: Duration = Duration::from_secs(1);

/// The controllers that look after nodes, disruption budgets, jobs and sets of pods. They work until this is dropped.
#[derive(Debug)]
pub struct Controllers {
    nodes: (NodeLifecycle, Budgets, PodGarbage),
    jobs: (Jobs, JobSets),
    sets: (Replicas, Deployments, StatefulSets, LeaderWorkerSets),
    _install: Task,
}

impl Controllers {
    /// Starts all of them with the usual settings. Needs a tokio runtime.
    ///
    /// The clock must agree with the server's, or be [`Clock::real`] on a real cluster.
    pub fn start(client: &Client, clock: Clock) -> Self {
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
        Self { nodes: (lifecycle, budgets, sweeper), jobs, sets, _install: install }
    }

    /// Waits until one of the controllers has ended, which it does only by a fault of its own, and answers which.
    pub async fn ended(&self) -> &'static str {
        let (lifecycle, budgets, sweeper) = &self.nodes;
        let (jobs, job_sets) = &self.jobs;
        let (replicas, deployments, stateful_sets, leader_workers) = &self.sets;
        let tasks = [
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
    use tokio::time::timeout;

    use super::*;
    use crate::silent;

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_fails_is_named() {
        let mut all = Controllers::start(&silent::client(), Clock::real());
        let minute = Duration::from_secs(60);
        assert!(timeout(minute, all.ended()).await.is_err(), "all of them work");
        all.sets.1.task = Task::start("deployment controller", async { panic!("on purpose") });
        assert_eq!(timeout(minute, all.ended()).await, Ok("deployment controller"));
    }
}
