//! All controllers, started together.

use std::time::Duration;

use futures::future::select_all;
use kube::Client;
use muster_clock::Clock;
use muster_playground_client::task::Task;

use super::{
    Budgets, Deployments, JobSets, Jobs, LeaderWorkerSets, NodeLifecycle, NodeLifecycleSettings, PodGc, PodGcSettings,
    Replicas, StatefulSets, StorageDrivers, VolumeSettings, Volumes, jobset,
};

/// How long to wait before a failed installation of a definition is retried.
const INSTALL_RETRY: Duration = Duration::from_secs(1);

/// The controllers of nodes, disruption budgets, jobs, sets of pods and volumes. They run until this is dropped.
#[derive(Debug)]
pub struct Controllers {
    nodes: (NodeLifecycle, Budgets, PodGc),
    jobs: (Jobs, JobSets),
    sets: (Replicas, Deployments, StatefulSets, LeaderWorkerSets),
    storage: (Volumes, StorageDrivers),
    _install: Task,
}

impl Controllers {
    /// Starts all controllers with their default settings. Needs a tokio runtime.
    ///
    /// The clock must agree with the server's, or be [`Clock::real`] on a real cluster.
    pub fn start(client: &Client, clock: Clock) -> Self {
        let lifecycle = NodeLifecycle::start(client.clone(), NodeLifecycleSettings::default(), clock);
        let budgets = Budgets::start(client.clone(), clock);
        let pod_gc = PodGc::start(client.clone(), PodGcSettings::default(), clock);
        let install = Task::start("definition of job sets", install(client.clone()));
        let jobs = (Jobs::start(client.clone(), clock), JobSets::start(client.clone(), clock));
        let sets = (
            Replicas::start(client.clone(), clock),
            Deployments::start(client.clone(), clock),
            StatefulSets::start(client.clone(), clock),
            LeaderWorkerSets::start(client.clone(), clock),
        );
        let volumes = Volumes::start(client.clone(), VolumeSettings::default(), clock);
        let storage = (volumes, StorageDrivers::start(client.clone(), clock));
        Self { nodes: (lifecycle, budgets, pod_gc), jobs, sets, storage, _install: install }
    }

    /// Waits until one of the controllers has ended, which happens only by a bug, and returns its name.
    pub async fn ended(&self) -> &'static str {
        let (lifecycle, budgets, pod_gc) = &self.nodes;
        let (jobs, job_sets) = &self.jobs;
        let (replicas, deployments, stateful_sets, leader_workers) = &self.sets;
        let tasks = [
            &lifecycle.task,
            &budgets.task,
            &pod_gc.task,
            &jobs.task,
            &job_sets.task,
            &replicas.task,
            &deployments.task,
            &stateful_sets.task,
            &leader_workers.task,
            &self.storage.0.task,
            &self.storage.1.task,
        ];
        select_all(tasks.map(|task| Box::pin(task.ended()))).await.0
    }
}

/// Installs the custom resource definitions of the controllers.
async fn install(client: Client) {
    while jobset::install(&client).await.is_err() {
        tokio::time::sleep(INSTALL_RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::hanging_server;

    #[tokio::test(start_paused = true)]
    async fn failed_controller_is_named() {
        let mut all = Controllers::start(&hanging_server::client(), Clock::real());
        let minute = Duration::from_secs(60);
        assert!(timeout(minute, all.ended()).await.is_err(), "all of them run");
        all.sets.1.task = Task::start("deployment controller", async { panic!("on purpose") });
        assert_eq!(timeout(minute, all.ended()).await, Ok("deployment controller"));
    }
}
