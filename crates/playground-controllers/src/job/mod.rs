//! The Job controller: creates the pods of each Job, counts each terminated pod exactly once, and keeps the Job's
//! status.
//!
//! Invariant: a Job is synced only when the watches have shown all writes for it, its own status included. So there are
//! never too many pods and no pod is counted twice, however late the watches are. It adopts no pods. Must not depend on
//! the scheduler or the kubelets.
//!
//! `job_state` classifies the pods, `finish` decides whether the Job is finished, `pod_changes` which pods to create or
//! delete, `finalizer_tracking` which pods to count; none of them does I/O. `controller` calls them and acts.

mod backoff;
mod controller;
mod finalizer_tracking;
mod finish;
mod indexes;
mod job_state;
mod new_pod;
mod pod;
mod pod_cache;
mod pod_changes;
mod pod_control;
mod pod_expectations;
mod policy;

use kube::Client;
use muster_clock::Clock;
use muster_playground_client::task::Task;

/// The Job controller. It runs until this is dropped.
#[derive(Debug)]
pub struct Jobs {
    pub(super) task: Task,
}

impl Jobs {
    /// Starts the controller. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        Self { task: Task::start("job controller", controller::run(client, clock)) }
    }
}
