//! Every scenario of the project on real control planes: a stock cluster with our kinds, and clusters that serve
//! Kubernetes' own groups, each version with its own carrier.
//!
//! Invariant: a scenario that a cluster of its kind did not play is a failure. What fails is played once more when the machine has
//! come to rest, since time is real; then it has to pass, and it is told all the same.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use muster_controlplane::{Binary, Plane, Profile, Version, required};
use muster_sim::scenario::{Carrier, Outcome, Place, Report, Scenario, load, run};

use crate::cluster::config_of;

/// How many planes run at the same time. Scenarios wait most of the time. Each has 13 of the 128 inotify instances that a
/// user of Linux has, and managers end where there are none left; other tests have planes as well.
const PLANES: usize = 8;
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

/// One kind of cluster, and the carriers that are played on it.
#[derive(Clone, Copy)]
struct Kind {
    version: Version,
    profile: Profile,
    /// The versions of Kubernetes' own groups that it serves.
    served: &'static [&'static str],
    /// What it is started with.
    arguments: &'static [&'static str],
    carriers: &'static [Carrier],
    /// Whether JobSet and LeaderWorkerSet are there, with their own managers: for the stories that have some.
    managers: bool,
    /// Files of scenarios that such a cluster cannot play, whoever schedules.
    left_out: &'static [&'static str],
}

const STOCK: Kind = Kind {
    version: Version::V1_37,
    profile: Profile::Stock,
    served: &[],
    arguments: &[],
    carriers: &[Carrier::Muster, Carrier::MusterWorkload, Carrier::SchedulerPlugins, Carrier::Volcano],
    managers: false,
    left_out: &[],
};
const MANAGERS: Kind = Kind { carriers: &[Carrier::Muster], ..with_managers(STOCK) };
const NATIVE: Kind = Kind {
    version: Version::V1_37,
    profile: Profile::Gates,
    served: &["scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3"],
    arguments: &[],
    carriers: &[Carrier::V1beta1],
    managers: false,
    left_out: &[],
};
/// Where gangs of JobSets and LeaderWorkerSets are Kubernetes' own.
const NATIVE_MANAGERS: Kind = with_managers(NATIVE);
/// Where both versions are served Muster reads the better one.
const ALPHA: Kind = Kind {
    served: &["scheduling.k8s.io/v1alpha3"],
    arguments: &["--flag", "kube-apiserver=--runtime-config=scheduling.k8s.io/v1alpha3=true"],
    carriers: &[Carrier::V1alpha3],
    // Kubernetes' own controller, which lets go of deleted groups, speaks v1beta1 only: here they stay.
    left_out: &["native-group-deleted-and-made-again.yaml"],
    ..NATIVE
};
/// Older versions, played where they are built.
const OLDER: [Kind; 2] = [
    Kind { version: Version::V1_36, served: &["scheduling.k8s.io/v1alpha2"], carriers: &[Carrier::V1alpha2], ..NATIVE },
    Kind { version: Version::V1_35, served: &["scheduling.k8s.io/v1alpha1"], carriers: &[Carrier::V1alpha1], ..NATIVE },
];

/// The same with the managers of JobSet and LeaderWorkerSet.
const fn with_managers(kind: Kind) -> Kind {
    Kind { arguments: &["--with", "jobset,lws"], managers: true, ..kind }
}

impl Kind {
    fn name(&self) -> String {
        let managers = if self.managers { "; with JobSet and LeaderWorkerSet" } else { "" };
        format!("Kubernetes {} ({}; {}{managers})", self.version, self.profile.name(), self.served.join(", "))
    }

    /// Whether a scenario is not about such a cluster.
    fn is_foreign_to(&self, scenario: &Scenario) -> bool {
        let is_stock = self.served.is_empty();
        let named = scenario.native_version();
        (scenario.config.stock && !is_stock) || named.is_some_and(|version| !self.served.contains(&version))
    }

    /// Whether nobody can be blamed for a skip: the cluster is another one, or the carrier has no words for it.
    fn is_excused(&self, (scenario, carrier): Part) -> bool {
        self.is_foreign_to(scenario) || matches!(run(scenario, carrier, &Place::Process).outcome, Outcome::Skipped(_))
    }
}

/// The planes of one test are all that the machine can carry.
static MACHINE: Mutex<()> = Mutex::new(());

/// A scenario in a carrier.
type Part<'a> = (&'a Scenario, Carrier);

fn planes() -> usize {
    std::env::var("MUSTER_PLANES").ok().and_then(|text| text.parse().ok()).unwrap_or(PLANES).max(1)
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
    parts.sort_by_key(|(scenario, _)| std::cmp::Reverse(scenario.held_time()));
    parts
}

/// Whether a scenario stands in the file of this name.
fn is_in(scenario: &Scenario, file: &str) -> bool {
    Path::new(&scenario.file).file_name().is_some_and(|name| name == file)
}

fn is_of_preemption(scenario: &Scenario) -> bool {
    Path::new(&scenario.file).file_name().is_some_and(|name| name.to_string_lossy().starts_with("preempt-"))
}

