//! Running a test over many seeds, and saying which one failed.

/// Runs the case for every seed, or for the one that the environment names, or for as many more as it says.
pub fn for_each_seed(count: u64, mut case: impl FnMut(u64)) {
    let seeds = from_environment("MUSTER_SEED")
        .map_or_else(|| 0..count * from_environment("MUSTER_TIMES").unwrap_or(1), |seed| seed..seed + 1);
    for seed in seeds {
        let told = ToldOnPanic(seed);
        case(seed);
        drop(told);
    }
}

/// Whether one case runs alone, so that shares of all cases mean nothing.
pub fn one_seed_only() -> bool {
    from_environment("MUSTER_SEED").is_some()
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, not {text:?}")))
}

/// Names the seed whatever fails: an assertion here or a panic inside the engine.
struct ToldOnPanic(u64);

impl Drop for ToldOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with MUSTER_SEED={}; with it set, the same test runs this case alone", self.0);
        }
    }
}
