//! Runs a test over many seeds, and prints the one that failed.

/// Runs the case for every seed, for the one in `MUSTER_SEED`, or for `MUSTER_TIMES` as many.
pub fn for_each_seed(count: u64, mut case: impl FnMut(u64)) {
    let seeds = from_environment("MUSTER_SEED")
        .map_or_else(|| 0..count * from_environment("MUSTER_TIMES").unwrap_or(1), |seed| seed..seed + 1);
    for seed in seeds {
        let seed_on_panic = SeedOnPanic(seed);
        case(seed);
        drop(seed_on_panic);
    }
}

/// Whether only one case runs, so that shares of all cases are meaningless.
pub fn one_seed_only() -> bool {
    from_environment("MUSTER_SEED").is_some()
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, not {text:?}")))
}

/// Prints the seed on any failure: an assertion in the test or a panic inside the engine.
struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with MUSTER_SEED={}; with it set, the same test runs this case alone", self.0);
        }
    }
}
