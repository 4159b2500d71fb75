//! Server-side apply: a manager's wishes, in YAML or JSON, for an object that is there or is to be made.
//!
//! `ownership` decides what becomes of the object; then it goes the road of every create or update.

use serde_json::{Map, Value};

use super::answer::Answer;
use super::failure::Failure;
use super::json_patch::go_type;
use super::ownership::{self, Conflict, NotApplied, Owners, Writer};
use super::query::{Query, UnknownFields, Write, WriteOptions};
use super::request::Target;
use super::state::State;
use super::update::{Part, replace, same_name};
use super::{body, create, json_text, yaml_text};
use crate::kinds::Kind;

/// Applies a configuration to an object, or to its status.
pub(crate) fn apply(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
    part: Part,
) -> Result<Answer, Failure> {
    let options = WriteOptions::read(query, Write::Apply)?;
    let (config, twice) = read(bytes)?;
    let old = state.get(kind, &target.namespace, &target.name);
    if old.is_none() && part == Part::Status {
        return Err(Failure::not_found(kind.about(), &target.name));
    }
    is_of_kind(&config, &kind.api_version(), &kind.kind)?;
    let live = old.as_ref().map(|old| old.value());
    let writer = Writer { manager: &options.manager, subresource: part.name(), now: &state.time() };
    let applied = ownership::applied(&state.registry, kind, live.as_ref(), &config, writer, options.force);
    let value = applied.map_err(refused)?;
    let warnings = judge_twice(options.unknown_fields, &twice)?;
    let mut value = read_applied(kind, value)?;
    if let (None, Some(uid)) = (&old, value["metadata"]["uid"].as_str()) {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Failure::conflict(kind.about(), &target.name, why));
    }
    create::place(kind, target, &mut value)?;
    same_name(target, &value)?;
    create::name_owners_once(&mut value);
    let answer = if let Some(old) = old {
        replace(state, kind, &old, value, part, Owners::Settled, options.dry_run)
    } else {
        // A revision of what is not there yet means nothing.
        value["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
        create::insert(state, kind, target, value, Owners::Settled, options.dry_run)
    };
    match answer {
        Ok(answer) => Ok(answer.with_warnings(warnings)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// Reads a configuration, and tells which keys are there twice, and where.
pub(super) fn read(bytes: &[u8]) -> Result<(Value, Vec<String>), Failure> {
    let (value, twice) = if bytes.trim_ascii_start().first() == Some(&b'{') {
        let decoding = |why: String| Failure::bad_request(format!("error decoding patch: {why}"));
        let (value, twice) = json_text::parse(bytes).map_err(decoding)?;
        let name = |path: &'_ String| path.rsplit('.').next().unwrap_or_default().to_owned();
        let told = |path| format!("line 1: key {:?} already set in map", name(path));
        (value, twice.iter().map(told).collect())
    } else {
        let encoding = |why: String| Failure::bad_request(format!("error encoding patch: {why}"));
        let (value, twice) = yaml_text::parse_leniently(bytes).map_err(encoding)?;
        (value, twice.into_iter().collect())
    };
    match value {
        Value::Object(_) => Ok((value, twice)),
        Value::Null => Ok((Value::Object(Map::new()), twice)),
        other => Err(Failure::bad_request(format!(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_type(&other)
        ))),
    }
}

/// A configuration must say what it is of, and may not say who owns it.
pub(super) fn is_of_kind(config: &Value, api_version: &str, kind: &str) -> Result<(), Failure> {
    let text = |field: &str| config[field].as_str().unwrap_or_default();
    if (text("apiVersion"), text("kind")) != (api_version, kind) {
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let why = format!("invalid object type: {group}/{version}, Kind={}", text("kind"));
        return Err(Failure::bad_request(why));
    }
    if config["metadata"].get("managedFields").is_some_and(|managed| !managed.is_null()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

fn judge_twice(unknown: UnknownFields, twice: &[String]) -> Result<Vec<String>, Failure> {
    if twice.is_empty() || unknown == UnknownFields::Ignore {
        return Ok(Vec::new());
    }
    if unknown == UnknownFields::Warn {
        return Ok(twice.to_vec());
    }
    let why = format!("error converting YAML to JSON: yaml: unmarshal errors:\n  {}", twice.join("\n  "));
    Err(Failure::bad_request(format!("error strict decoding patch: {why}")))
}

/// Reads what an apply made of an object. The list of its managers is ours and is not read again.
fn read_applied(kind: &Kind, mut value: Value) -> Result<Value, Failure> {
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
    let (name, namespace) = (text("name").to_owned(), text("namespace").to_owned());
    let managed = ownership::take(&mut value);
    value["apiVersion"] = kind.api_version().into();
    let (mut value, _) = body::read_value(kind, value, &[]).map_err(|why| {
        let about = format!("{namespace}/{name}; {}/{}, Kind={}", kind.group, kind.version, kind.kind);
        Failure::plain(500, format!("failed to convert new object ({about}) to proper version: {why}"))
    })?;
    ownership::put(&mut value, managed);
    Ok(value)
}

/// Why a configuration was not applied, in the words of the real server.
pub(super) fn refused(why: NotApplied) -> Failure {
    let conflicts = match why {
        NotApplied::Unfit(why) => return Failure::plain(500, why),
        NotApplied::Conflicts(conflicts) => conflicts,
    };
    let message = match &*conflicts {
        [only] => {
            format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager.shown(), only.field())
        }
        many => format!("Apply failed with {} conflicts: {}", many.len(), by_manager(many)),
    };
    conflicts.iter().fold(Failure::owned_by_others(message), |failure, conflict| {
        let cause = format!("conflict with {}", conflict.manager.shown());
        failure.because("FieldManagerConflict", cause, &conflict.field())
    })
}

fn by_manager(conflicts: &[Conflict]) -> String {
    let mut lines = Vec::new();
    for (index, conflict) in conflicts.iter().enumerate() {
        if index == 0 || conflicts[index - 1].manager != conflict.manager {
            lines.push(format!("conflicts with {}:", conflict.manager.shown()));
        }
        lines.push(format!("- {}", conflict.field()));
    }
    lines.join("\n")
}
