//! Create: one road for all kinds.

use serde_json::{Value, json};

use super::admission;
use super::answer::{Answer, printed};
use super::body::{self, Read};
use super::failure::Failure;
use super::query::{Query, WriteOptions};
use super::request::Target;
use super::state::State;
use crate::kinds::{Kind, check_metadata};

/// The longest name that a suffix can be put behind.
const GENERATED_PREFIX_MAX: usize = 58;

/// Creates an object from a request's body.
pub(crate) fn create(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
) -> Result<Answer, Failure> {
    let options = WriteOptions::read(query, "CreateOptions")?;
    let Read { value, mut warnings } = body::read(kind, bytes, options.unknown_fields)?;
    warnings.extend(kind.warnings(&value));
    Ok(insert(state, kind, target, value, options.dry_run)?.with_warnings(warnings))
}

/// Creates an object from its value.
pub(crate) fn insert(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    mut value: Value,
    dry_run: bool,
) -> Result<Answer, Failure> {
    place(kind, target, &mut value)?;
    name(state, &mut value);
    stamp(state, &mut value);
    kind.complete(&mut value);
    admission::on_create(state, kind, target, &mut value)?;
    kind.on_create(&mut value);
    let mut errors = check_metadata(&value, kind.namespaced, kind.name_rule());
    errors.extend(kind.check(&value));
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !errors.is_empty() {
        return Err(Failure::invalid(kind.about_kind(), &name, &errors));
    }
    if state.get(kind, &target.namespace, &name).is_some() {
        return Err(Failure::already_exists(kind.about(), &name));
    }
    if !value["metadata"]["resourceVersion"].is_null() {
        return Err(Failure::internal("resourceVersion should not be set on objects to be created"));
    }
    admission::after_checks(state, kind, &value)?;
    if dry_run {
        return Ok(Answer::Json { code: 201, text: printed(&kind.show(value)), warnings: Vec::new() });
    }
    let object = state.write(kind, value);
    Ok(Answer::object(201, kind, &object))
}

/// The namespace of an object is that of the path.
pub(crate) fn place(kind: &Kind, target: &Target, value: &mut Value) -> Result<(), Failure> {
    let written = value["metadata"]["namespace"].as_str().unwrap_or_default();
    if !written.is_empty() && *written != *target.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if kind.namespaced {
        value["metadata"]["namespace"] = json!(target.namespace);
    }
    Ok(())
}

fn name(state: &mut State, value: &mut Value) {
    let metadata = &value["metadata"];
    let prefix = metadata["generateName"].as_str().unwrap_or_default().to_owned();
    if metadata["name"].as_str().unwrap_or_default().is_empty() && !prefix.is_empty() {
        let cut = (0..=prefix.len().min(GENERATED_PREFIX_MAX)).rev().find(|end| prefix.is_char_boundary(*end));
        let suffix = state.random.name_suffix();
        value["metadata"]["name"] = json!(format!("{}{suffix}", &prefix[..cut.unwrap_or_default()]));
    }
}

/// What only the server says about an object.
fn stamp(state: &mut State, value: &mut Value) {
    let Some(metadata) = value["metadata"].as_object_mut() else { return };
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields", "generation"] {
        metadata.remove(field);
    }
    if metadata.get("resourceVersion").is_some_and(|revision| *revision == "") {
        metadata.remove("resourceVersion");
    }
    metadata.insert("uid".to_owned(), json!(state.random.uid()));
    metadata.insert("creationTimestamp".to_owned(), json!(state.time()));
}
