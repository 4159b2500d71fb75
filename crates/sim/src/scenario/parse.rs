//! Reading a scenario: strictly, with errors that name file, line, step, field and value.
//!
//! Invariant: what is accepted has no unknown field and no value without a meaning.
//! It must not know the cluster; of carriers only their names.

use std::fmt;
use std::fs;
use std::path::Path;

use muster_runtime::FeatureGates;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::carrier::Carrier;
use super::manifest;
use super::model::{Action, Config, Create, Fault, Group, Nodes, Scenario, Step};
use super::nodes;

/// The most objects of one step.
const COUNT_MAX: u32 = 100_000;

/// Why a scenario cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    /// The file.
    pub file: String,
    /// The line, if it is known.
    pub line: Option<u64>,
    /// The number of the step, from 1, if it is in one.
    pub step: Option<usize>,
    /// The path of the field, if it is known.
    pub field: String,
    /// What is wrong, with the value.
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(step) = self.step {
            write!(f, ": step {step}")?;
        }
        if !self.field.is_empty() && self.field != "." {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// The file as it is written; steps are read one by one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    #[allow(dead_code)] // for readers of the file
    description: String,
    #[serde(default)]
    config: Config,
    #[serde(default)]
    nodes: Vec<Nodes>,
    #[serde(default)]
    carriers: Vec<Carrier>,
    steps: Vec<Value>,
}

/// Where the steps stand.
#[derive(Deserialize)]
struct Places {
    steps: Vec<Spanned<IgnoredAny>>,
}

/// Reads a scenario from a file.
pub fn load(path: &Path) -> Result<Scenario, ParseError> {
    let file = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => parse(&text, path),
        Err(error) => Err(ParseError { file, line: None, step: None, field: String::new(), reason: error.to_string() }),
    }
}

/// Reads a scenario from the text of a file. Files that it names are looked for beside it.
pub fn parse(text: &str, path: &Path) -> Result<Scenario, ParseError> {
    let file = path.display().to_string();
    let error = |field: &str, reason: String| ParseError {
        file: file.clone(),
        line: None,
        step: None,
        field: field.to_owned(),
        reason,
    };
    let document: Value = serde_saphyr::from_str(text).map_err(|why| ParseError {
        line: why.location().map(|location| location.line()),
        ..error("", why.without_snippet().to_string())
    })?;
    let written: Written = read(document).map_err(|(field, reason)| error(&field, reason))?;
    if written.name.is_empty() {
        return Err(error("name", "\"\": must say what the scenario shows".to_owned()));
    }
    if written.steps.is_empty() {
        return Err(error("steps", "[]: a scenario without steps shows nothing".to_owned()));
    }
    FeatureGates::with(&written.config.feature_gates).map_err(|why| error("config", why.to_string()))?;
    nodes::shapes(&written.nodes).map_err(|why| error("", why))?;
    let lines = lines_of_steps(text, written.steps.len());
    let mut steps = Vec::new();
    for (index, value) in written.steps.into_iter().enumerate() {
        let action = action(value, path).and_then(checked).map_err(|(field, reason)| ParseError {
            line: lines.get(index).copied(),
            step: Some(index + 1),
            ..error(&field, reason)
        })?;
        let line = lines.get(index).copied().unwrap_or_default();
        let end = lines.get(index + 1).map(|next| *next as usize - 1);
        let text = text.lines().take(end.unwrap_or(usize::MAX)).skip((line as usize).saturating_sub(1));
        let text = text.collect::<Vec<_>>().join("\n").trim_end().to_owned();
        steps.push(Step { line, text, action });
    }
    let Written { name, config, nodes, carriers, .. } = written;
    Ok(Scenario { name, file, config, nodes, carriers, steps })
}

/// The path of a field, and what is wrong with it.
type Wrong = (String, String);

fn read<T: DeserializeOwned>(value: Value) -> Result<T, Wrong> {
    serde_path_to_error::deserialize(value).map_err(|error| (error.path().to_string(), error.inner().to_string()))
}

