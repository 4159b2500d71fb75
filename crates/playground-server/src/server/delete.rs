//! Delete: at once, or after a grace period, finalizers and dependents.

use std::sync::Arc;

use muster_determinism::clock;
use muster_playground_store::Object;
use serde_json::{Value, json};

use super::admission;
use super::answer::Answer;
use super::body::{self, Expected, Sent};
use super::failure::Failure;
use super::query::{DeleteOptions, ListOptions, Propagation, Query};
use super::read;
use super::request::Target;
use super::selection::Selection;
use super::state::State;
use crate::housekeeping::CLEANUP;
use crate::kinds::{About, Kind, is_bound, is_finished, mark_terminating};

/// Holds an owner until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Holds an owner until its dependents have forgotten it.
pub(crate) const ORPHAN: &str = "orphan";
/// Namespaces that cannot be deleted.
const KEPT_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The options of a delete request: its body if there is one, else its query.
pub(crate) fn options(query: &Query, sent: Sent<'_>) -> Result<DeleteOptions, Failure> {
    if sent.bytes.is_empty() {
        return DeleteOptions::from_query(query);
    }
    let value = body::read_options(&sent.in_json(Expected::DELETE_OPTIONS)?)?;
    DeleteOptions::from_body(&value)
}

/// Deletes an object.
pub(crate) fn delete(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    options: &DeleteOptions,
) -> Result<Answer, Failure> {
    let old = state.get(kind, &target.namespace, &target.name);
    let old = old.ok_or_else(|| Failure::not_found(kind.about(), &target.name))?;
    if *kind.plural == *"namespaces" && KEPT_NAMESPACES.contains(&&*old.key.name) {
        return Err(Failure::forbidden(kind.about(), &old.key.name, "this namespace may not be deleted"));
    }
    admission::on_delete(kind, &old.key.name)?;
    let outcome = remove(state, kind, &old, options)?;
    let code = match outcome {
        Outcome::Waiting(_) if options.propagation == Some(Propagation::Background) && options.legacy => 202,
        _ => 200,
    };
    let answer = match outcome {
        Outcome::Waiting(value) => Answer::value(code, &kind.show(value)),
        Outcome::Gone(value) if kind.returns_deleted() => Answer::value(code, &kind.show(value)),
        Outcome::Gone(_) => {
            let mut details = json!({"name": *old.key.name, "kind": kind.plural, "uid": *old.uid});
            if !kind.group.is_empty() {
                details["group"] = json!(kind.group);
            }
            Answer::success(code, Some(details))
        }
    };
    Ok(answer.with_warnings(admission::delete_warning(kind, options).into_iter().collect()))
}

/// What became of a deleted object.
pub(crate) enum Outcome {
    /// It is still there, marked.
    Waiting(Value),
    Gone(Value),
}

/// How a delete meets an object's grace period.
enum Grace {
    /// The kind knows no grace, or it is over.
    None,
    /// This many seconds from now.
    Begins(i64),
    /// It runs, and is not to be shortened.
    Runs,
    /// It runs, and ends this many seconds after it began.
    Shortened(i64),
}

/// Deletes an object that is there.
pub(crate) fn remove(
    state: &mut State,
    kind: &Kind,
    old: &Object,
    options: &DeleteOptions,
) -> Result<Outcome, Failure> {
    preconditions(kind, old, options)?;
    let mut value = old.value();
    let grace = grace(kind, &value, options);
    if matches!(grace, Grace::Runs) {
        return Ok(Outcome::Waiting(value));
    }
    set_finalizers(kind, &mut value, options);
    close(state, kind, &mut value);
    let held = !finalizers(&value).is_empty() || holds_contents(kind, &value);
    let waits = mark(state, &mut value, &grace, held);
    if *kind.plural == *"customresourcedefinitions" {
        uncount(&mut value, old);
    }
    if kind.is("", "namespaces")
        && let Some(metadata) = value["metadata"].as_object_mut()
    {
        // The real server marks them by a road of its own.
        metadata.remove("deletionGracePeriodSeconds");
    }
    if options.dry_run {
        return Ok(if waits { Outcome::Waiting(value) } else { Outcome::Gone(value) });
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
        return Ok(Outcome::Waiting(value));
    }
    let gone = state.erase(kind, value);
    Ok(Outcome::Gone(gone.value()))
}

/// Whether the object is still the one that the client means.
pub(crate) fn preconditions(kind: &Kind, old: &Object, options: &DeleteOptions) -> Result<(), Failure> {
    if kind.is("", "namespaces") {
        return namespace_preconditions(kind, old, options);
    }
    // The real server names the kind here, not the resource.
    let about = About { group: &kind.group, resource: &kind.kind };
    if let Some(uid) = options.uid.as_deref().filter(|uid| **uid != *old.uid) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            old.uid
        );
        return Err(Failure::conflict(about, &old.key.name, why));
    }
    if let Some(revision) = options.revision.as_deref().filter(|revision| **revision != old.revision.to_string()) {
        let why = format!(
            "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({}). The object might have been modified",
            old.revision
        );
        return Err(Failure::conflict(about, &old.key.name, why));
    }
    Ok(())
}

