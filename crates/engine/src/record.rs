//! Recording and replay of the engine's input: a replay gives the same commands, byte for byte.
//!
//! A recording consists of lines of JSON: the configuration, then every input in order. The host stores them.

use serde::{Deserialize, Serialize};

use crate::command::Command;
use crate::config::Config;
use crate::model::Millis;
use crate::observation::Observation;
use crate::scheduler::Engine;
use crate::validation_error::ValidationError;

/// One line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Line {
    /// The first line: the configuration of the engine.
    Start(Box<Config>),
    /// An observation.
    Observe(Millis, Box<Observation>),
    /// A call of [`Engine::decide`].
    Decide(Millis),
}

/// An engine that records its input.
#[derive(Clone, Debug)]
pub struct Recorder {
    engine: Engine,
    lines: Vec<String>,
}

/// What can be wrong with a recording.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A line that cannot be parsed.
    #[error("line {line}: {source}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The recording does not start with a configuration.
    #[error("line 1: a recording starts with its configuration")]
    NoStart,
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ValidationError),
}

impl Recorder {
    /// An engine without any state.
    pub fn new(config: Config) -> Result<Self, ValidationError> {
        let lines = vec![json(&Line::Start(Box::new(config.clone())))];
        Ok(Self { engine: Engine::new(config)?, lines })
    }

    /// As [`Engine::observe`].
    pub fn observe(&mut self, now: Millis, observation: Observation) -> Result<(), ValidationError> {
        self.lines.push(json(&Line::Observe(now, Box::new(observation.clone()))));
        self.engine.observe(now, observation)
    }

    /// As [`Engine::decide`].
    pub fn decide(&mut self, now: Millis) -> Vec<Command> {
        self.lines.push(json(&Line::Decide(now)));
        self.engine.decide(now)
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The lines since the last call.
    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}

/// Replays a recording; returns the commands of each decision as a line of JSON.
pub fn replay<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Vec<String>, ReplayError> {
    let mut engine: Option<Engine> = None;
    let mut answers = Vec::new();
    for (number, text) in lines.into_iter().enumerate() {
        let line = serde_json::from_str(text).map_err(|source| ReplayError::Line { line: number + 1, source })?;
        match (line, &mut engine) {
            (Line::Start(config), None) => engine = Some(Engine::new(*config)?),
            (Line::Observe(now, observation), Some(engine)) => {
                // Refused as in the original run, without any effect either time.
                let _ = engine.observe(now, *observation);
            }
            (Line::Decide(now), Some(engine)) => answers.push(commands_json(&engine.decide(now))),
            _ => return Err(ReplayError::NoStart),
        }
    }
    Ok(answers)
}

/// The commands of one decision as a line of JSON.
pub fn commands_json(commands: &[Command]) -> String {
    json(&commands)
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data can always be written as JSON")
}
