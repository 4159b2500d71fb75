//! A definition that is new says when it is served; one that is deleted takes its objects with it.

use std::sync::Arc;

use super::release_finalizer;
use crate::kinds::{Kind, established};
use crate::server::delete::remove;
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
        if object.has_finalizer(CLEANUP) && clean_up(state, &value) {
            release_finalizer(state, &definitions, &object, CLEANUP);
        }
        return;
    }
    let wanted = established(&value, &state.time());
    let said = &value["status"]["conditions"];
    if !said.is_array() || value["status"]["acceptedNames"] != wanted["acceptedNames"] {
        value["status"] = wanted;
        state.write(&definitions, value);
    }
}

/// Deletes the objects of a definition. Answers whether none is left.
fn clean_up(state: &mut State, definition: &serde_json::Value) -> bool {
    let text = |path: &str| definition.pointer(path).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let kinds = state.registry.all().filter(|kind| *kind.group == *group && *kind.plural == *plural);
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
