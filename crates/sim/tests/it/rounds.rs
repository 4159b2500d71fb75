//! Rounds of random deletes, restarts and changes of mind on the playground.
//!
//! `MUSTER_SEED=n` plays one seed, `MUSTER_TIMES=n` plays so many.

use std::env;

use muster_sim::rounds::run;

const SEEDS: u64 = 4;

fn setting(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text:?}: is no number")))
}

#[test]
fn of_two_that_compete_one_runs_and_nothing_is_left_behind() {
    let seeds = match setting("MUSTER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("MUSTER_TIMES").unwrap_or(SEEDS),
    };
    let mut failures = Vec::new();
    for seed in seeds {
        match run(seed) {
            Ok(done) => println!("{}", done.join("\n")),
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    assert!(failures.is_empty(), "{} seeds fail; MUSTER_SEED=n plays one\n{}", failures.len(), failures.join("\n\n"));
}
