//! Conditions in the status of an object, as JSON.
//!
//! Invariant: there is one condition of each type, and its `lastTransitionTime` changes only with its status.

use jiff::Timestamp;
use muster_clock as clock;
use serde_json::{Value, json};

/// Returns the condition of a type.
pub fn find<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|one| one["type"] == kind)
}

/// Sets a condition, replacing the one of the same type.
pub fn set(conditions: &mut Vec<Value>, mut condition: Value, now: Timestamp) {
    condition["lastTransitionTime"] = json!(clock::seconds(now));
    match conditions.iter_mut().find(|old| old["type"] == condition["type"]) {
        Some(old) => {
            if old["status"] == condition["status"] {
                condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}
