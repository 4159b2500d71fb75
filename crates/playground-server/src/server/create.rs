//! The create verb, for all kinds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::admission;
use super::body::{self, Decoded};
use super::managed_fields::{self, FieldTracking, Writer};
use super::query::{Query, WriteOptions, WriteVerb};
use super::request::Target;
use super::response::{ApiResponse, encode};
use super::state::State;
use super::status_error::StatusError;
use super::update::check_name;
use super::webhook::{self, AdmissionOperation, WebhookRequest, WebhookResult};
use crate::kinds::{Kind, NameRule};

/// The longest `generateName` that is not truncated.
const GENERATED_PREFIX_MAX: usize = 58;
/// How many generated names are tried before an existing name is an error.
const NAME_ATTEMPTS_MAX: usize = 8;

/// Creates an object from a request body.
pub(crate) fn create(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
) -> Result<ApiResponse, StatusError> {
    let options = WriteOptions::read(query, WriteVerb::Create)?;
    let Decoded { mut value, mut warnings } = body::decode(&state.registry, kind, bytes, options.field_validation)?;
    warnings.extend(deduplicate_owner_references(&mut value));
    let mut object_warnings = kind.warnings(&value);
    object_warnings.extend(hostname_warning(kind, &value));
    match insert(state, kind, target, value, FieldTracking::Manager(&options.manager), options.dry_run) {
        Ok(response) => Ok(response.with_warnings(warnings).with_warnings(object_warnings)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// Creates an object from its value.
pub(crate) fn insert(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    mut value: Value,
    owners: FieldTracking<'_>,
    dry_run: bool,
) -> Result<ApiResponse, StatusError> {
    set_namespace(kind, target, &mut value)?;
    let is_named = is_named(&value);
    generate_name(state, kind, target, &mut value);
    set_system_fields(state, &mut value);
    kind.set_defaults(&mut value);
    if let FieldTracking::Manager(manager) = owners {
        let now = state.time();
        managed_fields::created(&state.registry, kind, &mut value, Writer { manager, subresource: "", now: &now });
    }
    admission::admit_create(state, kind, target, &mut value)?;
    let warnings = call_webhook(state, kind, target, &mut value, is_named, dry_run)?;
    match store_admitted(state, kind, target, value, owners, dry_run) {
        Ok(response) => Ok(response.with_warnings(warnings)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// Validates and stores a new object after admission.
fn store_admitted(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    mut value: Value,
    owners: FieldTracking<'_>,
    dry_run: bool,
) -> Result<ApiResponse, StatusError> {
    kind.prepare_for_create(&mut value);
    let mut errors = kind.validate_metadata(&value);
    errors.extend(kind.validate(&value));
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !errors.is_empty() {
        return Err(StatusError::invalid(kind.group_kind(), &name, &errors));
    }
    clear_resource_version(&mut value)?;
    if let Some(other) = state.get(kind, &target.namespace, &name) {
        return Err(StatusError::already_exists(kind.group_resource(), &name, other.deleting));
    }
    admission::validate_create(state, kind, &value)?;
    check_size(&mut value, owners)?;
    if dry_run {
        return Ok(ApiResponse::Json { code: 201, text: encode(&kind.show(value)), warnings: Vec::new() });
    }
    let object = state.write(kind, value);
    Ok(ApiResponse::object(201, kind, &object))
}

/// Calls the webhook, if it has a matching rule. Returns its warnings.
fn call_webhook(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    value: &mut Value,
    is_named: bool,
    dry_run: bool,
) -> Result<Vec<String>, StatusError> {
    let operation = AdmissionOperation::Create;
    let Some(webhook) = webhook::matching(state, kind, operation) else { return Ok(Vec::new()) };
    // kube-apiserver calls webhooks before it generates the name and UID.
    let mut shown = value.clone();
    let metadata = shown["metadata"].as_object_mut().expect("every object has metadata");
    let stamps = ["uid", "creationTimestamp"].map(|field| (field, metadata.remove(field)));
    if !is_named {
        metadata.remove("name");
    }
    let name = shown["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let request = WebhookRequest { kind, operation, namespace: &target.namespace, name: &name, old: None, dry_run };
    let WebhookResult { changed, mut warnings } = webhook::call(&webhook, state, request, &shown)?;
    let Some(changed) = changed else { return Ok(warnings) };
    *value = changed;
    set_namespace(kind, target, value)?;
    if !target.name.is_empty() {
        check_name(target, value)?;
    }
    generate_name(state, kind, target, value);
    for (field, stamp) in stamps {
        value["metadata"][field] = stamp.unwrap_or_default();
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        value["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
    }
    warnings.extend(deduplicate_owner_references(value));
    // Built-in admission runs again on changed objects.
    match admission::admit_create(state, kind, target, value) {
        Ok(()) => Ok(warnings),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// The most bytes of an object: the request limit of etcd.
const SIZE_MAX: usize = 1_536 * 1024;

/// Rejects an object that is too large for etcd, estimated by the size of its strings. An object that is too large only
/// because of `managedFields` is stored without them.
pub(crate) fn check_size(value: &mut Value, owners: FieldTracking<'_>) -> Result<(), StatusError> {
    fn size(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len() + 2,
            Value::Array(entries) => 2 + entries.iter().map(|entry| 1 + size(entry)).sum::<usize>(),
            Value::Object(fields) => 2 + fields.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        }
    }
    if size(value) <= SIZE_MAX {
        return Ok(());
    }
    if matches!(owners, FieldTracking::Manager(_)) {
        managed_fields::put(value, None);
    }
    if size(value) > SIZE_MAX {
        Err(StatusError::without_reason(500, "etcdserver: request is too large"))
    } else {
        Ok(())
    }
}

/// Sets the namespace from the path.
pub(crate) fn set_namespace(kind: &Kind, target: &Target, value: &mut Value) -> Result<(), StatusError> {
    if !kind.namespaced {
        value["metadata"].as_object_mut().map(|metadata| metadata.remove("namespace"));
        return Ok(());
    }
    let written = value["metadata"]["namespace"].as_str().unwrap_or_default();
    if !written.is_empty() && *written != *target.namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    value["metadata"]["namespace"] = json!(target.namespace);
    Ok(())
}

fn is_named(value: &Value) -> bool {
    value["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty())
}

/// Generates the name of an object with `generateName`.
fn generate_name(state: &mut State, kind: &Kind, target: &Target, value: &mut Value) {
    let metadata = &value["metadata"];
    let prefix = metadata["generateName"].as_str().unwrap_or_default().to_owned();
    if !is_named(value) && !prefix.is_empty() {
        let cut = (0..=prefix.len().min(GENERATED_PREFIX_MAX)).rev().find(|end| prefix.is_char_boundary(*end));
        let prefix = &prefix[..cut.unwrap_or_default()];
        let mut drawn = String::new();
        for _ in 0..NAME_ATTEMPTS_MAX {
            drawn = format!("{prefix}{}", state.random.name_suffix());
            if state.get(kind, &target.namespace, &drawn).is_none() {
                break;
            }
        }
        value["metadata"]["name"] = json!(drawn);
    }
}

/// Clears the resource version of a new object; an invalid one is an error.
fn clear_resource_version(value: &mut Value) -> Result<(), StatusError> {
    let Some(metadata) = value["metadata"].as_object_mut() else { return Ok(()) };
    let written = metadata.remove("resourceVersion");
    let written = written.as_ref().and_then(Value::as_str).and_then(|text| text.parse::<u64>().ok());
    match written {
        None | Some(0) => Ok(()),
        Some(_) => Err(StatusError::without_reason(500, "resourceVersion should not be set on objects to be created")),
    }
}

/// Removes duplicate owner references. Returns a warning about them.
pub(crate) fn deduplicate_owner_references(value: &mut Value) -> Option<String> {
    let owners = value.pointer_mut("/metadata/ownerReferences")?.as_array_mut()?;
    let (mut seen, mut duplicates) = (BTreeSet::new(), Vec::new());
    owners.retain(|owner| {
        let is_first = seen.insert(owner.to_string());
        if !is_first {
            duplicates.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        is_first
    });
    (!duplicates.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicates.join(", ")
        )
    })
}

/// A warning for a pod name that is not a valid hostname.
fn hostname_warning(kind: &Kind, value: &Value) -> Option<String> {
    let name = value["metadata"]["name"].as_str().filter(|name| !name.is_empty())?;
    let is_pod = kind.group.is_empty() && *kind.plural == *"pods";
    let why = if is_pod { NameRule::Label.errors(name, false) } else { Vec::new() };
    // An invalid name is an error, not a warning.
    let is_name = NameRule::Subdomain.errors(name, false).is_empty();
    (!why.is_empty() && is_name).then(|| {
        format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            why.join(" ")
        )
    })
}

/// Sets UID and creation timestamp.
fn set_system_fields(state: &mut State, value: &mut Value) {
    let Some(metadata) = value["metadata"].as_object_mut() else { return };
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), json!(state.random.uid()));
    metadata.insert("creationTimestamp".to_owned(), json!(state.time()));
}
