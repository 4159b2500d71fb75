//! Every scenario of the project on real control planes: a stock cluster with our kinds, and clusters that serve
//! Kubernetes' own groups, each version with its own carrier.
//!
//! Invariant: a scenario that no plane could play is a failure. What fails is played once more when the machine has
//! come to rest, since time is real; then it has to pass, and it is told all the same.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use muster_controlplane::{Binary, Plane, Profile, Version, required};
use muster_sim::scenario::{Carrier, Outcome, Place, Report, Scenario, load, run};

use crate::cluster::config_of;

/// How many planes run at the same time. Scenarios wait most of the time.
const PLANES: usize = 6;
/// With more that fail at first than these, it is not the machine.
const SECOND_TRIES_MAX: usize = 4;

/// One kind of cluster, and the carriers that are played on it.
struct Kind {
    version: Version,
    profile: Profile,
    carriers: &'static [Carrier],
}

const STOCK: Kind =
    Kind { version: Version::V1_37, profile: Profile::Stock, carriers: &[Carrier::Muster, Carrier::MusterWorkload] };
const NATIVE: Kind =
    Kind { version: Version::V1_37, profile: Profile::Gates, carriers: &[Carrier::V1beta1, Carrier::V1alpha3] };
/// Older versions, played where they are built.
const OLDER: [Kind; 2] = [
    Kind { version: Version::V1_36, profile: Profile::Gates, carriers: &[Carrier::V1alpha2] },
    Kind { version: Version::V1_35, profile: Profile::Gates, carriers: &[Carrier::V1alpha1] },
];

/// A scenario in a carrier.
type Part<'a> = (&'a Scenario, Carrier);

fn planes() -> usize {
    std::env::var("MUSTER_PLANES").ok().and_then(|text| text.parse().ok()).unwrap_or(PLANES).max(2)
}

fn scenarios() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files.iter().map(|file| load(file).unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// The parts of a kind of cluster, those that take longest first.
fn parts<'a>(kind: &Kind, scenarios: &'a [Scenario]) -> Vec<Part<'a>> {
    let of = |scenario: &'a Scenario| kind.carriers.iter().map(move |carrier| (scenario, *carrier));
    let mut parts: Vec<Part> = scenarios.iter().flat_map(of).collect();
    if kind.version == Version::V1_37 && kind.profile == Profile::Gates {
        // A story of both kinds of groups has no place on a stock cluster.
        let both = scenarios.iter().filter(|scenario| scenario.native_version().is_some());
        parts.extend(both.map(|scenario| (scenario, Carrier::Muster)));
    }
    parts.sort_by_key(|(scenario, _)| std::cmp::Reverse(scenario.held_time()));
    parts
}

fn place_of(plane: &Plane) -> Place {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    Place::Cluster(runtime.block_on(config_of(plane)))
}

/// Plays all parts on planes of one kind.
fn play_all<'a>(binary: &Binary, profile: Profile, parts: Vec<Part<'a>>, planes: usize) -> Vec<(Part<'a>, Report)> {
    let waiting = Mutex::new(parts.into_iter());
    let played = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..planes {
            scope.spawn(|| {
                let plane = Plane::start(binary, profile, &[]).unwrap_or_else(|error| panic!("{error}"));
                let place = place_of(&plane);
                loop {
                    let next = waiting.lock().expect("no worker panics with it").next();
                    let Some((scenario, carrier)) = next else { return };
                    let report = run(scenario, carrier, &place);
                    eprintln!("{report}");
                    played.lock().expect("no worker panics with it").push(((scenario, carrier), report));
                }
            });
        }
    });
    played.into_inner().expect("no worker panics with it")
}

/// Plays all scenarios on a kind of cluster, and tells which of them were played to their end.
fn play_kind(kind: &Kind, binary: &Binary, scenarios: &[Scenario], planes: usize) -> BTreeSet<String> {
    let (Kind { version, profile, .. }, mut failures) = (kind, Vec::new());
    let mut played = play_all(binary, *profile, parts(kind, scenarios), planes);
    let again: Vec<Part> = played.iter().filter(|(_, report)| report.is_failed()).map(|(part, _)| *part).collect();
    if !again.is_empty() && again.len() <= SECOND_TRIES_MAX {
        failures.extend(played.extract_if(.., |(_, report)| report.is_failed()).map(|(_, report)| report.to_string()));
        eprintln!("failed at first on {version} {}, and played again alone:\n{}", profile.name(), failures.join("\n"));
        played.extend(play_all(binary, *profile, again, 1));
    }
    let failed: Vec<String> =
        played.iter().filter(|(_, report)| report.is_failed()).map(|(_, report)| report.to_string()).collect();
    assert!(failed.is_empty(), "{} failures on {version} {}\n\n{}", failed.len(), profile.name(), failed.join("\n\n"));
    let passed = played.iter().filter(|(_, report)| matches!(report.outcome, Outcome::Passed));
    passed.map(|((scenario, _), _)| scenario.file.clone()).collect()
}

#[test]
fn every_scenario_passes_on_a_real_control_plane() {
    let Some(binary) = required(Version::V1_37, "all scenarios on a real control plane") else { return };
    let scenarios = scenarios();
    let planes = planes();
    // Both kinds at once: there are more parts for the stock cluster, and native ones wait as long.
    let passed: BTreeSet<String> = thread::scope(|scope| {
        let stock = scope.spawn(|| play_kind(&STOCK, &binary, &scenarios, planes - planes / 2));
        let native = scope.spawn(|| play_kind(&NATIVE, &binary, &scenarios, planes / 2));
        let joined = [stock, native].map(|kind| kind.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.into_iter().flatten().collect()
    });
    for scenario in &scenarios {
        assert!(passed.contains(&scenario.file), "{}: no real control plane could play it", scenario.file);
    }
}

#[test]
fn every_scenario_passes_on_older_versions_that_are_built() {
    let scenarios = scenarios();
    for kind in OLDER {
        match Binary::find(kind.version) {
            Some(binary) => drop(play_kind(&kind, &binary, &scenarios, planes())),
            None => eprintln!("not built, and so not played: Kubernetes {}", kind.version),
        }
    }
}
