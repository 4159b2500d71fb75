//! Priority classes: a value that never changes, within the range that users may choose from.

use serde_json::{Value, json};

use crate::schema::FieldError;

/// The highest value that users may choose; higher ones are the system's.
const USER_VALUE_MAX: i64 = 1_000_000_000;
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

pub(super) fn complete(class: &mut Value) {
    if class["preemptionPolicy"].is_null() {
        class["preemptionPolicy"] = json!("PreemptLowerPriority");
    }
    if class["globalDefault"] == false
        && let Some(fields) = class.as_object_mut()
    {
        fields.remove("globalDefault");
    }
}

pub(super) fn check(class: &Value) -> Vec<FieldError> {
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    let value = class["value"].as_i64().unwrap_or_default();
    let mut errors = Vec::new();
    if name.starts_with(SYSTEM_PREFIX) {
        let known = SYSTEM_CLASSES.iter().any(|(system, number, _)| *system == name && *number == value);
        if !known {
            let detail =
                "priority class names with 'system-' prefix are reserved for system use only. error: ".to_owned();
            let why = format!("{name} is not a known system priority class");
            errors.push(FieldError::forbidden("metadata.name", detail + &why));
        }
    } else if value > USER_VALUE_MAX {
        let detail = format!("maximum allowed value of a user defined priority is {USER_VALUE_MAX}");
        errors.push(FieldError::forbidden("value", detail));
    }
    let policies = ["Never", "PreemptLowerPriority"];
    if !policies.iter().any(|policy| class["preemptionPolicy"] == *policy) {
        errors.push(FieldError::not_supported("preemptionPolicy", class["preemptionPolicy"].clone(), &policies));
    }
    errors
}

pub(super) fn check_update(class: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["value", "preemptionPolicy"] {
        if class[field] != old[field] {
            let name = if field == "value" { "value" } else { "preemptionPolicy" };
            errors.push(FieldError::invalid(name, class[field].clone(), "field is immutable"));
        }
    }
    errors
}
