//! Every scenario of the project, in every carrier that has words for it.

use std::path::{Path, PathBuf};

use muster_sim::scenario::{Carrier, Outcome, Place, load, run};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

#[test]
fn every_scenario_passes_in_every_carrier_that_can_express_it() {
    let files = files();
    assert!(!files.is_empty(), "there are no scenarios");
    let mut failures = Vec::new();
    for file in files {
        let scenario = match load(&file) {
            Ok(scenario) => scenario,
            Err(error) => {
                failures.push(error.to_string());
                continue;
            }
        };
        let reports = Carrier::ALL.map(|carrier| run(&scenario, carrier, &Place::Process));
        if reports.iter().all(|report| matches!(report.outcome, Outcome::Skipped(_))) {
            failures.push(format!("{}: skipped in every carrier", file.display()));
        }
        failures.extend(reports.iter().filter(|report| report.is_failed()).map(ToString::to_string));
    }
    assert!(failures.is_empty(), "{} failures\n\n{}", failures.len(), failures.join("\n\n"));
}
