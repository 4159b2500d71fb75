//! Garbage collection: dependents follow their owners, in the background, before them, or not at all.

use std::sync::Arc;

use muster_playground_store::Object;
use serde_json::{Value, json};

use super::{Chore, kind_of, note_owners, release_finalizer};
use crate::kinds::Kind;
use crate::server::delete::{FOREGROUND, ORPHAN, remove};
use crate::server::query::{DeleteOptions, Propagation};
use crate::server::state::State;

/// Looks at one object: at its dependents if it is going, at its owners if it is not.
pub(super) fn collect(state: &mut State, uid: &str) {
    let Some((table, object)) = state.store.find(uid) else { return };
    let object = Arc::clone(object);
    let Some(kind) = kind_of(state, table) else { return };
    if object.deleting {
        if object.has_finalizer(ORPHAN) {
            orphan_dependents(state, uid);
            release_finalizer(state, &kind, &object, ORPHAN);
        } else if object.has_finalizer(FOREGROUND) {
            wait_for_dependents(state, &kind, &object);
        }
        return;
    }
    if object.owners.is_empty() {
        return;
    }
    match judge(state, &object) {
        Verdict::Keep => {}
        Verdict::Forget(owners) => forget(state, table, &object, &owners),
        Verdict::Delete(policy) => {
            let options = DeleteOptions { propagation: policy, ..DeleteOptions::default() };
            let object = match policy {
                Some(Propagation::Foreground) => unblocked(state, &kind, object),
                _ => object,
            };
            // Nothing is in the way under the lock: the object was read in this step.
            let _ = remove(state, &kind, &object, &options);
        }
    }
}

/// An object that waits for its dependents while one of them waits for it would wait for ever. It no longer
/// blocks its owners then.
fn unblocked(state: &mut State, kind: &Kind, object: Arc<Object>) -> Arc<Object> {
    let mut dependents = state.store.dependents(&object.uid);
    let in_circle = dependents.any(|(_, dependent)| dependent.deleting && dependent.has_finalizer(FOREGROUND));
    drop(dependents);
    if !in_circle || !object.owners.iter().any(|owner| owner.blocks) {
        return object;
    }
    let mut value = object.value();
    for owner in value["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        owner["blockOwnerDeletion"] = json!(false);
    }
    note_owners(state, kind, &object.value(), &mut value);
    state.write(kind, value)
}

enum Verdict {
    Keep,
    /// Some owner is left, but not these.
    Forget(Vec<Box<str>>),
    Delete(Option<Propagation>),
}

/// What becomes of an object that is not being deleted itself.
fn judge(state: &State, object: &Object) -> Verdict {
    let mut solid = false;
    let (mut dangling, mut waiting) = (Vec::new(), Vec::new());
    let value = object.value();
    for reference in value["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        let uid: Box<str> = reference["uid"].as_str().unwrap_or_default().into();
        match look_up(state, object, reference) {
            // Nothing is deleted on a guess.
            Owner::Unknown => return Verdict::Keep,
            Owner::Absent => dangling.push(uid),
            Owner::Going => waiting.push(uid),
            Owner::Present => solid = true,
        }
    }
    if dangling.is_empty() && waiting.is_empty() {
        return Verdict::Keep;
    }
    if solid {
        dangling.append(&mut waiting);
        return Verdict::Forget(dangling);
    }
    if !waiting.is_empty() && state.store.dependents(&object.uid).next().is_some() {
        return Verdict::Delete(Some(Propagation::Foreground));
    }
    // What the object says itself, else in the background: what its kind does for clients counts for them only.
    let says = object.has_finalizer(ORPHAN) || object.has_finalizer(FOREGROUND);
    Verdict::Delete(if says { None } else { Some(Propagation::Background) })
}

/// What an owner reference leads to.
enum Owner {
    Present,
    /// It is being deleted and waits for its dependents.
    Going,
    /// There is no such object with that UID.
    Absent,
    /// Nobody can tell: its kind is not served, or it lives in a namespace that a cluster-wide object cannot name.
    Unknown,
}

fn look_up(state: &State, object: &Object, reference: &Value) -> Owner {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let Some(kind) = state.registry.of_kind(group, version, text("kind")) else { return Owner::Unknown };
    if kind.namespaced && object.key.namespace.is_empty() {
        return Owner::Unknown;
    }
    let namespace = if kind.namespaced { &*object.key.namespace } else { "" };
    match state.get(kind, namespace, text("name")) {
        Some(owner) if *owner.uid != *text("uid") => Owner::Absent,
        Some(owner) if owner.deleting && owner.has_finalizer(FOREGROUND) => Owner::Going,
        Some(_) => Owner::Present,
        None => Owner::Absent,
    }
}

/// An owner in foreground deletion goes when none that blocks it is left.
fn wait_for_dependents(state: &mut State, kind: &Kind, owner: &Object) {
    let dependents: Vec<(Box<str>, bool, bool)> = state
        .store
        .dependents(&owner.uid)
        .map(|(_, object)| {
            let blocks = object.owners.iter().any(|reference| reference.uid == owner.uid && reference.blocks);
            (object.uid.clone(), blocks, object.deleting)
        })
        .collect();
    if !dependents.iter().any(|(_, blocks, _)| *blocks) {
        release_finalizer(state, kind, owner, FOREGROUND);
    }
    let left = dependents.into_iter().filter(|(_, _, deleting)| !deleting);
    state.chores.extend(left.map(|(uid, _, _)| Chore::Collect(uid)));
}

fn orphan_dependents(state: &mut State, uid: &str) {
    let dependents: Vec<_> = state.store.dependents(uid).map(|(table, object)| (table, Arc::clone(object))).collect();
    for (table, object) in dependents {
        forget(state, table, &object, &[uid.into()]);
    }
}

/// Strikes owners out of an object.
fn forget(state: &mut State, table: muster_playground_store::TableId, object: &Object, owners: &[Box<str>]) {
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
    note_owners(state, &kind, &object.value(), &mut value);
    state.write(&kind, value);
}
