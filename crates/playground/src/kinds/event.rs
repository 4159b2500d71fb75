//! Events: one stored object that two API groups show in two shapes.
//!
//! It is stored as `v1`; `events.k8s.io/v1` calls some fields otherwise.

use serde_json::{Value, json};

/// The names of the same field in `v1` and in `events.k8s.io/v1`.
const RENAMED: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];
const SOURCE: (&str, &str) = ("source", "deprecatedSource");

/// Fields that are printed even when they are empty.
pub(super) fn complete(event: &mut Value) {
    for field in ["reportingComponent", "reportingInstance"] {
        if event[field].is_null() {
            event[field] = "".into();
        }
    }
    if event["source"].is_null() {
        event["source"] = json!({});
    }
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        if event.get(field).is_none() {
            event[field] = Value::Null;
        }
    }
}

/// From `events.k8s.io/v1` to `v1`.
pub(super) fn inward(mut event: Value) -> Value {
    rename(&mut event, |(core, new)| (new, core));
    event["apiVersion"] = "v1".into();
    event
}

/// From `v1` to `events.k8s.io/v1`.
pub(super) fn outward(mut event: Value) -> Value {
    rename(&mut event, |(core, new)| (core, new));
    event["apiVersion"] = "events.k8s.io/v1".into();
    event
}

fn rename(event: &mut Value, direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Some(fields) = event.as_object_mut() else { return };
    for pair in RENAMED.into_iter().chain([SOURCE]) {
        let (from, to) = direction(pair);
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_hold_the_same() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"name": "p"},
            "message": "m", "reason": "r", "source": {"component": "c"}, "count": 2,
            "firstTimestamp": "1", "lastTimestamp": "2", "reportingComponent": "c", "series": {"count": 3},
        });
        let new = outward(core.clone());
        assert_eq!(new["note"], "m");
        assert_eq!(new["regarding"]["name"], "p");
        assert!(new.get("message").is_none());
        assert_eq!(inward(new), core);
    }
}
