//! PriorityClasses: an immutable value in the range for users.

use muster_playground_schema::FieldError;
use serde_json::{Value, json};

/// The highest value for users; higher ones are reserved for the system.
const USER_VALUE_MAX: i64 = 1_000_000_000;
const POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];
const SYSTEM_PREFIX: &str = "system-";
/// The classes that every cluster has.
pub(crate) const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

pub(super) fn set_defaults(class: &mut Value) {
    super::default_field(class, "preemptionPolicy", json!("PreemptLowerPriority"));
    super::default_field(class, "value", json!(0));
    if class["globalDefault"] == false
        && let Some(fields) = class.as_object_mut()
    {
        fields.remove("globalDefault");
    }
}

pub(super) fn validate(class: &Value) -> Vec<FieldError> {
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    let value = class["value"].as_i64().unwrap_or_default();
    let mut errors = Vec::new();
    if name.starts_with(SYSTEM_PREFIX) {
        errors.extend(system_error(class, name, value).map(|why| {
            let reserved = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            FieldError::forbidden("metadata.name", format!("{reserved}{why}"))
        }));
    } else if value > USER_VALUE_MAX {
        let detail = format!("maximum allowed value of a user defined priority is {USER_VALUE_MAX}");
        errors.push(FieldError::forbidden("value", detail));
    }
    match class["preemptionPolicy"].as_str() {
        Some("") => errors.push(FieldError::required("preemptionPolicy", "")),
        Some(policy) if !POLICIES.contains(&policy) => {
            errors.push(FieldError::not_supported("preemptionPolicy", policy, &POLICIES));
        }
        _ => {}
    }
    errors
}

/// The error of a class with the `system-` prefix that is not a system class.
fn system_error(class: &Value, name: &str, value: i64) -> Option<String> {
    match SYSTEM_CLASSES.iter().find(|(system, _, _)| *system == name) {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, number, _)) if *number != value => Some(format!("value of {name} PriorityClass must be {number}")),
        Some(_) if class["globalDefault"] == true => {
            Some(format!("globalDefault of {name} PriorityClass must be false"))
        }
        Some(_) => None,
    }
}

pub(super) fn validate_update(class: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if class["value"].as_i64().unwrap_or_default() != old["value"].as_i64().unwrap_or_default() {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    let policy = &class["preemptionPolicy"];
    if *policy != old["preemptionPolicy"] {
        errors.push(FieldError::invalid("preemptionPolicy", policy.clone(), "field is immutable"));
    }
    errors
}
