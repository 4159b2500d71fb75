//! What the server knows: the store, the served kinds, and the chores that its own writes leave behind.
//!
//! Every request is one step on this state, under one lock; nothing here waits.
//! Invariant: all writes go through `write` and `erase`, so that no chore is forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use muster_determinism::clock;
use muster_determinism::random::Random;
use muster_playground_store::{Key, Object, Store};
use serde_json::Value;

use super::Settings;
use super::hook::Admission;
use crate::housekeeping::{Chore, after_erase, after_write};
use crate::kinds::{Definition, Kind, NativeGroups, Registry, is_established};

/// The server's state.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) random: Random,
    pub(crate) chores: BTreeSet<Chore>,
    pub(crate) now: Timestamp,
    /// The server's API for groups.
    pub(crate) native_groups: NativeGroups,
    /// Who else is asked about writes. Nobody is asked about the server's first objects.
    pub(crate) admission: Option<Admission>,
}

impl State {
    pub(crate) fn new(settings: &Settings, now: Timestamp) -> Self {
        let mut store = Store::new(settings.window);
        let native_groups = settings.native_groups;
        let registry = Registry::new(&mut store, native_groups);
        let random = Random::new(settings.seed);
        Self { store, registry, random, chores: BTreeSet::new(), now, native_groups, admission: None }
    }

    /// The present version of an object.
    pub(crate) fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.store.get(kind.table, &Key::new(namespace, name)).cloned()
    }

    /// Writes an object, new or changed.
    pub(crate) fn write(&mut self, kind: &Kind, value: Value) -> Arc<Object> {
        after_write(self, kind, &value);
        if kind.is("apiextensions.k8s.io", "customresourcedefinitions")
            && is_established(&value)
            && value["metadata"]["deletionTimestamp"].is_null()
        {
            self.serve(&value);
        }
        self.store.put(kind.table, value, &kind.fields())
    }

    /// Removes an object; `last` is the state that watchers see at the end.
    pub(crate) fn erase(&mut self, kind: &Kind, last: Value) -> Arc<Object> {
        if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
            let text = |path: &str| last.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(table) = self.registry.undefine(&text("/spec/group"), &text("/spec/names/plural")) {
                self.store.end_watches(table);
            }
        }
        let gone = self.store.remove(kind.table, last, &kind.fields());
        after_erase(self, kind, &gone);
        gone
    }

    /// The time as objects carry it.
    pub(crate) fn time(&self) -> String {
        clock::seconds(self.now)
    }

    fn serve(&mut self, definition: &Value) {
        // A definition that cannot be served was refused by its check.
        if let Ok(definition) = Definition::of(definition) {
            self.registry.define(&mut self.store, definition);
        }
    }
}
