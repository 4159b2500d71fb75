//! A JSON patch that sets labels, annotations and references, and creates missing maps first.

use std::collections::BTreeSet;

use muster_api::owners::Membership;
use serde_json::{Value, json};

/// A patch of an object.
pub(super) struct Patch<'a> {
    object: &'a Value,
    created_maps: BTreeSet<String>,
    operations: Vec<Value>,
}

impl<'a> Patch<'a> {
    pub(super) fn of(object: &'a Value) -> Self {
        Self { object, created_maps: BTreeSet::new(), operations: Vec::new() }
    }

    /// Sets an entry of the map at the end of the path, unless it has this value already.
    pub(super) fn set(&mut self, path: &[&str], key: &str, value: &Value) {
        let mut pointer = String::new();
        for step in path {
            pointer = format!("{pointer}/{}", escaped(step));
            let exists = self.object.pointer(&pointer).is_some_and(|value| !value.is_null());
            if !exists && self.created_maps.insert(pointer.clone()) {
                self.operations.push(json!({"op": "add", "path": pointer, "value": {}}));
            }
        }
        let pointer = format!("{pointer}/{}", escaped(key));
        if self.object.pointer(&pointer) != Some(value) {
            self.operations.push(json!({"op": "add", "path": pointer, "value": value}));
        }
    }

    /// Adds a group membership to the pod or template at the end of the path.
    pub(super) fn add_membership(&mut self, path: &[&str], membership: &Membership) {
        for (field, entries) in [("labels", &membership.labels), ("annotations", &membership.annotations)] {
            let path = [path, &["metadata", field]].concat();
            for (key, value) in entries {
                self.set(&path, key, &json!(value));
            }
        }
        let spec = [path, &["spec"]].concat();
        if let Some(group) = &membership.scheduling_group {
            self.set(&spec, "schedulingGroup", &json!(group));
        }
        if let Some(reference) = &membership.workload_ref {
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
        // Empty maps alone are no change.
        let has_entries = self.operations.iter().any(|one| one["value"] != json!({}));
        if has_entries { self.operations } else { Vec::new() }
    }
}

fn escaped(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}
