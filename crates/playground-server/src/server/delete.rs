//! The delete verb: immediate, or after a grace period, finalizers and dependents.

use std::sync::Arc;

use muster_clock as clock;
use muster_playground_store::Object;
use serde_json::{Value, json};

use super::admission;
use super::body::{self, Expected, RequestBody};
use super::query::{DeleteOptions, ListOptions, Propagation, Query};
use super::read;
use super::request::Target;
use super::response::ApiResponse;
use super::selection::Selection;
use super::state::State;
use super::status_error::StatusError;
use crate::controllers::CLEANUP_FINALIZER;
use crate::kinds::{GroupResource, Kind, is_bound, is_finished, mark_terminating};

/// The finalizer that keeps an owner until its dependents are deleted.
pub(crate) const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// The finalizer that keeps an owner until its dependents are orphaned.
pub(crate) const ORPHAN_FINALIZER: &str = "orphan";
/// Namespaces that cannot be deleted.
const PROTECTED_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The options of a delete request, from its body or else its query.
pub(crate) fn options(query: &Query, sent: RequestBody<'_>) -> Result<DeleteOptions, StatusError> {
    if sent.bytes.is_empty() {
        return DeleteOptions::from_query(query);
    }
    let value = body::decode_delete_options(&sent.into_json(Expected::DELETE_OPTIONS)?)?;
    DeleteOptions::from_body(&value)
}

/// Deletes an object.
pub(crate) fn delete(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    options: &DeleteOptions,
) -> Result<ApiResponse, StatusError> {
    let old = state.get(kind, &target.namespace, &target.name);
    let old = old.ok_or_else(|| StatusError::not_found(kind.group_resource(), &target.name))?;
    if *kind.plural == *"namespaces" && PROTECTED_NAMESPACES.contains(&&*old.key.name) {
        return Err(StatusError::forbidden(kind.group_resource(), &old.key.name, "this namespace may not be deleted"));
    }
    admission::admit_delete(kind, &old.key.name)?;
    let outcome = remove(state, kind, &old, options)?;
    let code = match outcome {
        Outcome::Terminating(_) if options.propagation == Some(Propagation::Background) && options.legacy => 202,
        _ => 200,
    };
    let response = match outcome {
        Outcome::Terminating(value) => ApiResponse::value(code, &kind.show(value)),
        Outcome::Deleted(value) if kind.returns_deleted() => ApiResponse::value(code, &kind.show(value)),
        Outcome::Deleted(_) => {
            let mut details = json!({"name": *old.key.name, "kind": kind.plural, "uid": *old.uid});
            if !kind.group.is_empty() {
                details["group"] = json!(kind.group);
            }
            ApiResponse::success(code, Some(details))
        }
    };
    Ok(response.with_warnings(admission::delete_warning(kind, options).into_iter().collect()))
}

/// The result of a delete.
pub(crate) enum Outcome {
    /// The object still exists, with a deletion timestamp.
    Terminating(Value),
    Deleted(Value),
}

/// How a delete affects an object's grace period.
enum Grace {
    /// The kind has no grace period, or it has passed.
    None,
    /// Starts now, with this many seconds.
    Starts(i64),
    /// Has started and is not shortened.
    Running,
    /// Has started, and now ends this many seconds after its start.
    Shortened(i64),
}

