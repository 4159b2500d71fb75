//! The CustomResourceDefinition controllers: accept names and establish definitions, and delete the objects of deleted
//! ones.

use std::sync::Arc;

use serde_json::Value;

use super::{WorkItem, release_finalizer};
use crate::kinds::{AcceptedNames, Kind, Strategy, is_established, naming_status, set_deletion_progress};
use crate::server::delete::remove;
use crate::server::managed_fields::{self, Writer};
use crate::server::query::{DeleteOptions, Propagation};
use crate::server::state::State;

/// The finalizer that keeps a definition until its objects are deleted.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Reconciles one definition.
pub(super) fn sync(state: &mut State, name: &str) {
    let definitions = Arc::clone(state.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions"));
    let Some(object) = state.get(&definitions, "", name) else { return };
    let mut value = object.value();
    if object.deleting {
        if object.has_finalizer(CLEANUP_FINALIZER) {
            finalize(state, &definitions, name, value);
        }
        return;
    }
    if value["status"]["acceptedNames"] == value["spec"]["names"] {
        return;
    }
    let status = naming_status(&value, &accepted_names(state, &definitions, &value["spec"]["group"]), &state.time());
    if value["status"] != status {
        value["status"] = status;
        record_manager(state, &definitions, &object.value(), &mut value);
        state.write(&definitions, value);
    }
}

/// Records the server as the field manager of the status.
fn record_manager(state: &State, definitions: &Kind, was: &Value, value: &mut Value) {
    let writer = Writer { manager: "kube-apiserver", subresource: "status", now: &state.time() };
    managed_fields::updated(&state.registry, definitions, was, value, writer);
}

/// The accepted names of all definitions of a group.
fn accepted_names(state: &State, definitions: &Kind, group: &Value) -> AcceptedNames {
    let mut accepted_names = AcceptedNames::default();
    for object in state.store.list(definitions.table, None) {
        let definition = object.value();
        if definition["spec"]["group"] == *group {
            accepted_names.add(&definition);
        }
    }
    accepted_names
}

/// Deletes the objects of a definition, and removes its finalizer when none is left.
fn finalize(state: &mut State, definitions: &Kind, name: &str, mut value: Value) {
    let is_empty = !is_established(&value) || delete_objects(state, &value);
    let before = value["status"].clone();
    set_deletion_progress(&mut value, is_empty, &state.time());
    if !is_empty {
        if before != value["status"] {
            state.write(definitions, value);
        }
        return;
    }
    if let Some(object) = state.get(definitions, "", name) {
        release_finalizer(state, definitions, &object, CLEANUP_FINALIZER);
        requeue_group(state, definitions, &value["spec"]["group"]);
    }
}

/// Requeues the definitions of the group, which may now get the released names.
fn requeue_group(state: &mut State, definitions: &Kind, group: &Value) {
    let all = state.store.list(definitions.table, None).map(|object| object.value());
    let others = all.filter(|definition| definition["spec"]["group"] == *group);
    let names: Vec<Box<str>> =
        others.filter_map(|definition| definition["metadata"]["name"].as_str().map(Into::into)).collect();
    state.work_queue.extend(names.into_iter().map(WorkItem::SyncDefinition));
}

/// Deletes the objects of a definition. Returns whether none is left.
fn delete_objects(state: &mut State, definition: &Value) -> bool {
    let text = |path: &str| definition.pointer(path).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let kinds = state.registry.all().filter(|kind| *kind.group == *group && *kind.plural == *plural);
    // The objects of a built-in kind with the same name do not belong to the definition.
    let kinds = kinds.filter(|kind| matches!(kind.strategy, Strategy::Custom(_)));
    let Some(kind) = kinds.max_by_key(|kind| kind.is_stored_form()).cloned() else { return true };
    let remaining: Vec<_> = state.store.list(kind.table, None).filter(|object| !object.deleting).cloned().collect();
    for object in remaining {
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        // Cannot fail: the object was read under the same lock.
        let _ = remove(state, &kind, &object, &options);
    }
    is_empty(state, &kind)
}

fn is_empty(state: &State, kind: &Kind) -> bool {
    state.store.list(kind.table, None).next().is_none()
}
