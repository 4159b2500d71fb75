//! Rounds: pairs of sets of which only one has room, and ten rounds of random deletes, restarts and changes of mind.
//!
//! The same story is played on the playground and on a real cluster with the real controllers of the sets: it is a plain
//! client. Of each pair exactly one set runs whole and the other waits whole; at the end nothing is left behind.
//! It must not know how Muster decides; all chance comes from one seed.

mod acts;
mod in_process;
mod look;
mod sets;

use std::time::Duration;

use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use muster_playground::random::Random;
use tokio::time::{Instant, sleep};

pub use in_process::run;
pub use sets::nodes;

use acts::Act;
use look::{Look, Stance};
use sets::{PAIRS, Set};

const NAMESPACE: &str = "default";
const ROUNDS: usize = 10;
const ACTS_MAX: u64 = 3;
/// The longest pause between two acts.
const PAUSE_MS_MAX: u64 = 2_000;
/// How often it is looked whether all has settled; it has if that is seen twice in a row.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Whoever runs Muster.
pub trait Host {
    /// Ends Muster as in a crash, and starts it again.
    fn restart(&mut self);
    /// Looks after the processes, while time passes.
    fn tend(&mut self) {}
}

/// What was done, and what went wrong then.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}\n{why}", .done.join("\n"))]
pub struct Failure {
    done: Vec<String>,
    why: String,
}

/// Plays the rounds in the namespace `default` of a cluster that has [`nodes`]. `within` is how long things may take to
/// settle. Answers what was done.
pub async fn play(client: Client, seed: u64, within: Duration, host: &mut impl Host) -> Result<Vec<String>, Failure> {
    let random = Random::new(seed);
    let mut rounds = Rounds { client, random, within, host, done: vec![format!("seed {seed}")] };
    match rounds.play().await {
        Ok(()) => Ok(rounds.done),
        Err(why) => Err(Failure { done: rounds.done, why }),
    }
}

struct Rounds<'a, H> {
    client: Client,
    random: Random,
    within: Duration,
    host: &'a mut H,
    done: Vec<String>,
}

impl<H: Host> Rounds<'_, H> {
    async fn play(&mut self) -> Result<(), String> {
        let mut sets: Vec<Set> = PAIRS.iter().flat_map(|pair| [Set::new(*pair, "a"), Set::new(*pair, "b")]).collect();
        while !sets.is_empty() {
            let next = sets.remove(self.pick(sets.len()));
            self.create(&next).await?;
        }
        // Nothing was deleted yet: nobody of the losing sets may ever have had a place.
        self.settle("at first", |look| look.rivals().map_or(Ok(()), Err)).await?;
        for round in 0..ROUNDS {
            let what = format!("round {round}");
            for _ in 0..=self.random.below(ACTS_MAX) {
                self.act(&what).await?;
                self.pause().await;
            }
            self.settle(&what, |_| Ok(())).await?;
        }
        self.clear().await
    }

    fn pick(&mut self, count: usize) -> usize {
        self.random.below(count.max(1) as u64) as usize
    }

    async fn pause(&mut self) {
        let time = Duration::from_millis(self.random.below(PAUSE_MS_MAX));
        sleep(time).await;
        self.host.tend();
    }

    async fn act(&mut self, what: &str) -> Result<(), String> {
        let act = Act::of(&mut self.random);
        let told = self.carry_out(act).await?;
        self.done.push(format!("{what}: {told}"));
        Ok(())
    }

    /// Waits until of each pair one set runs whole, the other waits whole or tells what it lost, and every group has its
    /// owner.
    async fn settle(&mut self, what: &str, always: impl Fn(&Look) -> Result<(), String>) -> Result<(), String> {
        let began = Instant::now();
        let mut in_a_row = 0;
        loop {
            let look = Look::at(&self.client).await?;
            always(&look).map_err(|why| format!("{what}: {why}\n{}", look.told()))?;
            let missing = look.unsettled();
            in_a_row = if missing.is_empty() { in_a_row + 1 } else { 0 };
            if in_a_row == 2 {
                let winners: Vec<String> = look.sets_that(Stance::Runs).collect();
                let took = began.elapsed().as_secs_f64();
                self.done.push(format!("{what}: settled after {took:.1} s, {} run", winners.join(", ")));
                return Ok(());
            }
            if began.elapsed() > self.within {
                let missing = missing.join("; ");
                return Err(format!("{what}: not settled within {:?}: {missing}\n{}", self.within, look.told()));
            }
            sleep(LOOK_EVERY).await;
            self.host.tend();
        }
    }

    /// Deletes all sets: nothing may be left of them.
    async fn clear(&mut self) -> Result<(), String> {
        for set in PAIRS.iter().flat_map(|pair| [Set::new(*pair, "a"), Set::new(*pair, "b")]) {
            self.delete(&set, false).await?;
        }
        let began = Instant::now();
        loop {
            let look = Look::at(&self.client).await?;
            if look.is_empty() {
                self.done.push(format!("the end: nothing left after {:.1} s", began.elapsed().as_secs_f64()));
                return Ok(());
            }
            if began.elapsed() > self.within {
                return Err(format!("the end: something is left after {:?}\n{}", self.within, look.told()));
            }
            sleep(LOOK_EVERY).await;
            self.host.tend();
        }
    }
}

/// Where objects of a kind are.
fn api(client: &Client, (api_version, kind): (&str, &str)) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

/// The names of objects, in order, so that chance picks the same ones each time.
fn names(objects: &[DynamicObject]) -> Vec<String> {
    let mut names: Vec<String> = objects.iter().map(ResourceExt::name_any).collect();
    names.sort();
    names
}
