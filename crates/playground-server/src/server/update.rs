//! The update verb, also for patches and for the status.

use muster_playground_schema::FieldError;
use muster_playground_store::Object;
use serde_json::{Value, json};

use super::admission;
use super::body::{self, Decoded};
use super::create;
use super::managed_fields::{self, FieldTracking, Writer};
use super::query::{Query, WriteOptions, WriteVerb};
use super::request::Target;
use super::response::{ApiResponse, encode};
use super::state::State;
use super::status_error::StatusError;
use super::webhook::{self, AdmissionOperation, WebhookRequest, WebhookResult};
use crate::kinds::{Kind, Strategy, stamp_phase, validate_metadata_update};

/// The part of an object that a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    /// The number of replicas: as the object itself, but without the webhook.
    Scale,
}

impl Part {
    /// The name of the subresource; empty for the object itself.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Main => "",
            Part::Status => "status",
            Part::Scale => "scale",
        }
    }
}

/// Replaces an object, or its status.
pub(crate) fn update(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
    part: Part,
) -> Result<ApiResponse, StatusError> {
    let options = WriteOptions::read(query, WriteVerb::Update)?;
    let Decoded { mut value, mut warnings } = body::decode(&state.registry, kind, bytes, options.field_validation)?;
    check_name(target, &value)?;
    create::set_namespace(kind, target, &mut value)?;
    warnings.extend(create::deduplicate_owner_references(&mut value));
    let Some(old) = state.get(kind, &target.namespace, &target.name) else {
        if part == Part::Main && kind.allows_create_on_update() {
            check_uid(kind, &value, target, "")?;
            value["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
            let owners = FieldTracking::Manager(&options.manager);
            return Ok(create::insert(state, kind, target, value, owners, options.dry_run)?.with_warnings(warnings));
        }
        return Err(StatusError::not_found(kind.group_resource(), &target.name));
    };
    check_uid(kind, &value, target, &old.uid)?;
    match replace(state, kind, &old, value, part, FieldTracking::Manager(&options.manager), options.dry_run) {
        Ok(response) => Ok(response.with_warnings(warnings)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// The object must have a name, that of the path.
pub(crate) fn check_name(target: &Target, value: &Value) -> Result<(), StatusError> {
    match value["metadata"]["name"].as_str().unwrap_or_default() {
        "" => Err(StatusError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        ))),
        name if *name == *target.name => Ok(()),
        name => Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        ))),
    }
}

fn check_uid(kind: &Kind, value: &Value, target: &Target, old: &str) -> Result<(), StatusError> {
    match value["metadata"]["uid"].as_str() {
        Some(uid) if !uid.is_empty() && *uid != *old => {
            // Custom objects are stored by group.
            let group =
                if matches!(kind.strategy, Strategy::Custom(_)) { format!("{}/", kind.group) } else { String::new() };
            let key = format!("{group}{}/{}/{}", kind.plural, target.namespace, target.name);
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old}"
            );
            Err(StatusError::conflict(kind.group_resource(), &target.name, why))
        }
        _ => Ok(()),
    }
}

/// The object to be replaced, and the context.
#[derive(Clone, Copy)]
struct UpdateContext<'a> {
    kind: &'a Kind,
    old: &'a Object,
    was: &'a Value,
    part: Part,
    owners: FieldTracking<'a>,
    dry_run: bool,
}

