//! Server-side apply: a configuration in YAML or JSON for an existing or new object.
//!
//! `managed_fields` merges it into the object, which is then created or updated as usual.

use serde_json::{Map, Value};

use super::json_patch::go_type;
use super::managed_fields::{self, ApplyError, Conflict, FieldTracking, Writer};
use super::query::{FieldValidation, Query, WriteOptions, WriteVerb};
use super::request::Target;
use super::response::ApiResponse;
use super::state::State;
use super::status_error::StatusError;
use super::update::{Part, check_name, replace};
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
) -> Result<ApiResponse, StatusError> {
    let options = WriteOptions::read(query, WriteVerb::Apply)?;
    let (config, duplicates) = decode(bytes)?;
    let old = state.get(kind, &target.namespace, &target.name);
    if old.is_none() && part == Part::Status {
        return Err(StatusError::not_found(kind.group_resource(), &target.name));
    }
    check_kind(&config, &kind.api_version(), &kind.kind)?;
    let live = old.as_ref().map(|old| old.value());
    let writer = Writer { manager: &options.manager, subresource: part.name(), now: &state.time() };
    let applied = managed_fields::applied(&state.registry, kind, live.as_ref(), &config, writer, options.force);
    let value = applied.map_err(apply_error)?;
    let warnings = check_duplicates(options.field_validation, &duplicates)?;
    let mut value = decode_applied(kind, value)?;
    if let (None, Some(uid)) = (&old, value["metadata"]["uid"].as_str()) {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(StatusError::conflict(kind.group_resource(), &target.name, why));
    }
    create::set_namespace(kind, target, &mut value)?;
    check_name(target, &value)?;
    create::deduplicate_owner_references(&mut value);
    let response = if let Some(old) = old {
        replace(state, kind, &old, value, part, FieldTracking::AlreadySet, options.dry_run)
    } else {
        // The resource version of an object that does not exist is meaningless.
        value["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
        create::insert(state, kind, target, value, FieldTracking::AlreadySet, options.dry_run)
    };
    match response {
        Ok(response) => Ok(response.with_warnings(warnings)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// Decodes a configuration, and returns the paths of duplicate keys.
pub(super) fn decode(bytes: &[u8]) -> Result<(Value, Vec<String>), StatusError> {
    let (value, duplicates) = if bytes.trim_ascii_start().first() == Some(&b'{') {
        let decoding = |error| StatusError::bad_request(format!("error decoding patch: {error}"));
        let (value, duplicates) = json_text::parse(bytes).map_err(decoding)?;
        let name = |path: &'_ String| path.rsplit('.').next().unwrap_or_default().to_owned();
        let duplicate_key = |path| format!("line 1: key {:?} already set in map", name(path));
        (value, duplicates.iter().map(duplicate_key).collect())
    } else {
        let encoding = |why: String| StatusError::bad_request(format!("error encoding patch: {why}"));
        let (value, duplicates) = yaml_text::parse_leniently(bytes).map_err(encoding)?;
        (value, duplicates.into_iter().collect())
    };
    match value {
        Value::Object(_) => Ok((value, duplicates)),
        Value::Null => Ok((Value::Object(Map::new()), duplicates)),
        other => Err(StatusError::bad_request(format!(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_type(&other)
        ))),
    }
}

/// A configuration must have `apiVersion` and `kind`, and no `managedFields`.
pub(super) fn check_kind(config: &Value, api_version: &str, kind: &str) -> Result<(), StatusError> {
    let text = |field: &str| config[field].as_str().unwrap_or_default();
    if (text("apiVersion"), text("kind")) != (api_version, kind) {
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let why = format!("invalid object type: {group}/{version}, Kind={}", text("kind"));
        return Err(StatusError::bad_request(why));
    }
    if config["metadata"].get("managedFields").is_some_and(|managed| !managed.is_null()) {
        return Err(StatusError::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

fn check_duplicates(field_validation: FieldValidation, duplicates: &[String]) -> Result<Vec<String>, StatusError> {
    if duplicates.is_empty() || field_validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    if field_validation == FieldValidation::Warn {
        return Ok(duplicates.to_vec());
    }
    let why = format!("error converting YAML to JSON: yaml: unmarshal errors:\n  {}", duplicates.join("\n  "));
    Err(StatusError::bad_request(format!("error strict decoding patch: {why}")))
}

/// Decodes the merged object. Its `managedFields` were written by the server and are not decoded again.
fn decode_applied(kind: &Kind, mut value: Value) -> Result<Value, StatusError> {
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
    let (name, namespace) = (text("name").to_owned(), text("namespace").to_owned());
    let managed = managed_fields::take(&mut value);
    value["apiVersion"] = kind.api_version().into();
    let (mut value, _) = body::decode_value(kind, value, &[]).map_err(|why| {
        let object = format!("{namespace}/{name}; {}/{}, Kind={}", kind.group, kind.version, kind.kind);
        StatusError::without_reason(500, format!("failed to convert new object ({object}) to proper version: {why}"))
    })?;
    managed_fields::put(&mut value, managed);
    Ok(value)
}

/// The error for a configuration that was not applied, with the message of kube-apiserver.
pub(super) fn apply_error(why: ApplyError) -> StatusError {
    let conflicts = match why {
        ApplyError::Invalid(error) => return StatusError::without_reason(500, error.to_string()),
        ApplyError::Conflicts(conflicts) => conflicts,
    };
    let message = match &*conflicts {
        [only] => {
            format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager.shown(), only.field())
        }
        many => format!("Apply failed with {} conflicts: {}", many.len(), by_manager(many)),
    };
    conflicts.iter().fold(StatusError::apply_conflict(message), |failure, conflict| {
        let cause = format!("conflict with {}", conflict.manager.shown());
        failure.with_cause("FieldManagerConflict", cause, &conflict.field())
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
