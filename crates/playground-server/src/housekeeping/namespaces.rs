//! A namespace that is deleted is emptied first, and goes when nothing is left in it.

use std::sync::Arc;

use crate::kinds::{Kind, Rules};
use crate::server::delete::remove;
use crate::server::query::{DeleteOptions, Propagation};
use crate::server::state::State;

/// Deletes what is in a terminating namespace, or the namespace if there is nothing.
pub(super) fn empty(state: &mut State, name: &str) {
    let namespaces = Arc::clone(state.registry.builtin("", "namespaces"));
    let Some(namespace) = state.get(&namespaces, "", name).filter(|namespace| namespace.deleting) else { return };
    let kinds: Vec<Arc<Kind>> = state.registry.all().filter(|kind| holds_objects(kind)).cloned().collect();
    // Pods go first, and everything else stays until the last of them has gone.
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
    let going: Vec<_> =
        state.store.list(kind.table, Some(namespace)).filter(|object| !object.deleting).cloned().collect();
    for object in going {
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        // Read in this step: nothing can be in the way.
        let _ = remove(state, kind, &object, &options);
    }
}

fn is_empty(state: &State, kind: &Kind, namespace: &str) -> bool {
    state.store.list(kind.table, Some(namespace)).next().is_none()
}

fn holds_objects(kind: &Kind) -> bool {
    let served = match &kind.rules {
        Rules::Builtin(builtin) => builtin.stored_in.is_none(),
        Rules::Custom(custom) => custom.is_storage_version,
    };
    kind.namespaced && served
}