/// Deletes an existing object.
pub(crate) fn remove(
    state: &mut State,
    kind: &Kind,
    old: &Object,
    options: &DeleteOptions,
) -> Result<Outcome, StatusError> {
    preconditions(kind, old, options)?;
    let mut value = old.value();
    let grace = grace(kind, &value, options);
    if matches!(grace, Grace::Running) {
        return Ok(Outcome::Terminating(value));
    }
    set_propagation_finalizers(kind, &mut value, options);
    set_terminating_status(state, kind, &mut value);
    let is_held = !finalizers(&value).is_empty() || has_namespace_finalizers(kind, &value);
    let waits = mark_deleted(state, &mut value, &grace, is_held);
    if *kind.plural == *"customresourcedefinitions" {
        restore_definition_generation(&mut value, old);
    }
    if kind.is("", "namespaces")
        && let Some(metadata) = value["metadata"].as_object_mut()
    {
        // kube-apiserver marks these without a grace period.
        metadata.remove("deletionGracePeriodSeconds");
    }
    if options.dry_run {
        return Ok(if waits { Outcome::Terminating(value) } else { Outcome::Deleted(value) });
    }
    let graceful = !matches!(grace, Grace::None);
    if waits || graceful {
        let unchanged = value == old.value();
        if !unchanged {
            let written = state.write(kind, value);
            value = written.value();
        }
    }
    if waits {
        return Ok(Outcome::Terminating(value));
    }
    let gone = state.erase(kind, value);
    Ok(Outcome::Deleted(gone.value()))
}

/// Checks the preconditions of a delete.
pub(crate) fn preconditions(kind: &Kind, old: &Object, options: &DeleteOptions) -> Result<(), StatusError> {
    if kind.is("", "namespaces") {
        return namespace_preconditions(kind, old, options);
    }
    // kube-apiserver names the kind here, not the resource.
    let group_resource = GroupResource { group: &kind.group, resource: &kind.kind };
    if let Some(uid) = options.uid.as_deref().filter(|uid| **uid != *old.uid) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            old.uid
        );
        return Err(StatusError::conflict(group_resource, &old.key.name, why));
    }
    if let Some(revision) = options.revision.as_deref().filter(|revision| **revision != old.revision.to_string()) {
        let why = format!(
            "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({}). The object might have been modified",
            old.revision
        );
        return Err(StatusError::conflict(group_resource, &old.key.name, why));
    }
    Ok(())
}

/// Preconditions of namespaces, which have their own error messages.
fn namespace_preconditions(kind: &Kind, old: &Object, options: &DeleteOptions) -> Result<(), StatusError> {
    let revision = old.revision.to_string();
    for (what, wanted, found) in
        [("UID", options.uid.as_deref(), &*old.uid), ("ResourceVersion", options.revision.as_deref(), &*revision)]
    {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            let why = format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
            return Err(StatusError::conflict(kind.group_resource(), &old.key.name, why));
        }
    }
    Ok(())
}

/// Only pods have a grace period.
fn grace(kind: &Kind, value: &Value, options: &DeleteOptions) -> Grace {
    if *kind.kind != *"Pod" || !kind.group.is_empty() {
        return Grace::None;
    }
    // A negative period counts as one second.
    let requested = options.grace_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if value["metadata"]["deletionTimestamp"].is_string() {
        let running = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
        return match requested {
            _ if running == 0 => Grace::None,
            Some(seconds) if seconds < running => Grace::Shortened(seconds),
            _ => Grace::Running,
        };
    }
    let written = value["spec"]["terminationGracePeriodSeconds"].as_i64();
    let seconds = requested.or(written).unwrap_or_default();
    let now = !is_bound(value) || is_finished(value);
    Grace::Starts(if now {
        0
    } else if seconds < 0 {
        1
    } else {
        seconds
    })
}

