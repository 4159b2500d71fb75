//! Scenarios on real control planes: clusters without Kubernetes' own groups, and clusters that serve them, each
//! version with its own carrier.
//!
//! Invariant: a selected scenario that did not run on a cluster of its kind is a failure. A failed scenario runs once
//! more while no other runs, since time is real; then it has to pass, and both results are reported.

use std::fs;
use std::thread;

use muster_controlplane::required;
use muster_sim::scenario::{Outcome, Place, Scenario, run};
use muster_sim::tier::Tier;

use crate::kinds::Kind;
use crate::selection::{chosen, scenarios};
use crate::test_queue::{TestCase, TestQueue, print_line, run_queues};

/// How many control planes run at the same time, if there are enough inotify instances. Scenarios mostly wait; with
/// more control planes two cores are too slow for time limits of seconds.
const PLANES: usize = 8;
/// The inotify instances of a control plane; of one with managers; and of all other programs. Linux gives a user 128,
/// and managers exit if there are none left.
const INOTIFY_OF_PLANE: usize = 9;
const INOTIFY_WITH_MANAGERS: usize = 11;
const INOTIFY_OF_OTHERS: usize = 10;
/// More failures in the first run than this are not caused by a slow machine.
const SECOND_TRIES_MAX: usize = 4;

/// How many control planes the machine can run in addition to those of other tests.
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

/// The selected kinds of clusters, each with its test cases and the binary that runs them.
fn queues(scenarios: &[Scenario]) -> Vec<TestQueue<'_>> {
    let choices = chosen(Tier::of_environment()).into_iter();
    let queues = choices.filter_map(|choice| {
        let binary = required(choice.kind.version, &format!("scenarios on {}", choice.kind.name()))?;
        Some(TestQueue::new(choice.kind, binary, choice.test_cases(scenarios)))
    });
    queues.collect()
}

/// Runs failed test cases once more, alone.
fn run_again(queue: &mut TestQueue) {
    let failed: Vec<_> = queue.finished.extract_if(.., |(_, report)| report.is_failed()).collect();
    if failed.is_empty() || failed.len() > SECOND_TRIES_MAX {
        queue.finished.extend(failed);
        return;
    }
    for (_, report) in &failed {
        print_line(&format!("failed at first on {}, and runs once more alone: {report}", queue.kind.name()));
    }
    let again = failed.into_iter().map(|(case, _)| case).collect();
    for again in run_queues(vec![TestQueue::new(queue.kind, queue.binary.clone(), again)], 1) {
        queue.start_errors.extend(again.start_errors);
        queue.finished.extend(again.finished);
    }
}

/// The failures on a kind of cluster.
fn failures_of(queue: &TestQueue) -> Vec<String> {
    let mut failures = queue.start_errors.clone();
    if queue.left() > 0 {
        failures.push(format!("{} scenarios did not run", queue.left()));
    }
    for (case, report) in &queue.finished {
        match report.outcome {
            Outcome::Skipped(_) if !is_expected_skip(&queue.kind, *case) => {
                failures.push(format!("it can run, and was skipped: {report}"));
            }
            _ if report.is_failed() => failures.push(report.to_string()),
            _ => {}
        }
    }
    failures.into_iter().map(|failure| format!("{}: {failure}", queue.kind.name())).collect()
}

/// Whether a skip is expected: the scenario is about another kind of cluster, or the carrier cannot express it.
fn is_expected_skip(kind: &Kind, (scenario, carrier): TestCase) -> bool {
    kind.excludes(scenario) || matches!(run(scenario, carrier, &Place::Process).outcome, Outcome::Skipped(_))
}

#[test]
fn scenarios_pass_on_real_control_planes() {
    let scenarios = scenarios();
    let mut failures = Vec::new();
    for queue in &mut run_queues(queues(&scenarios), planes()) {
        run_again(queue);
        failures.extend(failures_of(queue));
        let passed = queue.finished.iter().filter(|(_, report)| matches!(report.outcome, Outcome::Passed));
        print_line(&format!("{}: {} passed", queue.kind.name(), passed.count()));
    }
    assert!(failures.is_empty(), "{} failures\n\n{}", failures.len(), failures.join("\n\n"));
}