fn place_of(plane: &Plane) -> Place {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    Place::Cluster(runtime.block_on(config_of(plane)))
}

/// Plays all parts on planes of one kind.
fn play_all<'a>(binary: &Binary, kind: &Kind, parts: Vec<Part<'a>>, planes: usize) -> Vec<(Part<'a>, Report)> {
    let waiting = Mutex::new(parts.into_iter());
    let played = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..planes {
            scope.spawn(|| {
                let plane =
                    Plane::start(binary, kind.profile, kind.arguments).unwrap_or_else(|error| panic!("{error}"));
                let place = place_of(&plane);
                loop {
                    let next = waiting.lock().expect("no worker panics with it").next();
                    let Some((scenario, carrier)) = next else { return };
                    let report = run(scenario, carrier, &place);
                    played.lock().expect("no worker panics with it").push(((scenario, carrier), report));
                }
            });
        }
    });
    played.into_inner().expect("no worker panics with it")
}

/// Plays all scenarios on a kind of cluster, and tells which of them were played to their end.
fn play_kind(kind: &Kind, binary: &Binary, scenarios: &[Scenario], planes: usize) -> BTreeSet<String> {
    let began = Instant::now();
    let mut played = play_all(binary, kind, parts(kind, scenarios), planes);
    let again: Vec<Part> = played.iter().filter(|(_, report)| report.is_failed()).map(|(part, _)| *part).collect();
    if !again.is_empty() && again.len() <= SECOND_TRIES_MAX {
        for (_, report) in played.extract_if(.., |(_, report)| report.is_failed()) {
            tell(&format!("failed at first on {}, and is played once more alone: {report}", kind.name()));
        }
        played.extend(play_all(binary, kind, again, 1));
    }
    let mut failures: Vec<String> =
        played.iter().filter(|(_, report)| report.is_failed()).map(|(_, report)| report.to_string()).collect();
    let skipped = played.iter().filter(|(_, report)| matches!(report.outcome, Outcome::Skipped(_)));
    let unexcused = skipped.filter(|(part, _)| !kind.is_excused(*part));
    failures.extend(unexcused.map(|(_, report)| format!("it can be played, and was not: {report}")));
    assert!(failures.is_empty(), "{} failures on {}\n\n{}", failures.len(), kind.name(), failures.join("\n\n"));
    let passed: Vec<_> = played.iter().filter(|(_, report)| matches!(report.outcome, Outcome::Passed)).collect();
    tell(&format!("{}: {} passed in {} s", kind.name(), passed.len(), began.elapsed().as_secs()));
    passed.into_iter().map(|((scenario, _), _)| scenario.file.clone()).collect()
}

/// Says something past the harness, which shows nothing of tests that pass.
fn tell(words: &str) {
    // Nobody may be listening.
    let _ = writeln!(std::io::stderr(), "{words}");
}

#[test]
fn every_scenario_passes_on_a_real_control_plane() {
    let Some(binary) = required(Version::V1_37, "all scenarios on a real control plane") else { return };
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let (scenarios, eighth) = (scenarios(), planes().div_ceil(8));
    // All kinds at once, but those with managers. Most of what there is to wait for is for the stock cluster.
    let passed: BTreeSet<String> = thread::scope(|scope| {
        let stock = scope.spawn(|| play_kind(&STOCK, &binary, &scenarios, 3 * eighth));
        let native = scope.spawn(|| play_kind(&NATIVE, &binary, &scenarios, 2 * eighth));
        let alpha = scope.spawn(|| play_kind(&ALPHA, &binary, &scenarios, eighth));
        let managers = scope.spawn(|| {
            let kinds = [&MANAGERS, &NATIVE_MANAGERS];
            kinds.into_iter().flat_map(|kind| play_kind(kind, &binary, &scenarios, eighth)).collect()
        });
        let joined =
            [stock, native, alpha, managers].map(|kind| kind.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.into_iter().flatten().collect()
    });
    let is_of_older = |scenario: &Scenario| {
        let mut carriers = scenario.carriers.iter();
        !scenario.carriers.is_empty()
            && carriers.all(|carrier| OLDER.iter().any(|kind| kind.carriers.contains(carrier)))
    };
    for scenario in scenarios.iter().filter(|scenario| !is_of_older(scenario)) {
        assert!(passed.contains(&scenario.file), "{}: no real control plane could play it", scenario.file);
    }
}

#[test]
fn every_scenario_passes_on_older_versions_that_are_built() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let (scenarios, quarter) = (scenarios(), planes().div_ceil(4));
    for kind in OLDER {
        match Binary::find(kind.version) {
            Some(binary) => thread::scope(|scope| {
                let managers = scope.spawn(|| play_kind(&with_managers(kind), &binary, &scenarios, quarter));
                play_kind(&kind, &binary, &scenarios, planes() - quarter.min(planes() - 1));
                managers.join().unwrap_or_else(|panic| resume_unwind(panic));
            }),
            None => tell(&format!("not built, and so not played: {}", kind.name())),
        }
    }
}
