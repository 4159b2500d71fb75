//! The PodGroup protection controller: keeps a deleted PodGroup until all of its pods have terminated.

use std::sync::Arc;

use muster_playground_store::Object;

use super::release_finalizer;
use crate::server::admission::PROTECTION_FINALIZER;
use crate::server::state::State;

/// Removes the finalizer of a deleted PodGroup if no pod needs it.
pub(super) fn release(state: &mut State, namespace: &str, name: &str) {
    let Some(groups) = state.registry.pod_groups().map(Arc::clone) else { return };
    let Some(group) = state.get(&groups, namespace, name) else { return };
    if !group.deleting || !group.has_finalizer(PROTECTION_FINALIZER) {
        return;
    }
    let pods = state.registry.builtin("", "pods");
    let phase = pods.field_index("status.phase");
    let may_run = |pod: &&Arc<Object>| {
        // The indexed phase saves decoding thousands of finished pods.
        phase.is_none_or(|phase| !["Succeeded", "Failed"].contains(&&*pod.fields[phase]))
    };
    let in_use = state
        .store
        .list(pods.table, Some(namespace))
        .filter(may_run)
        .any(|pod| pod.value()["spec"]["schedulingGroup"]["podGroupName"] == *name);
    if !in_use {
        release_finalizer(state, &groups, &group, PROTECTION_FINALIZER);
    }
}
