//! The controller of Jobs: as many pods as each Job wants, counted exactly once when they end, and a status that tells
//! how it goes.
//!
//! Invariant: a Job is looked at only when the watches have shown all that was done for it, its own status included. So
//! there are never too many pods, and no end is counted twice, however late the watches are. It adopts no pods of
//! others. It must not know who places or runs them.
//!
//! `census` says where a Job stands, `ending` whether it is over, `deeds` what it needs, `books` who is counted; all of
//! these only reckon. `keeper` asks them and acts.

mod backoff;
mod books;
mod census;
mod deeds;
mod ending;
mod hands;
mod indexes;
mod keeper;
mod ledger;
mod make;
mod pod;
mod policy;
mod roster;

use kube::Client;
use muster_determinism::clock::Clock;
use muster_playground_client::task::Task;

/// Keeps the Jobs until it is dropped.
#[derive(Debug)]
pub struct Jobs {
    pub(super) task: Task,
}

impl Jobs {
    /// Starts the client. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        Self { task: Task::start("job controller", keeper::run(client, clock)) }
    }
}
