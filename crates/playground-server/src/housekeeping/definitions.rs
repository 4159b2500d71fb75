//! A definition that is new says when it is served; one that is deleted takes its objects with it.

use std::sync::Arc;

use serde_json::Value;

use super::{Chore, release_finalizer};
use crate::kinds::{Kind, Rules, Taken, decide, is_established, tell_deletion};
use crate::server::delete::remove;
use crate::server::ownership::{self, Writer};
use crate::server::query::{DeleteOptions, Propagation};
use crate::server::state::State;

/// Holds a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Looks after one definition.
pub(super) fn look_after(state: &mut State, name: &str) {
    let definitions = Arc::clone(state.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions"));
    let Some(object) = state.get(&definitions, "", name) else { return };
    let mut value = object.value();
    if object.deleting {
        if object.has_finalizer(CLEANUP) {
            take_down(state, &definitions, name, value);
        }
        return;
    }
    if value["status"]["acceptedNames"] == value["spec"]["names"] {
        return;
    }
    let status = decide(&value, &taken(state, &definitions, &value["spec"]["group"]), &state.time());
    if value["status"] != status {
        value["status"] = status;
        note_server(state, &definitions, &object.value(), &mut value);
        state.write(&definitions, value);
    }
}

/// Definitions are looked after by the server itself.
fn note_server(state: &State, definitions: &Kind, was: &Value, value: &mut Value) {
    let writer = Writer { manager: "kube-apiserver", subresource: "status", now: &state.time() };
    ownership::updated(&state.registry, definitions, was, value, writer);
}

/// The names that the definitions of a group have got.
fn taken(state: &State, definitions: &Kind, group: &Value) -> Taken {
    let mut taken = Taken::default();
    for object in state.store.list(definitions.table, None) {
        let definition = object.value();
        if definition["spec"]["group"] == *group {
            taken.note(&definition);
        }
    }
    taken
}

/// Deletes the objects of a definition, and lets it go when none is left.
fn take_down(state: &mut State, definitions: &Kind, name: &str, mut value: Value) {
    let is_empty = !is_established(&value) || clean_up(state, &value);
    let before = value["status"].clone();
    tell_deletion(&mut value, is_empty, &state.time());
    if !is_empty {
        if before != value["status"] {
            state.write(definitions, value);
        }
        return;
    }
    if let Some(object) = state.get(definitions, "", name) {
        release_finalizer(state, definitions, &object, CLEANUP);
        free_names(state, definitions, &value["spec"]["group"]);
    }
}

/// Others of the group may get the names that have become free.
fn free_names(state: &mut State, definitions: &Kind, group: &Value) {
    let all = state.store.list(definitions.table, None).map(|object| object.value());
    let others = all.filter(|definition| definition["spec"]["group"] == *group);
    let names: Vec<Box<str>> =
        others.filter_map(|definition| definition["metadata"]["name"].as_str().map(Into::into)).collect();
    state.chores.extend(names.into_iter().map(Chore::Define));
}

/// Deletes the objects of a definition. Answers whether none is left.
fn clean_up(state: &mut State, definition: &Value) -> bool {
    let text = |path: &str| definition.pointer(path).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let kinds = state.registry.all().filter(|kind| *kind.group == *group && *kind.plural == *plural);
    // A built-in kind of the same name keeps its objects: they were never the definition's.
    let kinds = kinds.filter(|kind| matches!(kind.rules, Rules::Custom(_)));
    let Some(kind) = kinds.max_by_key(|kind| kind.shows_as_stored()).cloned() else { return true };
    let going: Vec<_> = state.store.list(kind.table, None).filter(|object| !object.deleting).cloned().collect();
    for object in going {
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        // Read in this step: nothing can be in the way.
        let _ = remove(state, &kind, &object, &options);
    }
    is_empty(state, &kind)
}

fn is_empty(state: &State, kind: &Kind) -> bool {
    state.store.list(kind.table, None).next().is_none()
}
