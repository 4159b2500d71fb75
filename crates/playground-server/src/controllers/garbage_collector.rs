//! The garbage collector: deletes dependents in the background or foreground, or orphans them.

use std::sync::Arc;

use muster_playground_store::Object;
use serde_json::{Value, json};

use super::{WorkItem, kind_of, record_manager, release_finalizer};
use crate::kinds::Kind;
use crate::server::delete::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, remove};
use crate::server::query::{DeleteOptions, Propagation};
use crate::server::state::State;

/// Processes one object: its dependents if it is being deleted, otherwise its owners.
pub(super) fn collect(state: &mut State, uid: &str) {
    let Some((table, object)) = state.store.find_by_uid(uid) else { return };
    let object = Arc::clone(object);
    let Some(kind) = kind_of(state, table) else { return };
    if object.deleting {
        if object.has_finalizer(ORPHAN_FINALIZER) {
            orphan_dependents(state, uid);
            release_finalizer(state, &kind, &object, ORPHAN_FINALIZER);
        } else if object.has_finalizer(FOREGROUND_FINALIZER) {
            wait_for_dependents(state, &kind, &object);
        }
        return;
    }
    if object.owners.is_empty() {
        return;
    }
    match decide(state, &object) {
        Action::Keep => {}
        Action::RemoveOwners(owners) => remove_owner_references(state, table, &object, &owners),
        Action::Delete(policy) => {
            let options = DeleteOptions { propagation: policy, ..DeleteOptions::default() };
            let object = match policy {
                Some(Propagation::Foreground) => break_cycle(state, &kind, object),
                _ => object,
            };
            // Cannot fail: the object was read under the same lock.
            let _ = remove(state, &kind, &object, &options);
        }
    }
}

/// Breaks a cycle: an object that waits for its dependents while one of them waits for it would never be deleted, so it
/// stops blocking its owners.
fn break_cycle(state: &mut State, kind: &Kind, object: Arc<Object>) -> Arc<Object> {
    let mut dependents = state.store.dependents(&object.uid);
    let in_cycle = dependents.any(|(_, dependent)| dependent.deleting && dependent.has_finalizer(FOREGROUND_FINALIZER));
    drop(dependents);
    if !in_cycle || !object.owners.iter().any(|owner| owner.block_owner_deletion) {
        return object;
    }
    let mut value = object.value();
    for owner in value["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        owner["blockOwnerDeletion"] = json!(false);
    }
    record_manager(state, kind, &object.value(), &mut value);
    state.write(kind, value)
}

enum Action {
    Keep,
    /// Some owner exists, but not these.
    RemoveOwners(Vec<Box<str>>),
    Delete(Option<Propagation>),
}

/// Decides about an object that is not being deleted itself.
fn decide(state: &State, object: &Object) -> Action {
    let mut solid = false;
    let (mut dangling, mut waiting) = (Vec::new(), Vec::new());
    let value = object.value();
    for reference in value["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        let uid: Box<str> = reference["uid"].as_str().unwrap_or_default().into();
        match resolve_owner(state, object, reference) {
            // Never deletes unless the absence of the owner is certain.
            Owner::Unknown => return Action::Keep,
            Owner::Absent => dangling.push(uid),
            Owner::WaitingForDependents => waiting.push(uid),
            Owner::Present => solid = true,
        }
    }
    if dangling.is_empty() && waiting.is_empty() {
        return Action::Keep;
    }
    if solid {
        dangling.append(&mut waiting);
        return Action::RemoveOwners(dangling);
    }
    if !waiting.is_empty() && state.store.dependents(&object.uid).next().is_some() {
        return Action::Delete(Some(Propagation::Foreground));
    }
    // The object's own finalizers decide, otherwise background: the default policy of a kind applies to clients only.
    let has_policy = object.has_finalizer(ORPHAN_FINALIZER) || object.has_finalizer(FOREGROUND_FINALIZER);
    Action::Delete(if has_policy { None } else { Some(Propagation::Background) })
}

/// The state of a referenced owner.
enum Owner {
    Present,
    /// It is being deleted in the foreground and waits for its dependents.
    WaitingForDependents,
    /// There is no such object with that UID.
    Absent,
    /// Cannot be resolved: its kind is not served, or a cluster-scoped object references a namespaced owner.
    Unknown,
}

fn resolve_owner(state: &State, object: &Object, reference: &Value) -> Owner {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let Some(kind) = state.registry.of_kind(group, version, text("kind")) else { return Owner::Unknown };
    if kind.namespaced && object.key.namespace.is_empty() {
        return Owner::Unknown;
    }
    let namespace = if kind.namespaced { &*object.key.namespace } else { "" };
    match state.get(kind, namespace, text("name")) {
        Some(owner) if *owner.uid != *text("uid") => Owner::Absent,
        Some(owner) if owner.deleting && owner.has_finalizer(FOREGROUND_FINALIZER) => Owner::WaitingForDependents,
        Some(_) => Owner::Present,
        None => Owner::Absent,
    }
}

/// Removes the foreground finalizer of an owner when no dependent blocks its deletion.
fn wait_for_dependents(state: &mut State, kind: &Kind, owner: &Object) {
    let dependents: Vec<(Box<str>, bool, bool)> = state
        .store
        .dependents(&owner.uid)
        .map(|(_, object)| {
            let blocks =
                object.owners.iter().any(|reference| reference.uid == owner.uid && reference.block_owner_deletion);
            (object.uid.clone(), blocks, object.deleting)
        })
        .collect();
    if !dependents.iter().any(|(_, blocks, _)| *blocks) {
        release_finalizer(state, kind, owner, FOREGROUND_FINALIZER);
    }
    let left = dependents.into_iter().filter(|(_, _, deleting)| !deleting);
    state.work_queue.extend(left.map(|(uid, _, _)| WorkItem::CollectGarbage(uid)));
}

fn orphan_dependents(state: &mut State, uid: &str) {
    let dependents: Vec<_> = state.store.dependents(uid).map(|(table, object)| (table, Arc::clone(object))).collect();
    for (table, object) in dependents {
        remove_owner_references(state, table, &object, &[uid.into()]);
    }
}

/// Removes owner references from an object.
fn remove_owner_references(
    state: &mut State,
    table: muster_playground_store::TableId,
    object: &Object,
    owners: &[Box<str>],
) {
    let Some(kind) = kind_of(state, table) else { return };
    let mut value = object.value();
    let left: Vec<Value> = value["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|owner| !owners.iter().any(|uid| owner["uid"] == **uid))
        .cloned()
        .collect();
    if left.is_empty() {
        value["metadata"].as_object_mut().map(|metadata| metadata.remove("ownerReferences"));
    } else {
        value["metadata"]["ownerReferences"] = json!(left);
    }
    record_manager(state, &kind, &object.value(), &mut value);
    state.write(&kind, value);
}
