//! The controller of JobSets: the Jobs of each set, made anew when the set's policy says so, and a status that tells
//! how the set stands.
//!
//! It makes Jobs, and somebody else their pods. [`definition`] is our own slim CustomResourceDefinition: it has the
//! fields that this controller honours and no others, so that a server refuses or warns about the rest.
//!
//! Invariant: a set is looked at only when the watch has shown the status that was last written, so that no failure
//! restarts it twice. Jobs have fixed names, so that none is made twice.

mod children;
mod conditions;
mod definition;
mod keeper;
mod policy;
mod template;
mod written;

use kube::Client;
use kube::api::{Api, PostParams};
use muster_determinism::clock::Clock;
use muster_playground_client::refusal::is_conflict;
use muster_playground_client::task::Task;

pub use definition::definition;

/// Keeps the JobSets until it is dropped.
#[derive(Debug)]
pub struct JobSets {
    pub(super) task: Task,
}

impl JobSets {
    /// Starts the client. Needs a tokio runtime, and a server that knows the kind sooner or later: see [`install`].
    pub fn start(client: Client, clock: Clock) -> Self {
        Self { task: Task::start("job set controller", keeper::run(client, clock)) }
    }
}

/// Makes the kind known to the server, unless it is known already.
pub async fn install(client: &Client) -> Result<(), kube::Error> {
    match Api::all(client.clone()).create(&PostParams::default(), &definition()).await {
        Err(error) if is_conflict(&error) => Ok(()),
        answer => answer.map(drop),
    }
}
