//! Storms: the whole of Muster with a server, nodes and users under random faults, judged without the scheduler's code.
//!
//! One seed is one run: one thread, paused time, all chance from the seed, so that a seed that fails can be looked at
//! again. Every write is judged at the moment at which it reaches the server; when the storm is over and everything
//! has come to rest, what the API shows is held against the rules.

mod book;
mod crew;
mod deeds;
mod manifests;
mod rest;
mod rival;
mod room;
mod tap;
mod truth;
mod users;
mod weather;
mod world;

use std::time::Duration;

use tokio::time::Instant;

use self::world::World;

/// Nothing has happened for so long: more than any timer that is still running.
const QUIET: Duration = Duration::from_secs(150);
/// Pods leave lost nodes after five minutes; nothing counts as rest before that.
const LOSSES_KNOWN: Duration = Duration::from_secs(420);
/// By then everything has come to rest.
const REST_WITHIN: Duration = Duration::from_secs(3600);
/// At rest nothing is written for so long.
const REST_LASTS: Duration = Duration::from_secs(1200);

/// A run that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of everything that was written and answered.
    pub digest: u64,
    /// How many changes there were.
    pub revisions: u64,
    /// How many writes Muster sent.
    pub muster_writes: u64,
}

/// What went wrong in a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}:\n  {}", wrongs.join("\n  "))]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What was wrong, in the order of its happening.
    pub wrongs: Vec<String>,
}

/// Plays the storm of a seed. With `trace`, prints everything that happens.
pub fn run(seed: u64, trace: bool) -> Result<Outcome, Failure> {
    let failure = |wrong: String| Failure { seed, wrongs: vec![wrong] };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| failure(error.to_string()))?;
    runtime.block_on(async {
        let mut world = World::new(seed, trace).await.map_err(failure)?;
        play(&mut world).await.map_err(failure)?;
        let revisions = world.revision();
        let book = world.book.borrow();
        if book.wrongs.is_empty() {
            Ok(Outcome { digest: book.digest(), revisions, muster_writes: book.muster_writes })
        } else {
            Err(Failure { seed, wrongs: book.wrongs.clone() })
        }
    })
}

async fn play(world: &mut World) -> Result<(), String> {
    world.storm().await?;
    if has_wrongs(world) {
        return Ok(());
    }
    world.calm().await;
    come_to_rest(world).await?;
    if world.weather.plenty && !has_wrongs(world) {
        world.add_plenty()?;
        come_to_rest(world).await?;
    }
    Ok(())
}

fn has_wrongs(world: &World) -> bool {
    !world.book.borrow().wrongs.is_empty()
}

/// Waits until nothing happens any more, judges what is there, and sees that it stays so.
async fn come_to_rest(world: &mut World) -> Result<(), String> {
    let begun = Instant::now();
    let settled = if world.weather.mortal { LOSSES_KNOWN } else { Duration::ZERO };
    loop {
        world.pass(Duration::from_secs(10)).await;
        world.collect_orphans().await?;
        let quiet = world.book.borrow().last_change.elapsed();
        if has_wrongs(world) {
            return Ok(());
        }
        if begun.elapsed() > settled && quiet >= QUIET {
            break;
        }
        if begun.elapsed() > REST_WITHIN {
            let mut book = world.book.borrow();
            let latest = book.latest.join("\n    ");
            book.wrong(&format!("there is no rest; the last writes:\n    {latest}"));
            return Ok(());
        }
    }
    {
        let mut book = world.book.borrow();
        book.note("rest");
        book.catch_up();
        let wrongs = rest::judge(&book.truth, &book.stories);
        for wrong in wrongs {
            book.wrong(&wrong);
        }
    }
    let writes = world.book.borrow().muster_writes;
    world.pass(REST_LASTS).await;
    let mut book = world.book.borrow();
    if book.muster_writes != writes {
        let latest = book.latest.join("\n    ");
        book.wrong(&format!("Muster writes at rest:\n    {latest}"));
    }
    Ok(())
}
