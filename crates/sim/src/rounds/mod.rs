//! Pairs of sets that compete for capacity for one of them, under ten rounds of random deletions, restarts and
//! suspensions.
//!
//! The same test runs on the playground and on a real cluster with the real controllers of the sets. Of each pair
//! exactly one set runs completely and the other is completely pending; at the end no objects are left. Must not depend
//! on how Muster decides; all randomness comes from one seed.

mod actions;
mod in_process;
mod sets;
mod snapshot;

use std::time::Duration;

use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use muster_playground::random::Random;
use tokio::time::{Instant, sleep};

pub use in_process::run;
pub use sets::nodes;

use actions::Action;
use sets::{PAIRS, Set};
use snapshot::{SetState, Snapshot};

const NAMESPACE: &str = "default";
const ROUNDS: usize = 10;
const ACTIONS_MAX: u64 = 3;
/// The longest pause between two actions.
const PAUSE_MS_MAX: u64 = 2_000;
/// Poll interval of the settled state, which must be seen twice in a row.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// The environment that runs Muster.
pub trait Host {
    /// Crashes Muster and starts it again.
    fn restart(&mut self);
    /// Called while time passes, to check the processes.
    fn check_processes(&mut self) {}
}

/// The log of actions and the failure after them.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}\n{why}", .log.join("\n"))]
pub struct Failure {
    log: Vec<String>,
    why: String,
}

/// Why the rounds ended early.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{attempt}: {error}")]
    Request { attempt: String, error: kube::Error },
    /// The same, where the error says enough.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The cluster is in a state that it must not be in, or must not stay in.
    #[error("{0}")]
    Violation(String),
}

/// Runs the rounds in the namespace `default` of a cluster that has [`nodes`]. `within` is how long the system may take
/// to settle. Returns the log of actions.
pub async fn run_rounds(
    client: Client,
    seed: u64,
    within: Duration,
    host: &mut impl Host,
) -> Result<Vec<String>, Failure> {
    let random = Random::new(seed);
    let mut rounds = Rounds { client, random, within, host, log: vec![format!("seed {seed}")] };
    match rounds.run().await {
        Ok(()) => Ok(rounds.log),
        Err(problem) => Err(Failure { log: rounds.log, why: problem.to_string() }),
    }
}

struct Rounds<'a, H> {
    client: Client,
    random: Random,
    within: Duration,
    host: &'a mut H,
    log: Vec<String>,
}

impl<H: Host> Rounds<'_, H> {
    async fn run(&mut self) -> Result<(), Problem> {
        let mut sets: Vec<Set> = PAIRS.iter().flat_map(|pair| [Set::new(*pair, "a"), Set::new(*pair, "b")]).collect();
        while !sets.is_empty() {
            let next = sets.remove(self.pick(sets.len()));
            self.create(&next).await?;
        }
        // Nothing was deleted yet: no pod of a losing set may be bound at any time.
        self.settle("at first", Snapshot::pair_with_both_bound).await?;
        for round in 0..ROUNDS {
            let what = format!("round {round}");
            for _ in 0..=self.random.below(ACTIONS_MAX) {
                self.act(&what).await?;
                self.pause().await;
            }
            self.settle(&what, |_| None).await?;
        }
        self.delete_all().await
    }

    fn pick(&mut self, count: usize) -> usize {
        self.random.below(count.max(1) as u64) as usize
    }

    async fn pause(&mut self) {
        let time = Duration::from_millis(self.random.below(PAUSE_MS_MAX));
        sleep(time).await;
        self.host.check_processes();
    }

    async fn act(&mut self, what: &str) -> Result<(), Problem> {
        let action = Action::of(&mut self.random);
        let description = self.perform(action).await?;
        self.log.push(format!("{what}: {description}"));
        Ok(())
    }

    /// Waits until one set of each pair runs completely, the other is pending or reported as degraded, and every group
    /// has its owner. `never` is a violation that must not occur meanwhile.
    async fn settle(&mut self, what: &str, never: impl Fn(&Snapshot) -> Option<String>) -> Result<(), Problem> {
        let began = Instant::now();
        let mut in_a_row = 0;
        loop {
            let snapshot = Snapshot::at(&self.client).await?;
            if let Some(why) = never(&snapshot) {
                return Err(Problem::Violation(format!("{what}: {why}\n{}", snapshot.description())));
            }
            let missing = snapshot.differences();
            in_a_row = if missing.is_empty() { in_a_row + 1 } else { 0 };
            if in_a_row == 2 {
                let winners: Vec<String> = snapshot.sets_in_state(SetState::Runs).collect();
                let took = began.elapsed().as_secs_f64();
                self.log.push(format!("{what}: settled after {took:.1} s, {} run", winners.join(", ")));
                return Ok(());
            }
            if began.elapsed() > self.within {
                let missing = missing.join("; ");
                return Err(Problem::Violation(format!(
                    "{what}: not settled within {:?}: {missing}\n{}",
                    self.within,
                    snapshot.description()
                )));
            }
            sleep(POLL_EVERY).await;
            self.host.check_processes();
        }
    }

    /// Deletes all sets and waits until no objects are left.
    async fn delete_all(&mut self) -> Result<(), Problem> {
        for set in PAIRS.iter().flat_map(|pair| [Set::new(*pair, "a"), Set::new(*pair, "b")]) {
            self.delete(&set, false).await?;
        }
        let began = Instant::now();
        loop {
            let snapshot = Snapshot::at(&self.client).await?;
            if snapshot.is_empty() {
                self.log.push(format!("the end: no objects left after {:.1} s", began.elapsed().as_secs_f64()));
                return Ok(());
            }
            if began.elapsed() > self.within {
                let left = snapshot.description();
                return Err(Problem::Violation(format!("the end: objects are left after {:?}\n{left}", self.within)));
            }
            sleep(POLL_EVERY).await;
            self.host.check_processes();
        }
    }
}

/// The API of a kind.
fn api(client: &Client, (api_version, kind): (&str, &str)) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

/// The names of objects, sorted, so that random choices are reproducible.
fn names(objects: &[DynamicObject]) -> Vec<String> {
    let mut names: Vec<String> = objects.iter().map(ResourceExt::name_any).collect();
    names.sort();
    names
}
