//! The namespace controller: empties a deleted namespace, then removes it.

use std::sync::Arc;

use crate::kinds::{Kind, Strategy};
use crate::server::delete::remove;
use crate::server::query::{DeleteOptions, Propagation};
use crate::server::state::State;

/// Deletes the contents of a terminating namespace, or the namespace itself if it is empty.
pub(super) fn empty(state: &mut State, name: &str) {
    let namespaces = Arc::clone(state.registry.builtin("", "namespaces"));
    let Some(namespace) = state.get(&namespaces, "", name).filter(|namespace| namespace.deleting) else { return };
    let kinds: Vec<Arc<Kind>> = state.registry.all().filter(|kind| holds_objects(kind)).cloned().collect();
    // Pods are deleted first; everything else stays until the last of them is gone.
    let pods = Arc::clone(state.registry.builtin("", "pods"));
    clear(state, &pods, name);
    if !is_empty(state, &pods, name) {
        return;
    }
    for kind in &kinds {
        clear(state, kind, name);
    }
    if kinds.iter().any(|kind| !is_empty(state, kind, name)) {
        return;
    }
    let mut value = namespace.value();
    value["spec"].as_object_mut().map(|spec| spec.remove("finalizers"));
    if namespace.finalizers.is_empty() {
        state.erase(&namespaces, value);
    } else if value != namespace.value() {
        state.write(&namespaces, value);
    }
}

fn clear(state: &mut State, kind: &Kind, namespace: &str) {
    let remaining: Vec<_> =
        state.store.list(kind.table, Some(namespace)).filter(|object| !object.deleting).cloned().collect();
    for object in remaining {
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        // Cannot fail: the object was read under the same lock.
        let _ = remove(state, kind, &object, &options);
    }
}

fn is_empty(state: &State, kind: &Kind, namespace: &str) -> bool {
    state.store.list(kind.table, Some(namespace)).next().is_none()
}

fn holds_objects(kind: &Kind) -> bool {
    let served = match &kind.strategy {
        Strategy::Builtin(builtin) => builtin.stored_in.is_none(),
        Strategy::Custom(custom) => custom.is_storage_version,
    };
    kind.namespaced && served
}
