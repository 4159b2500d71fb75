//! The controllers of the control plane: garbage collector, namespaces, PodGroup protection, CustomResourceDefinitions.
//!
//! As on a real cluster they act after the write that causes them, each action with its own revision. A write adds
//! items to a work queue, which a task processes.
//! Must not depend on requests.

mod definitions;
mod garbage_collector;
mod namespaces;
mod pod_group_protection;

use std::sync::Arc;

pub(crate) use definitions::CLEANUP_FINALIZER;
use muster_playground_store::{Key, Object, TableId};
use serde_json::Value;

use crate::kinds::Kind;
use crate::server::delete::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use crate::server::managed_fields::{self, Writer};
use crate::server::state::State;

/// An item of the work queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The owners or dependents of the object with this UID changed.
    CollectGarbage(Box<str>),
    /// A namespace is terminating, or an object in it was deleted.
    EmptyNamespace(Box<str>),
    /// The protection of a PodGroup may have to be removed.
    ReleasePodGroup { namespace: Box<str>, group: Box<str> },
    /// A definition was created, changed or deleted.
    SyncDefinition(Box<str>),
}

/// Enqueues every object that may need processing after a restart.
pub(crate) fn enqueue_all(state: &mut State) {
    let kinds: Vec<Arc<Kind>> = state.registry.all().filter(|kind| kind.is_stored_form()).cloned().collect();
    let mut items = Vec::new();
    for kind in kinds {
        for object in state.store.list(kind.table, None) {
            if object.deleting || !object.owners.is_empty() {
                items.push(WorkItem::CollectGarbage(object.uid.clone()));
            }
            let (namespace, name) = (&object.key.namespace, &object.key.name);
            match (&*kind.group, &*kind.plural) {
                ("", "namespaces") if object.deleting => items.push(WorkItem::EmptyNamespace(name.clone())),
                ("apiextensions.k8s.io", "customresourcedefinitions") => {
                    items.push(WorkItem::SyncDefinition(name.clone()));
                }
                ("scheduling.k8s.io", "podgroups") if object.deleting && kind.is_builtin() => {
                    items.push(WorkItem::ReleasePodGroup { namespace: namespace.clone(), group: name.clone() });
                }
                _ => {}
            }
        }
    }
    state.work_queue.extend(items);
}

/// Processes one item. Returns whether there was one.
pub(crate) fn process_next(state: &mut State) -> bool {
    if state.store.write_error().is_some() {
        return false;
    }
    let Some(item) = state.work_queue.pop_first() else { return false };
    match item {
        WorkItem::CollectGarbage(uid) => garbage_collector::collect(state, &uid),
        WorkItem::EmptyNamespace(namespace) => namespaces::empty(state, &namespace),
        WorkItem::ReleasePodGroup { namespace, group } => pod_group_protection::release(state, &namespace, &group),
        WorkItem::SyncDefinition(name) => definitions::sync(state, &name),
    }
    true
}

/// Enqueues the work caused by a write of `value`. Called before the write.
pub(crate) fn enqueue_after_write(state: &mut State, kind: &Kind, value: &Value) {
    let metadata = &value["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let deleting = metadata["deletionTimestamp"].is_string();
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    let collects = deleting
        && finalizers.into_iter().any(|finalizer| finalizer == FOREGROUND_FINALIZER || finalizer == ORPHAN_FINALIZER);
    let before = state.store.get(kind.table, &Key::new(text("namespace"), text("name"))).cloned();
    let had: Vec<&str> = before.iter().flat_map(|before| &before.owners).map(|owner| &*owner.uid).collect();
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let has: Vec<&str> = owners.filter_map(|owner| owner["uid"].as_str()).collect();
    // New owners may not exist, and an owner may wait for an object that no longer references it.
    if collects || (had != has && !has.is_empty()) {
        state.work_queue.insert(WorkItem::CollectGarbage(text("uid").into()));
    }
    for owner in had {
        let waits = |(_, owner): (TableId, &Arc<Object>)| owner.deleting && owner.has_finalizer(FOREGROUND_FINALIZER);
        if state.store.find_by_uid(owner).is_some_and(waits) {
            state.work_queue.insert(WorkItem::CollectGarbage(owner.into()));
        }
    }
    match (&*kind.group, &*kind.plural) {
        ("", "namespaces") if deleting => drop(state.work_queue.insert(WorkItem::EmptyNamespace(text("name").into()))),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            state.work_queue.insert(WorkItem::SyncDefinition(text("name").into()));
        }
        ("scheduling.k8s.io", "podgroups") if deleting && kind.is_builtin() => {
            let (namespace, group) = (text("namespace").into(), text("name").into());
            state.work_queue.insert(WorkItem::ReleasePodGroup { namespace, group });
        }
        ("", "pods") if crate::kinds::is_finished(value) => enqueue_group_release(state, value),
        _ => {}
    }
}

/// Enqueues the work caused by the removal of an object.
pub(crate) fn enqueue_after_removal(state: &mut State, kind: &Kind, gone: &Object) {
    let dependents: Vec<Box<str>> = state.store.dependents(&gone.uid).map(|(_, object)| object.uid.clone()).collect();
    let owners = gone.owners.iter().map(|owner| owner.uid.clone());
    state.work_queue.extend(dependents.into_iter().chain(owners).map(WorkItem::CollectGarbage));
    if kind.namespaced {
        let namespaces = state.registry.builtin("", "namespaces");
        if state.get(namespaces, "", &gone.key.namespace).is_some_and(|namespace| namespace.deleting) {
            state.work_queue.insert(WorkItem::EmptyNamespace(gone.key.namespace.clone()));
        }
    }
    if kind.is("", "pods") {
        enqueue_group_release(state, &gone.value());
    }
    if matches!(kind.strategy, crate::kinds::Strategy::Custom(_)) {
        state.work_queue.insert(WorkItem::SyncDefinition(format!("{}.{}", kind.plural, kind.group).into()));
    }
}

fn enqueue_group_release(state: &mut State, pod: &Value) {
    if let Some(group) = pod["spec"]["schedulingGroup"]["podGroupName"].as_str() {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        state.work_queue.insert(WorkItem::ReleasePodGroup { namespace: namespace.into(), group: group.into() });
    }
}

/// Removes a finalizer; without finalizers the object is removed.
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
    record_manager(state, kind, &object.value(), &mut value);
    if done {
        // The object without the finalizer is never stored: watches see its last state.
        state.erase(kind, object.value())
    } else {
        state.write(kind, value)
    };
}

/// Records the controller manager as the field manager.
fn record_manager(state: &State, kind: &Kind, was: &Value, value: &mut Value) {
    let writer = Writer { manager: "kube-controller-manager", subresource: "", now: &state.time() };
    managed_fields::updated(&state.registry, kind, was, value, writer);
}

/// Whether it is a namespace that is not empty yet; `namespaces` removes it.
fn has_contents(kind: &Kind, object: &Object) -> bool {
    kind.is("", "namespaces") && object.value()["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

/// The kind that stores the objects of a table.
fn kind_of(state: &State, table: TableId) -> Option<Arc<Kind>> {
    state.registry.of_table(table).cloned()
}
