//! Runs every scenario of the project in its own carrier and in the others that the tier selects.
//!
//! `MUSTER_TIER=all` runs each in every carrier that can express it.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use muster_sim::scenario::{Carrier, Outcome, Place, load, run};
use muster_sim::tier::Tier;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

/// The failures of a file.
fn failures_of(file: &Path, tier: Tier) -> Vec<String> {
    let scenario = match load(file) {
        Ok(scenario) => scenario,
        Err(error) => return vec![error.to_string()],
    };
    let carriers = Carrier::ALL.into_iter().filter(|carrier| tier.runs(&scenario, *carrier));
    let reports: Vec<_> = carriers.map(|carrier| run(&scenario, carrier, &Place::Process)).collect();
    let mut failures: Vec<String> =
        reports.iter().filter(|report| report.is_failed()).map(ToString::to_string).collect();
    if reports.iter().all(|report| matches!(report.outcome, Outcome::Skipped(_))) {
        failures.push(format!("{}: skipped in every carrier", file.display()));
    }
    failures
}

#[test]
fn every_scenario_passes_in_the_carriers_of_its_tier() {
    let tier = Tier::of_environment();
    let files = files();
    assert!(!files.is_empty(), "there are no scenarios");
    let failures = Mutex::new(Vec::new());
    let waiting = Mutex::new(files.iter());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no worker panics while holding the lock").next();
                    let Some(file) = next else { return };
                    let failed = failures_of(file, tier);
                    failures.lock().expect("no worker panics while holding the lock").extend(failed);
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no worker panics while holding the lock");
    failures.sort();
    assert!(failures.is_empty(), "{} failures\n\n{}", failures.len(), failures.join("\n\n"));
}
