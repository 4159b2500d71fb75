//! Rounds of random deletions, restarts and suspensions on the playground.
//!
//! `MUSTER_SEED=n` runs one seed, `MUSTER_TIMES=n` runs n seeds.

use std::env;

use muster_sim::rounds::run;

const SEEDS: u64 = 4;

fn setting(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text:?}: not a number")))
}

#[test]
fn one_of_two_competing_sets_runs_and_no_objects_are_left() {
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
    assert!(failures.is_empty(), "{} seeds fail; MUSTER_SEED=n runs one\n{}", failures.len(), failures.join("\n\n"));
}
