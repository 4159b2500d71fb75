//! The selection of scenarios for each kind of cluster, by the tier and by the part of `make test-all`.
//!
//! `MUSTER_TIER=all` selects every kind of cluster; `MUSTER_KINDS=stock:1/2,1.36` only these, where `stock:1/2` is the
//! first half of the test cases of `stock`. Must not depend on how control planes are started.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use muster_controlplane::Version;
use muster_sim::scenario::{About, Carrier, Scenario, load};
use muster_sim::tier::Tier;

use crate::kinds::{ALL, Kind, SHORT};
use crate::test_queue::TestCase;

/// Carriers that differ from another one only in how groups are read. Preemption scenarios that are not written for
/// them run in them on the playground and, with `MUSTER_ALL=1`, here too: time is real, and the other scenarios show
/// that groups are read.
const VARIANTS: [Carrier; 3] = [Carrier::MusterWorkload, Carrier::V1alpha3, Carrier::V1alpha2];
/// Carriers of other projects. Here they run scenarios that are written for them and those of [`FOR_ALL`]: time is
/// real, and only reading and writing of groups differs.
const OTHER_PROJECTS: [Carrier; 2] = [Carrier::SchedulerPlugins, Carrier::Volcano];
/// Scenarios that every carrier must run.
const FOR_ALL: [&str; 6] = [
    "gang-starts-whole.yaml",
    "gang-waits-for-its-members.yaml",
    "node-deleted-degrades.yaml",
    "restart-in-the-middle-of-a-start.yaml",
    "start-rolled-back.yaml",
    "two-gangs-room-for-one.yaml",
];
const VARIABLE: &str = "MUSTER_KINDS";

/// A kind of cluster and the slice of its test cases that runs.
#[derive(Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) kind: Kind,
    tier: Tier,
    /// From 1.
    slice: usize,
    slices: usize,
}

/// The selection of this run.
pub(crate) fn chosen(tier: Tier) -> Vec<Choice> {
    let kinds = tier.pick(&SHORT[..], &ALL[..]);
    let whole = |kind: &Kind| Choice { kind: *kind, tier, slice: 1, slices: 1 };
    match env::var(VARIABLE) {
        Err(_) => kinds.iter().map(whole).collect(),
        Ok(text) => {
            text.split(',').map(|word| parse_choice(word, tier).unwrap_or_else(|why| panic!("{why}"))).collect()
        }
    }
}

/// Reads `ID` or `ID:SLICE/SLICES`.
fn parse_choice(word: &str, tier: Tier) -> Result<Choice, String> {
    let (id, slice) = word.split_once(':').unwrap_or((word, "1/1"));
    let Some(kind) = ALL.iter().find(|kind| kind.id == id) else {
        let ids = ALL.map(|kind| kind.id).join(", ");
        return Err(format!("{VARIABLE}: {word:?}: there is no such kind of cluster; there are {ids}"));
    };
    let numbers = slice.split_once('/').and_then(|(slice, of)| Some((slice.parse().ok()?, of.parse().ok()?)));
    match numbers {
        Some((slice, slices)) if 1 <= slice && slice <= slices => Ok(Choice { kind: *kind, tier, slice, slices }),
        _ => Err(format!("{VARIABLE}: {word:?}: must end in a slice such as :1/2")),
    }
}

impl Choice {
    /// The test cases for this kind of cluster.
    pub(crate) fn test_cases<'a>(&self, scenarios: &'a [Scenario]) -> Vec<TestCase<'a>> {
        let test_cases = test_cases(&self.kind, self.tier, scenarios).into_iter();
        test_cases.skip(self.slice - 1).step_by(self.slices).collect()
    }
}

/// Every scenario of the project.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files.iter().map(|file| load(file).unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// All test cases of a kind of cluster in a tier.
fn test_cases<'a>(kind: &Kind, tier: Tier, scenarios: &'a [Scenario]) -> Vec<TestCase<'a>> {
    let applies = |scenario: &&Scenario| {
        scenario.needs_managers() == kind.managers
            && !kind.left_out.iter().any(|file| is_in(scenario, file))
            && (tier == Tier::All || scenario.about.contains(&About::Api))
    };
    let of = |scenario: &'a Scenario| kind.carriers.iter().map(move |carrier| (scenario, *carrier));
    let mut test_cases: Vec<TestCase> = scenarios.iter().filter(applies).flat_map(of).collect();
    test_cases.retain(|(scenario, carrier)| tier == Tier::All || is_in_short(kind, scenario, *carrier));
    if env::var_os("MUSTER_ALL").is_none() {
        test_cases.retain(|(scenario, carrier)| {
            let runs_elsewhere = VARIANTS.contains(carrier) && !scenario.carriers.contains(carrier);
            !is_of_preemption(scenario) || !runs_elsewhere
        });
        let is_for = |scenario: &Scenario, carrier: &Carrier| {
            scenario.carriers.contains(carrier) || FOR_ALL.iter().any(|file| is_in(scenario, file))
        };
        test_cases.retain(|(scenario, carrier)| !OTHER_PROJECTS.contains(carrier) || is_for(scenario, carrier));
    }
    if !kind.served.is_empty() {
        // A scenario with both kinds of groups cannot run on a cluster without Kubernetes' own groups.
        let both = scenarios.iter().filter(applies).filter(|scenario| scenario.native_version().is_some());
        test_cases.extend(both.map(|scenario| (scenario, Carrier::Muster)));
    }
    test_cases
}