/// The lines on which the steps begin. Steps that do not each begin a line of their own are shown by the first line.
fn lines_of_steps(text: &str, count: usize) -> Vec<u64> {
    let Ok(places) = serde_saphyr::from_str::<Places>(text) else { return Vec::new() };
    let lines: Vec<u64> = places.steps.iter().map(|step| step.referenced.line()).collect();
    if lines.len() == count && lines.is_sorted_by(|one, next| one < next) { lines } else { Vec::new() }
}

fn action(mut value: Value, path: &Path) -> Result<Action, Wrong> {
    if let Some(applied) = value.get_mut("apply").filter(|applied| !applied.is_string()) {
        *applied = file_named(applied, path).map_err(|why| ("apply".to_owned(), why))?.into();
    }
    read(value)
}

/// The text of the file that `{file: …}` names.
fn file_named(applied: &Value, path: &Path) -> Result<String, String> {
    let named = applied.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.get("file")?.as_str());
    let Some(named) = named else {
        return Err(format!("{applied}: write the manifests as text, or {{file: name.yaml}}"));
    };
    let beside = path.parent().unwrap_or_else(|| Path::new("")).join(named);
    fs::read_to_string(&beside).map_err(|error| format!("file {}: {error}", beside.display()))
}

/// Refuses what a type cannot.
fn checked(action: Action) -> Result<Action, Wrong> {
    let wrong = |field: &str, reason: String| Err((field.to_owned(), reason));
    match &action {
        Action::Group(group) => check_group(group)?,
        Action::Create(create) => check_create(create)?,
        Action::Delete(list) if list.is_empty() => return wrong("delete", "[]: names nothing".to_owned()),
        Action::Finish(finish) if finish.pods.is_empty() => {
            return wrong("finish.pods", "[]: names nothing".to_owned());
        }
        Action::Nodes(list) => {
            nodes::shapes(list).map_err(|why| (String::new(), why))?;
        }
        Action::Fault(Fault { answer, delay, times, path, .. }) => {
            if answer.is_some() == delay.is_some() {
                return wrong("fault", "write one of answer and delay".to_owned());
            }
            if *times == 0 || *times > COUNT_MAX {
                return wrong("fault.times", format!("{times}: must be from 1 to {COUNT_MAX}"));
            }
            if path.is_empty() {
                return wrong("fault.path", "\"\": must be a part of the requests' path".to_owned());
            }
        }
        _ => {}
    }
    Ok(action)
}

fn check_group(group: &Group) -> Result<(), Wrong> {
    let kinds = [group.gang.is_some(), group.basic.is_some(), group.subsets.is_some()];
    if kinds.iter().filter(|is_set| **is_set).count() != 1 {
        return Err(("group".to_owned(), "write exactly one of gang, basic and subsets".to_owned()));
    }
    if group.name.is_empty() {
        return Err(("group.name".to_owned(), "\"\": must be set".to_owned()));
    }
    Ok(())
}

fn check_create(create: &Create) -> Result<(), Wrong> {
    let wrong = |field: &str, reason: String| Err((format!("create.{field}"), reason));
    if create.count == 0 || create.count > COUNT_MAX {
        return wrong("count", format!("{}: must be from 1 to {COUNT_MAX}", create.count));
    }
    if create.group.is_empty() && !(create.replica_key.is_empty() && create.subset.is_empty()) {
        return wrong("group", "\"\": must be set with a replicaKey or a subset".to_owned());
    }
    let manifest = Value::Object(create.manifest.clone());
    manifest::check(&manifest).or_else(|why| wrong("manifest", why))?;
    if create.count > 1 {
        let (first, second) = (manifest::numbered(&manifest, 0), manifest::numbered(&manifest, 1));
        let is_generated = manifest["metadata"]["name"].is_null();
        if !is_generated && first["metadata"]["name"] == second["metadata"]["name"] {
            let name = &manifest["metadata"]["name"];
            return wrong("manifest", format!("metadata.name: {name}: needs {{i}}, since there are several"));
        }
    }
    Ok(())
}
