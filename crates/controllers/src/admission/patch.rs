//! A JSON patch that sets labels and annotations, with the maps that have to be there first.

use std::collections::BTreeSet;

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
    pub(super) fn set(&mut self, path: &[&str], key: &str, value: &str) {
        let mut pointer = String::new();
        for step in path {
            pointer = format!("{pointer}/{}", escaped(step));
            let there = self.object.pointer(&pointer).is_some_and(|value| !value.is_null());
            if !there && self.made.insert(pointer.clone()) {
                self.operations.push(json!({"op": "add", "path": pointer, "value": {}}));
            }
        }
        let pointer = format!("{pointer}/{}", escaped(key));
        if self.object.pointer(&pointer).and_then(Value::as_str) != Some(value) {
            self.operations.push(json!({"op": "add", "path": pointer, "value": value}));
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
