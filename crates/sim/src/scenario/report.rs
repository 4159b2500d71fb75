//! The result of a scenario, as a value and as text.

use std::fmt;
use std::time::Duration;

use super::carrier::Carrier;

/// The result of a scenario in one carrier.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the scenario shows.
    pub name: String,
    /// Its file.
    pub file: String,
    /// The carrier of its groups.
    pub carrier: Carrier,
    /// The number of steps.
    pub steps: usize,
    /// The completed steps, in order.
    pub completed: Vec<CompletedStep>,
    /// How it ended.
    pub outcome: Outcome,
    /// How many assertions about groups were not checked, because the carrier's objects have no conditions.
    pub unchecked: usize,
    /// Whether it was interrupted: then no further scenario runs.
    pub is_interrupted: bool,
    /// How much time passed in the scenario.
    pub scenario_time: Duration,
    /// How much real time passed.
    pub wall_time: Duration,
}

/// A completed step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedStep {
    /// The number of the step, from 1.
    pub number: usize,
    /// Its text.
    pub text: String,
    /// When it was completed, in the time of the scenario.
    pub at: Duration,
}

/// How a scenario ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Every step was performed and every assertion held.
    Passed,
    /// The carrier cannot express it, for this reason.
    Skipped(String),
    /// It failed.
    Failed(Failure),
}

/// What failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The failed step; `None` if it failed before the first or after the last step.
    pub step: Option<FailedStep>,
    /// The problems, with what was seen instead.
    pub problems: Vec<String>,
    /// The state at that moment: pods, groups, events, faults.
    pub seen: Vec<String>,
}

/// A failed step.
#[derive(Clone, Debug)]
pub struct FailedStep {
    /// The number of the step, from 1.
    pub number: usize,
    /// The line of the file on which it begins.
    pub line: u64,
    /// Its text.
    pub text: String,
}

impl Report {
    /// Whether it failed.
    pub fn is_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }

    /// The completed steps as text.
    pub fn shown_steps(&self) -> String {
        let steps = self.completed.iter().map(|step| {
            format!("    step {} done at {}\n{}\n", step.number, shown(step.at), indented(&step.text, "    | "))
        });
        steps.collect()
    }
}

/// A duration as text.
pub(super) fn shown(time: Duration) -> String {
    let ms = time.as_millis();
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..120_000 => format!("{:.1}s", time.as_secs_f64()),
        _ => format!("{}m{}s", ms / 60_000, ms / 1000 % 60),
    }
}

fn indented(text: &str, before: &str) -> String {
    text.lines().map(|line| format!("{before}{line}")).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scenario, wall) = (shown(self.scenario_time), shown(self.wall_time));
        let Self { name, file, carrier, steps, .. } = self;
        let (file, carrier) = (file.as_str(), carrier.name());
        match &self.outcome {
            Outcome::Passed => {
                write!(f, "pass {name} ({file}, {carrier}, {steps} steps, {scenario} in {wall})")?;
                match self.unchecked {
                    0 => Ok(()),
                    count => {
                        write!(f, "; not checked, since {carrier} has no conditions: {count} assertions about groups")
                    }
                }
            }
            Outcome::Skipped(why) => write!(f, "skip {name} ({file}, {carrier}): {why}"),
            Outcome::Failed(failure) => {
                write!(f, "FAIL {name} ({file}, {carrier}, {steps} steps, {scenario} in {wall})\n{failure}")
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(step) = &self.step {
            writeln!(f, "  step {}, line {}:\n{}", step.number, step.line, indented(&step.text, "    | "))?;
        }
        let problems: Vec<String> = self.problems.iter().map(|problem| indented(problem, "  ")).collect();
        f.write_str(&problems.join("\n"))?;
        if !self.seen.is_empty() {
            let seen: Vec<String> = self.seen.iter().map(|line| indented(line, "    ")).collect();
            write!(f, "\n  state of the cluster:\n{}", seen.join("\n"))?;
        }
        Ok(())
    }
}
