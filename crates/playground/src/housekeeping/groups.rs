//! A native group that is deleted stays until none of its pods is left to run.

use std::sync::Arc;

use super::release_finalizer;
use crate::kinds::is_finished;
use crate::server::admission::PROTECTION;
use crate::server::state::State;

/// Lets a deleted group go if no pod needs it.
pub(super) fn release(state: &mut State, namespace: &str, name: &str) {
    let groups = Arc::clone(state.registry.builtin("scheduling.k8s.io", "podgroups"));
    let Some(group) = state.get(&groups, namespace, name) else { return };
    if !group.deleting || !group.has_finalizer(PROTECTION) {
        return;
    }
    let pods = state.registry.builtin("", "pods");
    let in_use = state
        .store
        .list(pods.table, Some(namespace))
        .map(|pod| pod.value())
        .any(|pod| pod["spec"]["schedulingGroup"]["podGroupName"] == *name && !is_finished(&pod));
    if !in_use {
        release_finalizer(state, &groups, &group, PROTECTION);
    }
}
