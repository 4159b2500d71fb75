//! Every scenario of the project on real control planes: a stock cluster with our kinds, and clusters that serve
//! Kubernetes' own groups, each version with its own carrier.
//!
//! Invariant: a scenario that a cluster of its kind did not play is a failure. What fails is played once more when the machine has
//! come to rest, since time is real; then it has to pass, and it is told all the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use muster_controlplane::{Binary, Version, required};
use muster_sim::scenario::{Carrier, Outcome, Place, Scenario, load, run};

use crate::kinds::{ALPHA, Kind, MANAGERS, NATIVE, NATIVE_MANAGERS, OLDER, STOCK, with_managers};
use crate::programme::{Bill, Part, play, tell};

/// How many planes run at the same time, if there are enough inotify instances. Scenarios wait most of the time; with more
/// planes two cores have too much to do for what is to be seen within seconds.
const PLANES: usize = 8;
/// The inotify instances of a plane; of one with managers; and of the managers here and whatever else runs. Linux gives a
/// user 128, and managers end where there are none left.
const INOTIFY_OF_PLANE: usize = 9;
const INOTIFY_WITH_MANAGERS: usize = 11;
const INOTIFY_OF_OTHERS: usize = 10;
/// Carriers that differ from a sister only in how groups are read. Stories of preemption that are not written for them are
/// played in them in the process and, with `MUSTER_ALL=1`, here too: time is real, and the other stories show that groups
/// are read.
const SISTERS: [Carrier; 3] = [Carrier::MusterWorkload, Carrier::V1alpha3, Carrier::V1alpha2];
/// Carriers of other projects. Here they are played where a scenario is written for them, and in the stories of
/// [`FOR_ALL`]: time is real, and all that differs is how groups are read and written.
const OTHERS: [Carrier; 2] = [Carrier::SchedulerPlugins, Carrier::Volcano];
/// Stories of what every carrier must show.
const FOR_ALL: [&str; 6] = [
    "gang-starts-whole.yaml",
    "gang-waits-for-its-members.yaml",
    "node-deleted-degrades.yaml",
    "restart-in-the-middle-of-a-start.yaml",
    "start-taken-back.yaml",
    "two-gangs-room-for-one.yaml",
];
/// With more that fail at first than these, it is not the machine.
const SECOND_TRIES_MAX: usize = 4;

/// How many planes the machine can carry beside those of other tests.
fn planes() -> usize {
    let number = |text: String| text.trim().parse::<usize>().ok();
    if let Some(planes) = std::env::var("MUSTER_PLANES").ok().and_then(number) {
        return planes.max(1);
    }
    let Some(most) = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").ok().and_then(number) else {
        return PLANES;
    };
    let threads = std::env::var("RUST_TEST_THREADS").ok().and_then(number);
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let others = INOTIFY_OF_OTHERS + threads.saturating_sub(1) * INOTIFY_WITH_MANAGERS;
    (most.saturating_sub(others) / INOTIFY_OF_PLANE).clamp(1, PLANES)
}

fn scenarios() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files.iter().map(|file| load(file).unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// What is played on a kind of cluster.
fn parts<'a>(kind: &Kind, scenarios: &'a [Scenario]) -> Vec<Part<'a>> {
    let is_played = |scenario: &&Scenario| {
        scenario.needs_managers() == kind.managers && !kind.left_out.iter().any(|file| is_in(scenario, file))
    };
    let of = |scenario: &'a Scenario| kind.carriers.iter().map(move |carrier| (scenario, *carrier));
    let mut parts: Vec<Part> = scenarios.iter().filter(is_played).flat_map(of).collect();
    if std::env::var_os("MUSTER_ALL").is_none() {
        parts.retain(|(scenario, carrier)| {
            let is_played_elsewhere = SISTERS.contains(carrier) && !scenario.carriers.contains(carrier);
            !is_of_preemption(scenario) || !is_played_elsewhere
        });
        let is_for = |scenario: &Scenario, carrier: &Carrier| {
            scenario.carriers.contains(carrier) || FOR_ALL.iter().any(|file| is_in(scenario, file))
        };
        parts.retain(|(scenario, carrier)| !OTHERS.contains(carrier) || is_for(scenario, carrier));
    }
    if !kind.served.is_empty() {
        // A story of both kinds of groups has no place on a stock cluster.
        let both = scenarios.iter().filter(is_played).filter(|scenario| scenario.native_version().is_some());
        parts.extend(both.map(|scenario| (scenario, Carrier::Muster)));
    }
    parts
}

