//! What became of a scenario, as a value, and in words.

use std::fmt;
use std::time::Duration;

use super::carrier::Carrier;

/// What became of a scenario in one carrier.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the scenario shows.
    pub name: String,
    /// Its file.
    pub file: String,
    /// In which objects its groups were written.
    pub carrier: Carrier,
    /// How many steps it has.
    pub steps: usize,
    /// The steps that were done, in order.
    pub done: Vec<Done>,
    /// How it ended.
    pub outcome: Outcome,
    /// How many claims about groups were not judged, because the carrier's objects have no conditions.
    pub unjudged: usize,
    /// Whether somebody wanted it to end: then nothing more is to be played.
    pub is_interrupted: bool,
    /// How much time passed in the scenario.
    pub story_time: Duration,
    /// How much time passed for whoever waited.
    pub wall_time: Duration,
}

/// A step that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The number of the step, from 1.
    pub number: usize,
    /// Its text.
    pub text: String,
    /// When it was done, in the time of the scenario.
    pub at: Duration,
}

/// How a scenario ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Every step was done and every claim was true.
    Passed,
    /// The carrier has no words for it, for this reason.
    Skipped(String),
    /// It failed.
    Failed(Failure),
}

/// What failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The step and its text; nothing if it failed before the first or after the last.
    pub step: Option<FailedStep>,
    /// What is wrong, with what was seen instead.
    pub problems: Vec<String>,
    /// What there was at that moment: pods, groups, events, faults.
    pub seen: Vec<String>,
}

/// A step that failed.
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
    /// Whether something failed.
    pub fn is_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }

    /// The steps that were done, one after the other.
    pub fn shown_steps(&self) -> String {
        let steps = self.done.iter().map(|step| {
            format!("    step {} done at {}\n{}\n", step.number, shown(step.at), indented(&step.text, "    | "))
        });
        steps.collect()
    }
}

/// A length of time for people.
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
        let (story, wall) = (shown(self.story_time), shown(self.wall_time));
        let Self { name, file, carrier, steps, .. } = self;
        let (file, carrier) = (file.as_str(), carrier.name());
        match &self.outcome {
            Outcome::Passed => {
                write!(f, "pass {name} ({file}, {carrier}, {steps} steps, {story} in {wall})")?;
                match self.unjudged {
                    0 => Ok(()),
                    count => write!(f, "; not judged, since {carrier} has no conditions: {count} claims about groups"),
                }
            }
            Outcome::Skipped(why) => write!(f, "skip {name} ({file}, {carrier}): {why}"),
            Outcome::Failed(failure) => {
                write!(f, "FAIL {name} ({file}, {carrier}, {steps} steps, {story} in {wall})\n{failure}")
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
            write!(f, "\n  what there is:\n{}", seen.join("\n"))?;
        }
        Ok(())
    }
}
