//! Random runs of Muster, server, nodes and users under fault injection.
//!
//! `MUSTER_SEED=n` runs one seed, `MUSTER_TIMES=n` runs n seeds, `MUSTER_TIER=all` 200, `MUSTER_TRACE=1` prints every
//! request.

use std::env;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_sim::storm::{Failure, run};
use muster_sim::tier::Tier;

/// The number of seeds in the short tier and in all.
const SEEDS: (u64, u64) = (40, 200);
const THREADS: usize = 2;
/// The maximum number of printed failures.
const SHOWN_MAX: usize = 20;
const LINES_MAX: usize = 3;
const LINE_CHARS_MAX: usize = 400;

fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text:?}: not a number")))
}

fn run_seeds(first: u64, count: u64) -> Vec<Failure> {
    let (next, failures) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    if let Err(failure) = run(seed, false) {
                        failures.lock().expect("no thread panics").push(failure);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no thread panics");
    failures.sort_by_key(|failure| failure.seed);
    failures
}

fn truncated(text: &str) -> String {
    text.lines().take(LINES_MAX).map(|line| line.chars().take(LINE_CHARS_MAX).collect::<String>() + "\n").collect()
}

#[test]
fn rules_hold_under_faults() {
    let trace = setting::<u8>("MUSTER_TRACE").is_some_and(|trace| trace > 0);
    let failures = if let Some(seed) = setting("MUSTER_SEED") {
        run(seed, trace).err().into_iter().collect()
    } else {
        run_seeds(0, setting("MUSTER_TIMES").unwrap_or_else(|| Tier::of_environment().pick(SEEDS.0, SEEDS.1)))
    };
    let seeds: Vec<u64> = failures.iter().map(|failure| failure.seed).collect();
    let shown: Vec<String> = failures.iter().take(SHOWN_MAX).map(|failure| truncated(&failure.to_string())).collect();
    assert!(
        failures.is_empty(),
        "{} seeds fail: {seeds:?}\n{}\nMUSTER_SEED=n MUSTER_TRACE=1 shows one of them.",
        seeds.len(),
        shown.join("\n")
    );
}

#[test]
fn one_seed_gives_one_run() {
    for seed in 1000..1004 {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed} differs between two runs");
    }
}