/// Whether a scenario stands in the file of this name.
fn is_in(scenario: &Scenario, file: &str) -> bool {
    Path::new(&scenario.file).file_name().is_some_and(|name| name == file)
}

fn is_of_preemption(scenario: &Scenario) -> bool {
    Path::new(&scenario.file).file_name().is_some_and(|name| name.to_string_lossy().starts_with("preempt-"))
}

/// The kinds that there are binaries for.
fn bills<'a>(newest: Option<&Binary>, scenarios: &'a [Scenario]) -> Vec<Bill<'a>> {
    let bill = |kind: Kind, binary: &Binary| Bill::new(kind, binary.clone(), parts(&kind, scenarios));
    let of_newest = |newest| [STOCK, NATIVE, ALPHA, MANAGERS, NATIVE_MANAGERS].map(|kind| bill(kind, newest));
    let mut bills: Vec<Bill> = newest.into_iter().flat_map(of_newest).collect();
    for kind in OLDER {
        match Binary::find(kind.version) {
            Some(binary) => bills.extend([kind, with_managers(kind)].map(|kind| bill(kind, &binary))),
            None => tell(&format!("not built, and so not played: {}", kind.name())),
        }
    }
    bills
}

/// Plays once more, alone, what failed.
fn play_again(bill: &mut Bill) {
    let failed: Vec<_> = bill.played.extract_if(.., |(_, report)| report.is_failed()).collect();
    if failed.is_empty() || failed.len() > SECOND_TRIES_MAX {
        bill.played.extend(failed);
        return;
    }
    for (_, report) in &failed {
        tell(&format!("failed at first on {}, and is played once more alone: {report}", bill.kind.name()));
    }
    let again = failed.into_iter().map(|(part, _)| part).collect();
    for again in play(vec![Bill::new(bill.kind, bill.binary.clone(), again)], 1) {
        bill.faults.extend(again.faults);
        bill.played.extend(again.played);
    }
}

/// What is wrong with what was played on a kind of cluster.
fn failures(bill: &Bill) -> Vec<String> {
    let mut failures = bill.faults.clone();
    if bill.left() > 0 {
        failures.push(format!("{} scenarios were not played", bill.left()));
    }
    for (part, report) in &bill.played {
        match report.outcome {
            Outcome::Skipped(_) if !is_excused(&bill.kind, *part) => {
                failures.push(format!("it can be played, and was not: {report}"));
            }
            _ if report.is_failed() => failures.push(report.to_string()),
            _ => {}
        }
    }
    failures.into_iter().map(|failure| format!("{}: {failure}", bill.kind.name())).collect()
}

/// Whether nobody can be blamed for a skip: the cluster is another one, or the carrier has no words for it.
fn is_excused(kind: &Kind, (scenario, carrier): Part) -> bool {
    kind.is_foreign_to(scenario) || matches!(run(scenario, carrier, &Place::Process).outcome, Outcome::Skipped(_))
}

#[test]
fn every_scenario_passes_on_real_control_planes() {
    let newest = required(Version::V1_37, "all scenarios on the newest control plane");
    let scenarios = scenarios();
    let mut bills = play(bills(newest.as_ref(), &scenarios), planes());
    let mut wrongs = Vec::new();
    let mut passed_on_newest = BTreeSet::new();
    for bill in &mut bills {
        play_again(bill);
        wrongs.extend(failures(bill));
        let passed = bill.played.iter().filter(|(_, report)| matches!(report.outcome, Outcome::Passed));
        let passed: Vec<&str> = passed.map(|((scenario, _), _)| scenario.file.as_str()).collect();
        tell(&format!("{}: {} passed", bill.kind.name(), passed.len()));
        if bill.kind.version == Version::V1_37 {
            passed_on_newest.extend(passed);
        }
    }
    assert!(wrongs.is_empty(), "{} failures\n\n{}", wrongs.len(), wrongs.join("\n\n"));
    if newest.is_none() {
        return;
    }
    let is_of_older = |scenario: &Scenario| {
        let mut carriers = scenario.carriers.iter();
        !scenario.carriers.is_empty()
            && carriers.all(|carrier| OLDER.iter().any(|kind| kind.carriers.contains(carrier)))
    };
    for scenario in scenarios.iter().filter(|scenario| !is_of_older(scenario)) {
        assert!(passed_on_newest.contains(&*scenario.file), "{}: no real control plane could play it", scenario.file);
    }
}
