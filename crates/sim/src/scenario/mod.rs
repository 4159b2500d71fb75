//! Scenarios: read from files, played in each carrier, judged by what the API shows.
//!
//! [`load`] and [`parse`] read, [`run`] plays, [`Report`] tells. This file is the run itself: one step after the
//! other, with the time that each may take.

mod autoscaler;
mod carrier;
mod claims;
mod cluster;
mod hook;
mod judge;
mod manifest;
mod model;
mod nodes;
mod objects;
mod parse;
mod pattern;
mod report;
mod snapshot;
mod step;
#[cfg(test)]
mod tests;
mod verdict;
mod world;
mod yaml;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Event;
use tokio::runtime::Builder;
use tokio::time::Instant;

use self::carrier::Carriage;
use self::claims::{Claims, Expect, Hold};
use self::judge::judge;
use self::snapshot::{Snapshot, event_line, pod_line};
use self::world::World;

pub use self::carrier::Carrier;
pub use self::claims::{ConditionClaim, ConditionStatus, EventClaim, GroupClaim};
pub use self::model::{About, Action, Scenario, Step};
pub use self::parse::{ParseError, load, parse};
pub use self::report::{Done, FailedStep, Failure, Outcome, Report};
pub use self::world::Place;
pub(crate) use self::world::{controllers_settings, webhook};

/// How many pods, events and faults are told of a failure.
const TOLD_MAX: usize = 30;

/// Plays a scenario in a carrier. Runs on a runtime of its own, and so must not be called on one.
pub fn run(scenario: &Scenario, carrier: Carrier, place: &Place) -> Report {
    let began = std::time::Instant::now();
    let mut report = Report {
        name: scenario.name.clone(),
        file: scenario.file.clone(),
        carrier,
        steps: scenario.steps.len(),
        done: Vec::new(),
        outcome: Outcome::Passed,
        unjudged: 0,
        is_interrupted: false,
        story_time: std::time::Duration::ZERO,
        wall_time: std::time::Duration::ZERO,
    };
    let carriage = Carriage::of(carrier, scenario).and_then(|carriage| match place {
        Place::Process => carriage.in_process(scenario),
        Place::Cluster(_) => Ok(carriage),
    });
    match carriage {
        Err(why) => report.outcome = Outcome::Skipped(why),
        Ok(carriage) => {
            let mut runtime = Builder::new_current_thread();
            runtime.enable_all().start_paused(matches!(place, Place::Process));
            match runtime.build() {
                Ok(runtime) => runtime.block_on(play_in(place, scenario, carriage, &mut report)),
                Err(error) => report.outcome = failed(format!("no runtime: {error}")),
            }
        }
    }
    report.wall_time = began.elapsed();
    report
}

fn failed(problem: String) -> Outcome {
    Outcome::Failed(Failure { step: None, problems: vec![problem], seen: Vec::new() })
}

async fn play_in(place: &Place, scenario: &Scenario, carriage: Carriage, report: &mut Report) {
    if let Place::Cluster(config) = place
        && let Some(why) = cluster::unfit(config, scenario, report.carrier).await
    {
        report.outcome = Outcome::Skipped(why);
        return;
    }
    let world = match place {
        Place::Process => World::in_process(scenario, carriage).await,
        Place::Cluster(config) => World::on_cluster(scenario, carriage, config.clone()).await,
    };
    let mut world = match world {
        Ok(world) => world,
        Err(why) => {
            report.outcome = failed(why);
            return;
        }
    };
    let is_ours = matches!(place, Place::Process);
    let mut is_interrupted = false;
    tokio::select! {
        outcome = prepare_and_play(&mut world, scenario, report) => report.outcome = outcome,
        // On a cluster an interrupted run must be cleaned up; in the process there is nothing to clean up.
        _ = tokio::signal::ctrl_c(), if !is_ours => is_interrupted = true,
    }
    if is_interrupted {
        report.is_interrupted = true;
        report.outcome = failed("interrupted".to_owned());
    }
    let left = world.end().await;
    if !left.is_empty() && !report.is_failed() {
        report.outcome = Outcome::Failed(Failure { step: None, problems: left, seen: Vec::new() });
    }
}

async fn prepare_and_play(world: &mut World, scenario: &Scenario, report: &mut Report) -> Outcome {
    if let Err(why) = prepare(world, scenario).await {
        return failed(why);
    }
    match play(world, scenario, report).await {
        Ok(()) => Outcome::Passed,
        Err(failure) => Outcome::Failed(failure),
    }
}

async fn prepare(world: &mut World, scenario: &Scenario) -> Result<(), String> {
    world.add_first_nodes(scenario).await?;
    world.start_scheduler()
}

