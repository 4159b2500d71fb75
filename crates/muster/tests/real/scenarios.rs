//! Scenarios on real control planes: a stock cluster with our kinds, and clusters that serve Kubernetes' own groups, each
//! version with its own carrier.
//!
//! Invariant: a chosen scenario that a cluster of its kind did not play is a failure. A scenario that fails is played once more
//! when no other is playing, since time is real; then it has to pass, and both outcomes are reported.

use std::fs;
use std::thread;

use muster_controlplane::required;
use muster_sim::scenario::{Outcome, Place, Scenario, run};
use muster_sim::tier::Tier;

use crate::kinds::Kind;
use crate::programme::{Bill, Part, play, tell};
use crate::selection::{chosen, scenarios};

/// How many planes run at the same time, if there are enough inotify instances. Scenarios wait most of the time; with more
/// planes two cores have too much to do for what is to be seen within seconds.
const PLANES: usize = 8;
/// The inotify instances of a plane; of one with managers; and of the managers here and whatever else runs. Linux gives a
/// user 128, and managers end where there are none left.
const INOTIFY_OF_PLANE: usize = 9;
const INOTIFY_WITH_MANAGERS: usize = 11;
const INOTIFY_OF_OTHERS: usize = 10;
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

/// The kinds of clusters that are asked for, each with its parts and the binary that plays them.
fn bills(scenarios: &[Scenario]) -> Vec<Bill<'_>> {
    let choices = chosen(Tier::of_environment()).into_iter();
    let bills = choices.filter_map(|choice| {
        let binary = required(choice.kind.version, &format!("scenarios on {}", choice.kind.name()))?;
        Some(Bill::new(choice.kind, binary, choice.parts(scenarios)))
    });
    bills.collect()
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
fn scenarios_pass_on_real_control_planes() {
    let scenarios = scenarios();
    let mut wrongs = Vec::new();
    for bill in &mut play(bills(&scenarios), planes()) {
        play_again(bill);
        wrongs.extend(failures(bill));
        let passed = bill.played.iter().filter(|(_, report)| matches!(report.outcome, Outcome::Passed));
        tell(&format!("{}: {} passed", bill.kind.name(), passed.count()));
    }
    assert!(wrongs.is_empty(), "{} failures\n\n{}", wrongs.len(), wrongs.join("\n\n"));
}
