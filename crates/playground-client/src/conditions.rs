//! Conditions in the status of an object, as JSON.
//!
//! Invariant: there is one of each type, and the time of its last transition moves only with its status.

use jiff::Timestamp;
use muster_determinism::clock;
use serde_json::{Value, json};

/// The condition of a type.
pub fn find<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|one| one["type"] == kind)
}

/// Puts a condition in the place of the one of its type.
pub fn put(conditions: &mut Vec<Value>, mut condition: Value, now: Timestamp) {
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