/// Whether the short tier runs a scenario about the API in a carrier: in the cluster's first carrier that can express
/// it, and in the others if the carrier matters to it.
fn is_in_short(kind: &Kind, scenario: &Scenario, carrier: Carrier) -> bool {
    let first = kind.carriers.iter().find(|carrier| carrier.can_express(scenario));
    scenario.about.contains(&About::Carriers) || first == Some(&carrier)
}

/// Whether a scenario is in the file of this name.
fn is_in(scenario: &Scenario, file: &str) -> bool {
    Path::new(&scenario.file).file_name().is_some_and(|name| name == file)
}

fn is_of_preemption(scenario: &Scenario) -> bool {
    Path::new(&scenario.file).file_name().is_some_and(|name| name.to_string_lossy().starts_with("preempt-"))
}

/// Whether a kind of cluster has to run a scenario: it is planned there, and neither cluster nor carrier exclude it.
fn is_shown(scenario: &Scenario, kind: &Kind, tier: Tier) -> bool {
    let test_cases = test_cases(kind, tier, std::slice::from_ref(scenario));
    !kind.excludes(scenario) && test_cases.iter().any(|(scenario, carrier)| carrier.can_express(scenario))
}

#[test]
fn every_scenario_is_planned_on_a_real_control_plane() {
    for scenario in scenarios() {
        let file = &scenario.file;
        let is_newest = |kind: &&Kind| kind.version == Version::V1_37;
        let is_older = |carrier: Carrier| !ALL.iter().filter(is_newest).any(|kind| kind.carriers.contains(&carrier));
        let is_of_older = Carrier::ALL.into_iter().filter(|carrier| carrier.can_express(&scenario)).all(is_older);
        let mut planned = ALL.iter().filter(|kind| is_of_older || is_newest(kind));
        assert!(planned.any(|kind| is_shown(&scenario, kind, Tier::All)), "{file}: on no control plane");
        let in_short = SHORT.iter().any(|kind| is_shown(&scenario, kind, Tier::Short));
        let only_native_managers = scenario.needs_managers() && scenario.own_carrier() != Some(Carrier::Muster);
        if scenario.about.contains(&About::Api) && !is_of_older && !only_native_managers {
            assert!(in_short, "{file}: is about the API and not in the short tier");
        }
    }
}

/// The parts of `make test-all` are lists in a script: together they run every kind of cluster and every slice of it.
#[test]
fn parts_of_all_tests_run_every_kind() {
    let script = include_str!("../../../../tools/test");
    let lists = script.lines().filter_map(|line| line.rsplit_once(" real ")?.1.split_whitespace().next());
    let ids: Vec<&str> = lists.flat_map(|list| list.split(',')).collect();
    for kind in ALL {
        let mut of_kind =
            ids.iter().filter_map(|word| parse_choice(word, Tier::All).ok()).filter(|one| one.kind.id == kind.id);
        let Some(first) = of_kind.next() else { panic!("{}: no part of tools/test runs it", kind.id) };
        let slices: BTreeSet<usize> = of_kind.map(|one| one.slice).chain([first.slice]).collect();
        assert_eq!(slices.len(), first.slices, "{}: a slice is missing", kind.id);
    }
}

#[test]
fn slices_of_a_kind_cover_all_of_it() {
    let scenarios = scenarios();
    let files = |word: &str| -> Vec<(String, Carrier)> {
        let test_cases = parse_choice(word, Tier::All).expect(word).test_cases(&scenarios);
        test_cases.iter().map(|(scenario, carrier)| (scenario.file.clone(), *carrier)).collect()
    };
    let mut sliced = [files("stock:1/3"), files("stock:2/3"), files("stock:3/3")].concat();
    let mut whole = files("stock");
    sliced.sort();
    whole.sort();
    assert_eq!(sliced, whole);
    for wrong in ["stock:0/3", "stock:4/3", "stock:x", "cloud"] {
        assert!(parse_choice(wrong, Tier::All).is_err(), "{wrong}");
    }
}