/// Sets the deletion timestamp of an object that is not removed yet. Returns whether it stays.
fn mark_deleted(state: &State, value: &mut Value, grace: &Grace, is_held: bool) -> bool {
    let now = state.now;
    let seconds = match *grace {
        Grace::None => {
            if is_held && !value["metadata"]["deletionTimestamp"].is_string() {
                set_deletion(value, &clock::seconds(now), 0);
                increment_existing_generation(value);
            } else if is_held {
                value["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            }
            return is_held;
        }
        Grace::Starts(seconds) => {
            set_deletion(value, &clock::seconds(clock::after(now, seconds)), seconds);
            increment_existing_generation(value);
            seconds
        }
        Grace::Shortened(seconds) => {
            let began =
                value["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse().ok()).unwrap_or(now);
            let running = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
            let ends = clock::after(began, seconds - running);
            // The new end must not be in the past.
            let (ends, seconds) = if ends < now { (now, seconds.min(1)) } else { (ends, seconds) };
            set_deletion(value, &clock::seconds(ends), seconds);
            seconds
        }
        Grace::Running => return true,
    };
    is_held || seconds > 0
}

fn set_deletion(value: &mut Value, time: &str, seconds: i64) {
    value["metadata"]["deletionTimestamp"] = json!(time);
    value["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
}

/// A deletion increments the generation of kinds that have one.
fn increment_existing_generation(value: &mut Value) {
    if value["metadata"]["generation"].as_i64().is_some_and(|generation| generation > 0) {
        crate::kinds::increment_generation(value);
    }
}

/// kube-apiserver marks definitions without a grace period and without incrementing the generation.
fn restore_definition_generation(value: &mut Value, old: &Object) {
    value["metadata"]["generation"] = old.value()["metadata"]["generation"].clone();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("deletionGracePeriodSeconds");
    }
}

fn finalizers(value: &Value) -> Vec<String> {
    let list = value["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether a namespace still has finalizers in its spec, which stand for its contents.
fn has_namespace_finalizers(kind: &Kind, value: &Value) -> bool {
    let contents = value["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    *kind.plural == *"namespaces" && contents
}

/// Sets the terminating status of namespaces and definitions.
fn set_terminating_status(state: &State, kind: &Kind, value: &mut Value) {
    match (&*kind.group, &*kind.plural) {
        ("", "namespaces") => value["status"]["phase"] = json!("Terminating"),
        ("apiextensions.k8s.io", "customresourcedefinitions")
            if !value["metadata"]["deletionTimestamp"].is_string() =>
        {
            let mut list = finalizers(value);
            list.push(CLEANUP_FINALIZER.to_owned());
            value["metadata"]["finalizers"] = json!(list);
            mark_terminating(value, &state.time());
        }
        _ => {}
    }
}

/// Sets the finalizers that tell the garbage collector about the propagation policy.
fn set_propagation_finalizers(kind: &Kind, value: &mut Value, options: &DeleteOptions) {
    let mut list = finalizers(value);
    let has = |name: &str| list.iter().any(|finalizer| finalizer == name);
    let policy = options.propagation.unwrap_or_else(|| {
        if has(ORPHAN_FINALIZER) || (!has(FOREGROUND_FINALIZER) && kind.orphans_by_default()) {
            Propagation::Orphan
        } else if has(FOREGROUND_FINALIZER) {
            Propagation::Foreground
        } else {
            Propagation::Background
        }
    });
    list.retain(|finalizer| finalizer != ORPHAN_FINALIZER && finalizer != FOREGROUND_FINALIZER);
    match policy {
        Propagation::Background => {}
        Propagation::Foreground => list.push(FOREGROUND_FINALIZER.to_owned()),
        Propagation::Orphan => list.push(ORPHAN_FINALIZER.to_owned()),
    }
    let Some(metadata) = value["metadata"].as_object_mut() else { return };
    if list.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(list));
    }
}

/// Deletes the selected objects.
pub(crate) fn delete_collection(
    state: &mut State,
    kind: &Arc<Kind>,
    target: &Target,
    list: &ListOptions,
    options: &DeleteOptions,
) -> Result<ApiResponse, StatusError> {
    let selection = Selection::read(kind, target, list)?;
    let (found, metadata) = read::select(state, kind, &selection, list)?;
    for object in &found {
        // It may already be gone as a dependent of an earlier one.
        if let Some(present) = state.get(kind, &object.key.namespace, &object.key.name) {
            remove(state, kind, &present, options)?;
        }
    }
    Ok(ApiResponse::list(kind, metadata, found))
}
