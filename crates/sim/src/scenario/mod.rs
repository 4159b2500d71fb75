//! Scenarios: test cases read from files, run in each carrier and checked against what the API shows.
//!
//! [`load`] and [`parse`] read a scenario, [`run`] runs it, [`Report`] is its result. This file runs the steps in
//! order, each with its time limit.

mod assertions;
mod autoscaler;
mod carrier;
mod cluster;
mod evaluate;
mod field_error;
mod group_status;
mod manifest;
mod model;
mod nodes;
mod objects;
mod parse;
mod pattern;
mod report;
mod snapshot;
mod step;
mod step_error;
#[cfg(test)]
mod tests;
mod webhook_server;
mod world;
mod yaml;

use std::collections::BTreeSet;
use std::fmt::Display;

use k8s_openapi::api::core::v1::Event;
use tokio::runtime::Builder;
use tokio::time::Instant;

use self::assertions::{Assertions, Expect, Hold};
use self::carrier::ScenarioCarrier;
use self::evaluate::evaluate;
use self::snapshot::{Snapshot, event_line, pod_line};
use self::step_error::StepError;
use self::world::World;

pub use self::assertions::{ConditionAssertion, ConditionStatus, EventAssertion, GroupAssertion};
pub use self::carrier::Carrier;
pub use self::model::{About, Action, Scenario, Step};
pub use self::parse::{ParseError, load, parse};
pub use self::report::{CompletedStep, FailedStep, Failure, Outcome, Report};
pub use self::world::Place;
pub(crate) use self::world::{controllers_settings, webhook};

/// The maximum number of pods, events and faults that a failure lists.
const SHOWN_MAX: usize = 30;

/// Runs a scenario in a carrier. Starts its own Tokio runtime, so it must not be called on one.
pub fn run(scenario: &Scenario, carrier: Carrier, place: &Place) -> Report {
    let began = std::time::Instant::now();
    let mut report = Report {
        name: scenario.name.clone(),
        file: scenario.file.clone(),
        carrier,
        steps: scenario.steps.len(),
        completed: Vec::new(),
        outcome: Outcome::Passed,
        unchecked: 0,
        is_interrupted: false,
        scenario_time: std::time::Duration::ZERO,
        wall_time: std::time::Duration::ZERO,
    };
    let scenario_carrier = ScenarioCarrier::of(carrier, scenario).and_then(|scenario_carrier| match place {
        Place::Process => scenario_carrier.in_process(scenario),
        Place::Cluster(_) => Ok(scenario_carrier),
    });
    match scenario_carrier {
        Err(why) => report.outcome = Outcome::Skipped(why),
        Ok(scenario_carrier) => {
            let mut runtime = Builder::new_current_thread();
            runtime.enable_all().start_paused(matches!(place, Place::Process));
            match runtime.build() {
                Ok(runtime) => runtime.block_on(run_at(place, scenario, scenario_carrier, &mut report)),
                Err(error) => report.outcome = failed(&format!("no runtime: {error}")),
            }
        }
    }
    report.wall_time = began.elapsed();
    report
}

fn failed(problem: &dyn Display) -> Outcome {
    Outcome::Failed(Failure { step: None, problems: vec![problem.to_string()], seen: Vec::new() })
}

async fn run_at(place: &Place, scenario: &Scenario, scenario_carrier: ScenarioCarrier, report: &mut Report) {
    if let Place::Cluster(config) = place
        && let Some(why) = cluster::unsuitable(config, scenario, report.carrier).await
    {
        report.outcome = Outcome::Skipped(why);
        return;
    }
    let world = match place {
        Place::Process => World::in_process(scenario, scenario_carrier).await,
        Place::Cluster(config) => Box::pin(World::on_cluster(scenario, scenario_carrier, config.clone())).await,
    };
    let mut world = match world {
        Ok(world) => world,
        Err(error) => {
            report.outcome = failed(&error);
            return;
        }
    };
    let is_ours = matches!(place, Place::Process);
    let mut is_interrupted = false;
    tokio::select! {
        outcome = prepare_and_run(&mut world, scenario, report) => report.outcome = outcome,
        // On a cluster an interrupted run must be cleaned up; in the process there is nothing to clean up.
        _ = tokio::signal::ctrl_c(), if !is_ours => is_interrupted = true,
    }
    if is_interrupted {
        report.is_interrupted = true;
        report.outcome = failed(&"interrupted");
    }
    let left = world.end().await;
    if !left.is_empty() && !report.is_failed() {
        report.outcome = Outcome::Failed(Failure { step: None, problems: left, seen: Vec::new() });
    }
}

async fn prepare_and_run(world: &mut World, scenario: &Scenario, report: &mut Report) -> Outcome {
    if let Err(error) = prepare(world, scenario).await {
        return failed(&error);
    }
    match run_steps(world, scenario, report).await {
        Ok(()) => Outcome::Passed,
        Err(failure) => Outcome::Failed(failure),
    }
}

async fn prepare(world: &mut World, scenario: &Scenario) -> Result<(), StepError> {
    world.add_first_nodes(scenario).await?;
    world.start_scheduler()
}

