//! Randomised fault simulation of Muster together with an API server, nodes and users, checked independently of the
//! scheduler's code.
//!
//! One seed is one run: one thread, paused time, all randomness from the seed, so a failing seed can be replayed. Every
//! write is checked when it reaches the server. After faults end and the system is quiescent, the API state is checked
//! against the rules.

mod capacity;
mod faults;
mod history;
mod ledger;
mod manifests;
mod other_scheduler;
mod processes;
mod quiescence_checks;
mod recorder;
mod server_state;
mod users;
mod volumes;
mod world;

use std::fmt::Display;
use std::time::Duration;

use http::{Method, StatusCode};
use muster_playground::components::{ShapeError, UnknownNode};
use serde_json::Value;
use tokio::time::Instant;

use self::world::World;

/// No change for this long means quiescence: longer than any running timer.
const QUIET: Duration = Duration::from_secs(150);
/// Pods leave lost nodes after five minutes, so quiescence is not accepted earlier.
const NODE_LOSSES_HANDLED: Duration = Duration::from_secs(420);
/// The system must be quiescent within this time.
const QUIESCENT_WITHIN: Duration = Duration::from_secs(3600);
/// How long a quiescent system must stay without writes.
const QUIESCENT_FOR: Duration = Duration::from_secs(1200);

/// The result of a run without violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Digest of all writes and their responses.
    pub digest: u64,
    /// Number of store revisions.
    pub revisions: u64,
    /// Number of writes by Muster.
    pub muster_writes: u64,
}

/// A run with rule violations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}:\n  {}", violations.join("\n  "))]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The violations, in order of occurrence.
    pub violations: Vec<String>,
}

/// Why a run could not be carried out; not a violation of a rule.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Response(#[from] axum::Error),
    #[error("{path}: {status}")]
    Setup { path: String, status: StatusCode },
    #[error("{method} {path}: {code} {message}\n{body}")]
    UserRequest { method: Method, path: String, code: u16, message: Value, body: Value },
    #[error("a watch of the checker has ended")]
    WatchEnded,
    #[error("a watch of the checker failed: {0}")]
    WatchFailed(Value),
    #[error(transparent)]
    WatchEvent(#[from] serde_json::Error),
    #[error(transparent)]
    Node(#[from] UnknownNode),
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// Runs the simulation of a seed. With `trace`, prints every write and fault.
pub fn run(seed: u64, trace: bool) -> Result<Outcome, Failure> {
    let failure = |error: &dyn Display| Failure { seed, violations: vec![error.to_string()] };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| failure(&error))?;
    runtime.block_on(async {
        let mut world = World::new(seed, trace).await.map_err(|error| failure(&error))?;
        run_phases(&mut world).await.map_err(|error| failure(&error))?;
        let revisions = world.revision();
        let ledger = world.ledger.borrow();
        if ledger.violations.is_empty() {
            Ok(Outcome { digest: ledger.digest(), revisions, muster_writes: ledger.muster_writes })
        } else {
            Err(Failure { seed, violations: ledger.violations.clone() })
        }
    })
}

async fn run_phases(world: &mut World) -> Result<(), RunError> {
    world.run_fault_phase().await?;
    if has_violations(world) {
        return Ok(());
    }
    world.end_faults().await;
    await_quiescence(world).await?;
    if world.profile.ample_capacity && !has_violations(world) {
        world.add_ample_capacity()?;
        await_quiescence(world).await?;
    }
    Ok(())
}

fn has_violations(world: &World) -> bool {
    !world.ledger.borrow().violations.is_empty()
}

/// Waits for quiescence, checks the state, and checks that nothing is written afterwards.
async fn await_quiescence(world: &mut World) -> Result<(), RunError> {
    let begun = Instant::now();
    let earliest = if world.profile.nodes_fail { NODE_LOSSES_HANDLED } else { Duration::ZERO };
    loop {
        world.pass(Duration::from_secs(10)).await;
        world.collect_orphans().await?;
        let quiet = world.ledger.borrow().last_change.elapsed();
        if has_violations(world) {
            return Ok(());
        }
        if begun.elapsed() > earliest && quiet >= QUIET {
            break;
        }
        if begun.elapsed() > QUIESCENT_WITHIN {
            let mut ledger = world.ledger.borrow();
            let latest = ledger.latest.join("\n    ");
            ledger.report_violation(&format!("the system does not become quiescent; the last writes:\n    {latest}"));
            return Ok(());
        }
    }
    {
        let mut ledger = world.ledger.borrow();
        ledger.note("quiescent");
        ledger.catch_up();
        let violations = quiescence_checks::check(&ledger.state, &ledger.histories);
        for violation in violations {
            ledger.report_violation(&violation);
        }
    }
    let writes = world.ledger.borrow().muster_writes;
    world.pass(QUIESCENT_FOR).await;
    let mut ledger = world.ledger.borrow();
    if ledger.muster_writes != writes {
        let latest = ledger.latest.join("\n    ");
        ledger.report_violation(&format!("Muster writes while the system is quiescent:\n    {latest}"));
    }
    Ok(())
}