/// Does one step after the other.
async fn play(world: &mut World, scenario: &Scenario, report: &mut Report) -> Result<(), Failure> {
    let began = Instant::now();
    let mut orders = 0;
    for (index, step) in scenario.steps.iter().enumerate() {
        let problems = match &step.action {
            Action::Expect(expect) => comes_true(world, expect).await,
            Action::Hold(hold) => stays_true(world, hold).await,
            action => step::perform(world, action).await.map_err(|why| vec![why]),
        };
        // For the autoscaler, which must not miss what comes and goes between expectations.
        world.look().await.ok();
        if let Action::Fault(fault) = &step.action {
            orders += fault.times;
        }
        if !world.carriage.has_status() {
            report.unjudged += step.action.claims().map_or(0, |claims| claims.groups.len());
        }
        report.story_time = began.elapsed();
        let number = index + 1;
        if let Err(problems) = problems {
            let step = FailedStep { number, line: step.line, text: step.text.clone() };
            return Err(Failure { step: Some(step), problems, seen: what_there_is(world, scenario).await });
        }
        report.done.push(Done { number, text: step.text.clone(), at: report.story_time });
    }
    if orders > 0 && world.faults.report().is_empty() {
        let problem = format!("{orders} faults were ordered and no request met one: the scenario does not show them");
        return Err(Failure { step: None, problems: vec![problem], seen: what_there_is(world, scenario).await });
    }
    Ok(())
}

async fn comes_true(world: &mut World, expect: &Expect) -> Result<(), Vec<String>> {
    let claims = expect.claims.in_carrier(world.carriage.carrier());
    let until = Instant::now() + expect.within.as_duration();
    if is_beyond_telling(world, &claims) {
        // Whatever should have happened has had its time.
        while Instant::now() < until {
            world.look().await.ok();
            world.wait(until).await;
        }
        return Ok(());
    }
    loop {
        let unmet = look(world, &claims).await;
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

async fn stays_true(world: &mut World, hold: &Hold) -> Result<(), Vec<String>> {
    let claims = hold.claims.in_carrier(world.carriage.carrier());
    let began = Instant::now();
    let until = began + hold.time.as_duration();
    loop {
        let unmet = look(world, &claims).await;
        if !unmet.is_empty() {
            let mut problems = vec![format!("not true any more after {}:", report::shown(began.elapsed()))];
            problems.extend(unmet);
            return Err(problems);
        }
        if Instant::now() >= until {
            return Ok(());
        }
        world.wait(until).await;
    }
}

/// Whether nothing of this can be judged: it is about groups whose objects say nothing.
fn is_beyond_telling(world: &World, claims: &Claims) -> bool {
    !world.carriage.has_status() && claims.is_only_about_groups()
}

/// What is not true now.
async fn look(world: &mut World, claims: &Claims) -> Vec<String> {
    match Snapshot::take(world, claims).await {
        Ok(seen) => judge(world, claims, &seen),
        Err(why) => vec![why],
    }
}

/// Pods, groups, events and faults, for whoever has to find out why something failed.
async fn what_there_is(world: &mut World, scenario: &Scenario) -> Vec<String> {
    let mut lines = Vec::new();
    match world.look().await {
        Ok(pods) => lines.extend(tail("pod", pods.iter().map(pod_line).collect())),
        Err(why) => lines.push(why),
    }
    let groups = scenario.steps.iter().filter_map(|step| match &step.action {
        Action::Group(group) => Some(group.name.as_str()),
        _ => None,
    });
    for name in groups.collect::<BTreeSet<_>>() {
        match snapshot::group(world, name).await {
            Ok(Some(object)) => lines.push(format!("group {name}: {}", object["status"])),
            Ok(None) => lines.push(format!("group {name} is not there")),
            Err(why) => lines.push(why),
        }
    }
    match snapshot::events(world).await {
        Ok(mut events) => {
            events.sort_by_key(told_at);
            lines.extend(tail("event", events.iter().map(event_line).collect()));
        }
        Err(why) => lines.push(why),
    }
    lines.extend(tail("fault", world.faults.report()));
    lines
}

fn told_at(event: &Event) -> Option<jiff::Timestamp> {
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    last.or_else(|| event.event_time.as_ref().map(|time| time.0))
}

/// The last lines, and how many came before them.
fn tail(what: &str, lines: Vec<String>) -> Vec<String> {
    let before = lines.len().saturating_sub(TOLD_MAX);
    let mut told: Vec<String> = lines.into_iter().skip(before).map(|line| format!("{what} {line}")).collect();
    if before > 0 {
        told.insert(0, format!("{before} more {what}s"));
    }
    told
}
