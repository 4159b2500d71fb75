//! Events: one stored object with two shapes in two API groups.
//!
//! Stored as `v1`; in `events.k8s.io/v1` some fields have other names.

use muster_playground_schema::FieldError;
use muster_playground_schema::selectors::label_key_errors;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::typed_decode::{DecodeError, decode_as, require_micro_times};

/// Field names in `v1` and in `events.k8s.io/v1`.
const RENAMED: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];
const SOURCE: (&str, &str) = ("source", "deprecatedSource");

/// Decodes an event of either group.
pub(super) fn decode<T: DeserializeOwned + Serialize>(event: Value) -> Result<Value, DecodeError> {
    require_micro_times(&event, &["/eventTime", "/series/lastObservedTime"])?;
    decode_as::<T>(event)
}

/// Fields that are encoded even if empty.
pub(super) fn set_defaults(event: &mut Value) {
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

/// Converts `events.k8s.io/v1` to `v1`.
pub(super) fn to_stored(mut event: Value) -> Value {
    rename(&mut event, |(core, new)| (new, core));
    event["apiVersion"] = "v1".into();
    event
}

/// Converts `v1` to `events.k8s.io/v1`.
pub(super) fn from_stored(mut event: Value) -> Value {
    rename(&mut event, |(core, new)| (core, new));
    event["apiVersion"] = "events.k8s.io/v1".into();
    if let Some(fields) = event.as_object_mut() {
        for field in ["reportingController", "reportingInstance"] {
            if fields.get(field).is_some_and(|text| *text == "") {
                fields.remove(field);
            }
        }
    }
    event
}

/// The API of an event; the newer one is stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    Core,
    New,
}

/// The errors of an event in either API, in the shape of `v1`.
pub(super) fn validate(event: &Value, api: Api) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (own, of_object) = (text("/metadata/namespace"), text("/involvedObject/namespace"));
    let is_new = event["eventTime"].is_string();
    let wrong = match (is_new, of_object) {
        (false, "") => own != "default",
        (false, _) => own != of_object,
        (true, "") => !["default", "kube-system"].contains(&own),
        (true, _) => false,
    };
    if wrong {
        errors.push(FieldError::invalid("involvedObject.namespace", of_object, "does not match event.namespace"));
    }
    if !is_new {
        return errors;
    }
    let component = text("/reportingComponent");
    let field = if api == Api::Core { "reportingComponent" } else { "reportingController" };
    if component.is_empty() {
        errors.push(FieldError::required(field, ""));
    }
    errors.extend(label_key_errors(component).into_iter().map(|why| FieldError::invalid(field, component, why)));
    for (field, required, most) in
        [("reportingInstance", true, 128), ("action", true, 128), ("reason", true, 128), ("message", false, 1024)]
    {
        let written = event[field].as_str().unwrap_or_default();
        if required && written.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
        if written.len() > most {
            errors.push(FieldError::invalid(field, "", format!("can have at most {most} characters")));
        }
    }
    errors
}

/// The additional errors of a new event in the newer API.
pub(super) fn validate_new(event: &Value) -> Vec<FieldError> {
    let mut errors = validate(event, Api::New);
    errors.extend(series_errors(event));
    if !event["eventTime"].is_string() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = event["type"].as_str().unwrap_or_default();
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
    }
    let source = &event["source"];
    let source_is_set =
        ["component", "host"].iter().any(|field| source[*field].as_str().is_some_and(|text| !text.is_empty()));
    for (field, is_set) in [
        ("firstTimestamp", event["firstTimestamp"].is_string()),
        ("lastTimestamp", event["lastTimestamp"].is_string()),
        ("count", event["count"].as_i64().is_some_and(|count| count != 0)),
        ("source", source_is_set),
    ] {
        if is_set {
            errors.push(FieldError::invalid(field, "", "needs to be unset"));
        }
    }
    errors
}

/// The errors of an update in the newer API: only the series may change.
pub(super) fn validate_new_update(event: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(event, Api::New);
    if event["series"] != old["series"] {
        errors.extend(series_errors(event));
    }
    for (field, shown) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        if event[field] != old[field] {
            errors.push(FieldError::invalid(shown, event[field].clone(), "field is immutable"));
        }
    }
    errors
}

fn series_errors(event: &Value) -> Vec<FieldError> {
    let series = &event["series"];
    let mut errors = Vec::new();
    if series.is_object() {
        if series["count"].as_i64().unwrap_or_default() < 2 {
            errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
        }
        if !series["lastObservedTime"].is_string() {
            errors.push(FieldError::required("series.lastObservedTime", ""));
        }
    }
    errors
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
    fn event_conversion_keeps_all_fields() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"name": "p"},
            "message": "m", "reason": "r", "source": {"component": "c"}, "count": 2,
            "firstTimestamp": "1", "lastTimestamp": "2", "reportingComponent": "c", "series": {"count": 3},
        });
        let new = from_stored(core.clone());
        assert_eq!(new["note"], "m");
        assert_eq!(new["regarding"]["name"], "p");
        assert!(new.get("message").is_none());
        assert_eq!(to_stored(new), core);
    }
}