/// Namespaces are deleted by a road of their own, with words of their own.
fn namespace_preconditions(kind: &Kind, old: &Object, options: &DeleteOptions) -> Result<(), Failure> {
    let revision = old.revision.to_string();
    for (what, wanted, found) in
        [("UID", options.uid.as_deref(), &*old.uid), ("ResourceVersion", options.revision.as_deref(), &*revision)]
    {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            let why = format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
            return Err(Failure::conflict(kind.about(), &old.key.name, why));
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
    let asked = options.grace_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if value["metadata"]["deletionTimestamp"].is_string() {
        let running = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
        return match asked {
            _ if running == 0 => Grace::None,
            Some(seconds) if seconds < running => Grace::Shortened(seconds),
            _ => Grace::Runs,
        };
    }
    let written = value["spec"]["terminationGracePeriodSeconds"].as_i64();
    let seconds = asked.or(written).unwrap_or_default();
    let now = !is_bound(value) || is_finished(value);
    Grace::Begins(if now {
        0
    } else if seconds < 0 {
        1
    } else {
        seconds
    })
}

/// Marks the object as deleted where it stays for a while. Answers whether it stays.
fn mark(state: &State, value: &mut Value, grace: &Grace, held: bool) -> bool {
    let now = state.now;
    let seconds = match *grace {
        Grace::None => {
            if held && !value["metadata"]["deletionTimestamp"].is_string() {
                set_deletion(value, &clock::seconds(now), 0);
                bump_generation(value);
            } else if held {
                value["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            }
            return held;
        }
        Grace::Begins(seconds) => {
            set_deletion(value, &clock::seconds(clock::after(now, seconds)), seconds);
            bump_generation(value);
            seconds
        }
        Grace::Shortened(seconds) => {
            let began =
                value["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse().ok()).unwrap_or(now);
            let running = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
            let ends = clock::after(began, seconds - running);
            // What has passed already cannot be given back.
            let (ends, seconds) = if ends < now { (now, seconds.min(1)) } else { (ends, seconds) };
            set_deletion(value, &clock::seconds(ends), seconds);
            seconds
        }
        Grace::Runs => return true,
    };
    held || seconds > 0
}

fn set_deletion(value: &mut Value, time: &str, seconds: i64) {
    value["metadata"]["deletionTimestamp"] = json!(time);
    value["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
}

/// Kinds that count their changes count the deletion as one.
fn bump_generation(value: &mut Value) {
    if value["metadata"]["generation"].as_i64().is_some_and(|generation| generation > 0) {
        crate::kinds::count_generation(value);
    }
}

/// The real server marks definitions by a road of its own, without a grace period and without counting.
fn uncount(value: &mut Value, old: &Object) {
    value["metadata"]["generation"] = old.value()["metadata"]["generation"].clone();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("deletionGracePeriodSeconds");
    }
}

fn finalizers(value: &Value) -> Vec<String> {
    let list = value["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A namespace is held by what is in it, and its status says so.
fn holds_contents(kind: &Kind, value: &Value) -> bool {
    let contents = value["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    *kind.plural == *"namespaces" && contents
}

/// Kinds that hold others say that they are closing.
fn close(state: &State, kind: &Kind, value: &mut Value) {
    match (&*kind.group, &*kind.plural) {
        ("", "namespaces") => value["status"]["phase"] = json!("Terminating"),
        ("apiextensions.k8s.io", "customresourcedefinitions")
            if !value["metadata"]["deletionTimestamp"].is_string() =>
        {
            let mut list = finalizers(value);
            list.push(CLEANUP.to_owned());
            value["metadata"]["finalizers"] = json!(list);
            mark_terminating(value, &state.time());
        }
        _ => {}
    }
}

/// The finalizers that make the garbage collector do what the options say.
fn set_finalizers(kind: &Kind, value: &mut Value, options: &DeleteOptions) {
    let mut list = finalizers(value);
    let has = |name: &str| list.iter().any(|finalizer| finalizer == name);
    let policy = options.propagation.unwrap_or_else(|| {
        if has(ORPHAN) || (!has(FOREGROUND) && kind.orphans()) {
            Propagation::Orphan
        } else if has(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        }
    });
    list.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
    match policy {
        Propagation::Background => {}
        Propagation::Foreground => list.push(FOREGROUND.to_owned()),
        Propagation::Orphan => list.push(ORPHAN.to_owned()),
    }
    let Some(metadata) = value["metadata"].as_object_mut() else { return };
    if list.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(list));
    }
}

/// Deletes what a selection shows.
pub(crate) fn delete_collection(
    state: &mut State,
    kind: &Arc<Kind>,
    target: &Target,
    list: &ListOptions,
    options: &DeleteOptions,
) -> Result<Answer, Failure> {
    let selection = Selection::read(kind, target, list)?;
    let (found, metadata) = read::select(state, kind, &selection, list)?;
    for object in &found {
        // Somebody may have deleted it as a dependent of one before it; that is as good.
        if let Some(present) = state.get(kind, &object.key.namespace, &object.key.name) {
            remove(state, kind, &present, options)?;
        }
    }
    Ok(Answer::list(kind, metadata, found))
}
