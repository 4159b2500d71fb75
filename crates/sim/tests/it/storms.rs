//! Storms: random runs of Muster, server, nodes and users under faults.
//!
//! `MUSTER_SEED=n` plays one seed, `MUSTER_TIMES=n` plays so many, `MUSTER_TIER=all` two hundred, `MUSTER_TRACE=1` prints
//! what happens.

use std::env;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_sim::storm::{Failure, run};
use muster_sim::tier::Tier;

/// In the short tier, and in all.
const SEEDS: (u64, u64) = (40, 200);
const THREADS: usize = 2;
/// The most failures that are shown.
const SHOWN_MAX: usize = 20;
const LINES_MAX: usize = 3;
const LINE_CHARS_MAX: usize = 400;

fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text:?}: is no number")))
}

fn play(first: u64, count: u64) -> Vec<Failure> {
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
                        failures.lock().expect("nobody panics here").push(failure);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("nobody panics here");
    failures.sort_by_key(|failure| failure.seed);
    failures
}

fn cut(text: &str) -> String {
    text.lines().take(LINES_MAX).map(|line| line.chars().take(LINE_CHARS_MAX).collect::<String>() + "\n").collect()
}

#[test]
fn the_rules_hold_in_storms() {
    let trace = setting::<u8>("MUSTER_TRACE").is_some_and(|trace| trace > 0);
    let failures = if let Some(seed) = setting("MUSTER_SEED") {
        run(seed, trace).err().into_iter().collect()
    } else {
        play(0, setting("MUSTER_TIMES").unwrap_or_else(|| Tier::of_environment().pick(SEEDS.0, SEEDS.1)))
    };
    let seeds: Vec<u64> = failures.iter().map(|failure| failure.seed).collect();
    let shown: Vec<String> = failures.iter().take(SHOWN_MAX).map(|failure| cut(&failure.to_string())).collect();
    assert!(
        failures.is_empty(),
        "{} seeds fail: {seeds:?}\n{}\nMUSTER_SEED=n MUSTER_TRACE=1 shows one of them.",
        seeds.len(),
        shown.join("\n")
    );
}

#[test]
fn one_seed_is_one_run() {
    for seed in 1000..1004 {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed} is not played alike twice");
    }
}