/// Performs the steps in order.
async fn run_steps(world: &mut World, scenario: &Scenario, report: &mut Report) -> Result<(), Failure> {
    let began = Instant::now();
    let mut injected = 0;
    for (index, step) in scenario.steps.iter().enumerate() {
        let problems = match &step.action {
            Action::Expect(expect) => await_true(world, expect).await,
            Action::Hold(hold) => check_stays_true(world, hold).await,
            action => step::perform(world, action).await.map_err(|error| vec![error.to_string()]),
        };
        // The autoscaler must not miss changes between expectations.
        world.list_pods().await.ok();
        if let Action::Fault(fault) = &step.action {
            injected += fault.times;
        }
        if !world.scenario_carrier.has_status() {
            report.unchecked += step.action.assertions().map_or(0, |assertions| assertions.groups.len());
        }
        report.scenario_time = began.elapsed();
        let number = index + 1;
        if let Err(problems) = problems {
            let step = FailedStep { number, line: step.line, text: step.text.clone() };
            return Err(Failure { step: Some(step), problems, seen: cluster_state(world, scenario).await });
        }
        report.completed.push(CompletedStep { number, text: step.text.clone(), at: report.scenario_time });
    }
    if injected > 0 && world.faults.report().is_empty() {
        let problem =
            format!("{injected} faults were injected and no request met one: the scenario does not test them");
        return Err(Failure { step: None, problems: vec![problem], seen: cluster_state(world, scenario).await });
    }
    Ok(())
}

async fn await_true(world: &mut World, expect: &Expect) -> Result<(), Vec<String>> {
    let assertions = expect.assertions.in_carrier(world.scenario_carrier.carrier());
    let until = Instant::now() + expect.within.as_duration();
    if is_uncheckable(world, &assertions) {
        // The state had the full time to become true.
        while Instant::now() < until {
            world.list_pods().await.ok();
            world.wait(until).await;
        }
        return Ok(());
    }
    loop {
        let unmet = failing(world, &assertions).await;
        if unmet.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            let mut problems = vec![format!("not true after {}:", report::shown(expect.within.as_duration()))];
            problems.extend(unmet);
            return Err(problems);
        }
        world.wait(until).await;
    }
}

async fn check_stays_true(world: &mut World, hold: &Hold) -> Result<(), Vec<String>> {
    let assertions = hold.assertions.in_carrier(world.scenario_carrier.carrier());
    let began = Instant::now();
    let until = began + hold.time.as_duration();
    loop {
        let unmet = failing(world, &assertions).await;
        if !unmet.is_empty() {
            let mut problems = vec![format!("no longer true after {}:", report::shown(began.elapsed()))];
            problems.extend(unmet);
            return Err(problems);
        }
        if Instant::now() >= until {
            return Ok(());
        }
        world.wait(until).await;
    }
}

/// Whether none of the assertions can be checked: they are about groups whose objects have no status.
fn is_uncheckable(world: &World, assertions: &Assertions) -> bool {
    !world.scenario_carrier.has_status() && assertions.is_only_about_groups()
}

/// The assertions that do not hold now.
async fn failing(world: &mut World, assertions: &Assertions) -> Vec<String> {
    match Snapshot::take(world, assertions).await {
        Ok(seen) => evaluate(world, assertions, &seen),
        Err(error) => vec![error.to_string()],
    }
}

/// Pods, groups, events and faults, for failure reports.
async fn cluster_state(world: &mut World, scenario: &Scenario) -> Vec<String> {
    let mut lines = Vec::new();
    match world.list_pods().await {
        Ok(pods) => lines.extend(tail("pod", pods.iter().map(pod_line).collect())),
        Err(error) => lines.push(error.to_string()),
    }
    let groups = scenario.steps.iter().filter_map(|step| match &step.action {
        Action::Group(group) => Some(group.name.as_str()),
        _ => None,
    });
    for name in groups.collect::<BTreeSet<_>>() {
        match snapshot::group(world, name).await {
            Ok(Some(object)) => lines.push(format!("group {name}: {}", object["status"])),
            Ok(None) => lines.push(format!("group {name} does not exist")),
            Err(error) => lines.push(error.to_string()),
        }
    }
    match snapshot::events(world).await {
        Ok(mut events) => {
            events.sort_by_key(event_time);
            lines.extend(tail("event", events.iter().map(event_line).collect()));
        }
        Err(error) => lines.push(error.to_string()),
    }
    lines.extend(tail("fault", world.faults.report()));
    lines
}

fn event_time(event: &Event) -> Option<jiff::Timestamp> {
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    last.or_else(|| event.event_time.as_ref().map(|time| time.0))
}

/// The last lines, and how many are left out.
fn tail(what: &str, lines: Vec<String>) -> Vec<String> {
    let before = lines.len().saturating_sub(SHOWN_MAX);
    let mut shown: Vec<String> = lines.into_iter().skip(before).map(|line| format!("{what} {line}")).collect();
    if before > 0 {
        shown.insert(0, format!("{before} more {what}s"));
    }
    shown
}
