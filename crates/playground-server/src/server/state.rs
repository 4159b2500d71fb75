//! The state of the server: the store, the served kinds, and the work queue of the controllers.
//!
//! Every request is processed atomically on this state, under one lock; nothing here blocks.
//! Invariant: all writes go through `write` and `erase`, so that no work item is lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use muster_clock as clock;
use muster_determinism::random::Random;
use muster_playground_store::{Key, Object, Store};
use serde_json::Value;

use super::Settings;
use super::webhook::Admission;
use crate::controllers::{WorkItem, enqueue_after_removal, enqueue_after_write};
use crate::kinds::{Definition, Kind, NativeGroups, Registry, is_established};

/// The state of the server.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) random: Random,
    pub(crate) work_queue: BTreeSet<WorkItem>,
    pub(crate) now: Timestamp,
    /// The version of the native PodGroup API.
    pub(crate) native_groups: NativeGroups,
    /// The mutating webhook. It is not called for the server's initial objects.
    pub(crate) webhook: Option<Admission>,
}

impl State {
    pub(crate) fn new(settings: &Settings, now: Timestamp) -> Self {
        let mut store = Store::new(settings.window);
        let native_groups = settings.native_groups;
        let registry = Registry::new(&mut store, native_groups, settings.gates);
        let random = Random::new(settings.seed);
        Self { store, registry, random, work_queue: BTreeSet::new(), now, native_groups, webhook: None }
    }

    /// The current version of an object.
    pub(crate) fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.store.get(kind.table, &Key::new(namespace, name)).cloned()
    }

    /// Creates or replaces an object.
    pub(crate) fn write(&mut self, kind: &Kind, value: Value) -> Arc<Object> {
        enqueue_after_write(self, kind, &value);
        if kind.is("apiextensions.k8s.io", "customresourcedefinitions")
            && is_established(&value)
            && value["metadata"]["deletionTimestamp"].is_null()
        {
            self.serve(&value);
        }
        self.store.put(kind.table, value, &kind.fields())
    }

    /// Removes an object; `last` is its final state in watch events.
    pub(crate) fn erase(&mut self, kind: &Kind, last: Value) -> Arc<Object> {
        if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
            let text = |path: &str| last.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(table) = self.registry.undefine(&text("/spec/group"), &text("/spec/names/plural")) {
                self.store.end_watches(table);
            }
        }
        let gone = self.store.remove(kind.table, last, &kind.fields());
        enqueue_after_removal(self, kind, &gone);
        gone
    }

    /// The current time in the format of Kubernetes objects.
    pub(crate) fn time(&self) -> String {
        clock::seconds(self.now)
    }

    fn serve(&mut self, definition: &Value) {
        // An invalid definition was rejected by validation.
        if let Ok(definition) = Definition::of(definition) {
            self.registry.define(&mut self.store, definition);
        }
    }
}
