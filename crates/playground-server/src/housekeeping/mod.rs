//! What the server itself does later because of a write: collect garbage, empty namespaces, release groups,
//! serve definitions.
//!
//! On a real cluster these are controllers beside the server, so they act after the write that causes them, each act
//! with a revision of its own. A write leaves chores behind; a task takes them up.
//! It must not know requests.

mod definitions;
mod garbage;
mod groups;
mod namespaces;

use std::sync::Arc;

pub(crate) use definitions::CLEANUP;
use muster_playground_store::{Key, Object, TableId};
use serde_json::Value;

use crate::kinds::Kind;
use crate::server::delete::{FOREGROUND, ORPHAN};
use crate::server::ownership::{self, Writer};
use crate::server::state::State;

/// Something to look after.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Chore {
    /// The owners or dependents of the object with this UID changed.
    Collect(Box<str>),
    /// A namespace is to be emptied, or something in it went.
    Empty(Box<str>),
    /// A native group may be free to go.
    Release { namespace: Box<str>, group: Box<str> },
    /// A definition came, changed or goes.
    Define(Box<str>),
}

/// Finds the chores that were left undone when the server stopped: whatever may have one is looked at.
pub(crate) fn take_stock(state: &mut State) {
    let kinds: Vec<Arc<Kind>> = state.registry.all().filter(|kind| kind.shows_as_stored()).cloned().collect();
    let mut chores = Vec::new();
    for kind in kinds {
        for object in state.store.list(kind.table, None) {
            if object.deleting || !object.owners.is_empty() {
                chores.push(Chore::Collect(object.uid.clone()));
            }
            let (namespace, name) = (&object.key.namespace, &object.key.name);
            match (&*kind.group, &*kind.plural) {
                ("", "namespaces") if object.deleting => chores.push(Chore::Empty(name.clone())),
                ("apiextensions.k8s.io", "customresourcedefinitions") => chores.push(Chore::Define(name.clone())),
                ("scheduling.k8s.io", "podgroups") if object.deleting && kind.is_builtin() => {
                    chores.push(Chore::Release { namespace: namespace.clone(), group: name.clone() });
                }
                _ => {}
            }
        }
    }
    state.chores.extend(chores);
}

/// Does one chore. Answers whether there was one.
pub(crate) fn do_one(state: &mut State) -> bool {
    if state.store.broken().is_some() {
        return false;
    }
    let Some(chore) = state.chores.pop_first() else { return false };
    match chore {
        Chore::Collect(uid) => garbage::collect(state, &uid),
        Chore::Empty(namespace) => namespaces::empty(state, &namespace),
        Chore::Release { namespace, group } => groups::release(state, &namespace, &group),
        Chore::Define(name) => definitions::look_after(state, &name),
    }
    true
}

/// Notes what a write of `value` leaves to do. Called before it.
pub(crate) fn after_write(state: &mut State, kind: &Kind, value: &Value) {
    let metadata = &value["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let deleting = metadata["deletionTimestamp"].is_string();
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    let collects = deleting && finalizers.into_iter().any(|finalizer| finalizer == FOREGROUND || finalizer == ORPHAN);
    let before = state.store.get(kind.table, &Key::new(text("namespace"), text("name"))).cloned();
    let had: Vec<&str> = before.iter().flat_map(|before| &before.owners).map(|owner| &*owner.uid).collect();
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let has: Vec<&str> = owners.filter_map(|owner| owner["uid"].as_str()).collect();
    // New owners may not be there, and an owner may wait for an object that no longer holds it.
    if collects || (had != has && !has.is_empty()) {
        state.chores.insert(Chore::Collect(text("uid").into()));
    }
    for owner in had {
        let waits = |(_, owner): (TableId, &Arc<Object>)| owner.deleting && owner.has_finalizer(FOREGROUND);
        if state.store.find(owner).is_some_and(waits) {
            state.chores.insert(Chore::Collect(owner.into()));
        }
    }
    match (&*kind.group, &*kind.plural) {
        ("", "namespaces") if deleting => drop(state.chores.insert(Chore::Empty(text("name").into()))),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            state.chores.insert(Chore::Define(text("name").into()));
        }
        ("scheduling.k8s.io", "podgroups") if deleting && kind.is_builtin() => {
            let (namespace, group) = (text("namespace").into(), text("name").into());
            state.chores.insert(Chore::Release { namespace, group });
        }
        ("", "pods") if crate::kinds::is_finished(value) => release_group_of(state, value),
        _ => {}
    }
}

/// Notes what the end of an object leaves to do.
pub(crate) fn after_erase(state: &mut State, kind: &Kind, gone: &Object) {
    let dependents: Vec<Box<str>> = state.store.dependents(&gone.uid).map(|(_, object)| object.uid.clone()).collect();
    let owners = gone.owners.iter().map(|owner| owner.uid.clone());
    state.chores.extend(dependents.into_iter().chain(owners).map(Chore::Collect));
    if kind.namespaced {
        let namespaces = state.registry.builtin("", "namespaces");
        if state.get(namespaces, "", &gone.key.namespace).is_some_and(|namespace| namespace.deleting) {
            state.chores.insert(Chore::Empty(gone.key.namespace.clone()));
        }
    }
    if kind.is("", "pods") {
        release_group_of(state, &gone.value());
    }
    if matches!(kind.rules, crate::kinds::Rules::Custom(_)) {
        state.chores.insert(Chore::Define(format!("{}.{}", kind.plural, kind.group).into()));
    }
}

fn release_group_of(state: &mut State, pod: &Value) {
    if let Some(group) = pod["spec"]["schedulingGroup"]["podGroupName"].as_str() {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        state.chores.insert(Chore::Release { namespace: namespace.into(), group: group.into() });
    }
}

/// Takes a finalizer off an object; the last one to go takes the object with it.
fn release_finalizer(state: &mut State, kind: &Kind, object: &Object, finalizer: &str) {
    let mut value = object.value();
    let Some(metadata) = value["metadata"].as_object_mut() else { return };
    let left: Vec<Value> =
        object.finalizers.iter().filter(|name| ***name != *finalizer).map(|name| (**name).into()).collect();
    let grace = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    let done = left.is_empty() && object.deleting && grace == 0 && !has_contents(kind, object);
    if left.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), Value::Array(left));
    }
    note_owners(state, kind, &object.value(), &mut value);
    if done {
        // The change itself is never stored: watchers see the object end as it was.
        state.erase(kind, object.value())
    } else {
        state.write(kind, value)
    };
}

/// Notes that the control plane's controllers changed an object.
fn note_owners(state: &State, kind: &Kind, was: &Value, value: &mut Value) {
    let writer = Writer { manager: "kube-controller-manager", subresource: "", now: &state.time() };
    ownership::updated(&state.registry, kind, was, value, writer);
}

/// Whether it is a namespace that has not been emptied; `namespaces` lets it go.
fn has_contents(kind: &Kind, object: &Object) -> bool {
    kind.is("", "namespaces") && object.value()["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

/// The kind that stores the objects of a table.
fn kind_of(state: &State, table: TableId) -> Option<Arc<Kind>> {
    state.registry.of_table(table).cloned()
}
