//! A JSON patch that sets labels, annotations and references, with the maps that have to be there first.

use std::collections::BTreeSet;

use muster_api::makers::Joining;
use serde_json::{Value, json};

/// A patch of an object.
pub(super) struct Patch<'a> {
    object: &'a Value,
    made: BTreeSet<String>,
    operations: Vec<Value>,
}

impl<'a> Patch<'a> {
    pub(super) fn of(object: &'a Value) -> Self {
        Self { object, made: BTreeSet::new(), operations: Vec::new() }
    }

    /// Sets an entry of the map at the end of the path, if it is not so already.
    pub(super) fn set(&mut self, path: &[&str], key: &str, value: &Value) {
        let mut pointer = String::new();
        for step in path {
            pointer = format!("{pointer}/{}", escaped(step));
            let there = self.object.pointer(&pointer).is_some_and(|value| !value.is_null());
            if !there && self.made.insert(pointer.clone()) {
                self.operations.push(json!({"op": "add", "path": pointer, "value": {}}));
            }
        }
        let pointer = format!("{pointer}/{}", escaped(key));
        if self.object.pointer(&pointer) != Some(value) {
            self.operations.push(json!({"op": "add", "path": pointer, "value": value}));
        }
    }

    /// What a pod says to join a group, in the pod or template at the end of the path.
    pub(super) fn join(&mut self, path: &[&str], joining: &Joining) {
        for (field, entries) in [("labels", &joining.labels), ("annotations", &joining.annotations)] {
            let path = [path, &["metadata", field]].concat();
            for (key, value) in entries {
                self.set(&path, key, &json!(value));
            }
        }
        let spec = [path, &["spec"]].concat();
        if let Some(group) = &joining.scheduling_group {
            self.set(&spec, "schedulingGroup", &json!(group));
        }
        if let Some(reference) = &joining.workload_ref {
            self.set(&spec, "workloadRef", &json!(reference));
        }
    }

    /// Removes an entry of the map at the end of the path, if it is there.
    pub(super) fn remove(&mut self, path: &[&str], key: &str) {
        let steps = path.iter().chain([&key]).map(|step| format!("/{}", escaped(step)));
        let pointer: String = steps.collect();
        if self.object.pointer(&pointer).is_some() {
            self.operations.push(json!({"op": "remove", "path": pointer}));
        }
    }

    pub(super) fn into_operations(self) -> Vec<Value> {
        // Maps alone change nothing that anybody asked for.
        let says_something = self.operations.iter().any(|one| one["value"] != json!({}));
        if says_something { self.operations } else { Vec::new() }
    }
}

fn escaped(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}