/// Replaces an object after admission and validation.
pub(crate) fn replace(
    state: &mut State,
    kind: &Kind,
    old: &Object,
    mut value: Value,
    part: Part,
    owners: FieldTracking<'_>,
    dry_run: bool,
) -> Result<ApiResponse, StatusError> {
    let was = &old.value();
    check_resource_version(kind, &mut value, was, old)?;
    kind.set_defaults(&mut value);
    if let FieldTracking::Manager(manager) = owners {
        let writer = Writer { manager, subresource: part.name(), now: &state.time() };
        managed_fields::updated(&state.registry, kind, was, &mut value, writer);
    }
    restore_system_fields(&mut value, was);
    if part != Part::Status {
        admission::admit_update(state, kind, &mut value)?;
    }
    let change = UpdateContext { kind, old, was, part, owners, dry_run };
    let warnings = if part == Part::Main { call_webhook(state, change, &mut value)? } else { Vec::new() };
    match store_admitted(state, change, value) {
        Ok(response) => Ok(response.with_warnings(warnings)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// Calls the webhook, if it has a matching rule. Returns its warnings.
fn call_webhook(state: &mut State, change: UpdateContext<'_>, value: &mut Value) -> Result<Vec<String>, StatusError> {
    let UpdateContext { kind, old, was, dry_run, .. } = change;
    let operation = AdmissionOperation::Update;
    let Some(webhook) = webhook::matching(state, kind, operation) else { return Ok(Vec::new()) };
    let (namespace, name) = (&*old.key.namespace, &*old.key.name);
    let request = WebhookRequest { kind, operation, namespace, name, old: Some(was), dry_run };
    let WebhookResult { changed, mut warnings } = webhook::call(&webhook, state, request, value)?;
    let Some(changed) = changed else { return Ok(warnings) };
    *value = changed;
    warnings.extend(create::deduplicate_owner_references(value));
    check_resource_version(kind, value, was, old)?;
    restore_system_fields(value, was);
    // Built-in admission runs again on changed objects.
    match admission::admit_update(state, kind, value) {
        Ok(()) => Ok(warnings),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// Validates and stores a change after admission.
fn store_admitted(state: &mut State, change: UpdateContext<'_>, mut value: Value) -> Result<ApiResponse, StatusError> {
    let UpdateContext { kind, old, was, part, owners, dry_run } = change;
    let managed = managed_fields::take(&mut value);
    match part {
        Part::Main | Part::Scale => kind.prepare_for_update(&mut value, was),
        Part::Status => {
            kind.prepare_for_status_update(&mut value, was);
            if kind.is("", "persistentvolumes") {
                stamp_phase(&mut value, was, &state.time());
            }
        }
    }
    managed_fields::put(&mut value, managed);
    managed_fields::ignore_time_changes(&mut value, was);
    let mut errors = kind.validate_metadata(&value);
    errors.extend(validate_metadata_update(&value, was));
    errors.extend(match part {
        Part::Main | Part::Scale => kind.validate_update(&value, was),
        Part::Status => kind.validate_status_update(&value, was),
    });
    if !errors.is_empty() {
        return Err(StatusError::invalid(kind.group_kind(), &old.key.name, &errors));
    }
    if part == Part::Main {
        admission::validate_update(state, kind, &value, was)?;
    }
    create::check_size(&mut value, owners)?;
    if dry_run {
        return Ok(ApiResponse::Json { code: 200, text: encode(&kind.show(value)), warnings: Vec::new() });
    }
    let warnings = if part == Part::Main { kind.volume_warnings(&value) } else { Vec::new() };
    if value == *was {
        return Ok(ApiResponse::object(200, kind, old).with_warnings(warnings));
    }
    if has_no_finalizers(&value) {
        // The change itself is never stored: watches see the last stored state.
        state.erase(kind, was.clone());
        return Ok(ApiResponse::value(200, &kind.show(value)));
    }
    Ok(ApiResponse::object(200, kind, &state.write(kind, value)).with_warnings(warnings))
}

/// The resource version of the object, if set, must be the current one.
fn check_resource_version(kind: &Kind, value: &mut Value, was: &Value, old: &Object) -> Result<(), StatusError> {
    match value["metadata"]["resourceVersion"].as_str().unwrap_or_default() {
        "" | "0" if kind.allows_unconditional_update() => {
            value["metadata"]["resourceVersion"] = was["metadata"]["resourceVersion"].clone();
            Ok(())
        }
        "" | "0" => {
            let error = FieldError::invalid("metadata.resourceVersion", json!(0), "must be specified for an update");
            // kube-apiserver names the resource here, not the kind.
            Err(StatusError::invalid(kind.group_resource(), &old.key.name, &[error]))
        }
        written if was["metadata"]["resourceVersion"] == *written => Ok(()),
        written if written.parse::<u64>().is_err() => {
            Err(StatusError::without_reason(500, format!("strconv.ParseUint: parsing {written:?}: invalid syntax")))
        }
        _ => Err(StatusError::modified(kind.group_resource(), &old.key.name)),
    }
}

/// Restores the fields that no update changes.
fn restore_system_fields(value: &mut Value, was: &Value) {
    let old = &was["metadata"];
    let Some(metadata) = value["metadata"].as_object_mut() else { return };
    metadata.remove("selfLink");
    for field in ["generation", "creationTimestamp"] {
        match old.get(field) {
            Some(kept) => metadata.insert(field.to_owned(), kept.clone()),
            None => metadata.remove(field),
        };
    }
    // A deletion cannot be undone; whether the client set one is validated elsewhere.
    if let Some(kept) = old.get("deletionTimestamp") {
        metadata.insert("deletionTimestamp".to_owned(), kept.clone());
    }
    if let (Some(kept), None) = (old.get("deletionGracePeriodSeconds"), metadata.get("deletionGracePeriodSeconds")) {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), kept.clone());
    }
    for field in ["uid", "name", "namespace"] {
        let written = metadata.get(field).and_then(Value::as_str).unwrap_or_default();
        if written.is_empty()
            && let Some(kept) = old.get(field)
        {
            metadata.insert(field.to_owned(), kept.clone());
        }
    }
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = |value: &Value| {
            value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
        };
        if metadata.get(field).is_some_and(empty) {
            metadata.remove(field);
        }
    }
}

/// Whether a deleted object has no finalizers left.
fn has_no_finalizers(value: &Value) -> bool {
    let metadata = &value["metadata"];
    let held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    metadata["deletionTimestamp"].is_string() && !held && grace == 0 && !is_terminating_namespace(value)
}

/// A namespace is kept by its contents, which the finalizers in its spec stand for.
fn is_terminating_namespace(value: &Value) -> bool {
    value["kind"] == "Namespace"
        && value["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}
