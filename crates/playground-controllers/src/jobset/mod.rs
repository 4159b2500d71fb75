//! The JobSet controller: creates the child Jobs of each set, recreates them as the failure policy demands, and keeps
//! the status.
//!
//! It creates Jobs; the Job controller creates their pods. [`definition`] is the playground's own small
//! CustomResourceDefinition: it has the fields that this controller implements and no others, so that a server rejects
//! or warns about the rest.
//!
//! Invariant: a set is synced only when the watch has shown the last status update, so that no failure restarts it
//! twice. Jobs have fixed names, so that none is created twice.

mod children;
mod conditions;
mod controller;
mod definition;
mod object;
mod policy;
mod template;

use kube::Client;
use kube::api::{Api, PostParams};
use muster_clock::Clock;
use muster_playground_client::api_errors::is_conflict;
use muster_playground_client::task::Task;

pub use definition::definition;

/// The JobSet controller. It runs until this is dropped.
#[derive(Debug)]
pub struct JobSets {
    pub(super) task: Task,
}

impl JobSets {
    /// Starts the controller. Needs a tokio runtime, and a server that has the kind sooner or later: see [`install`].
    pub fn start(client: Client, clock: Clock) -> Self {
        Self { task: Task::start("job set controller", controller::run(client, clock)) }
    }
}

/// Installs the CustomResourceDefinition, unless it exists.
pub async fn install(client: &Client) -> Result<(), kube::Error> {
    match Api::all(client.clone()).create(&PostParams::default(), &definition()).await {
        Err(error) if is_conflict(&error) => Ok(()),
        answer => answer.map(drop),
    }
}
