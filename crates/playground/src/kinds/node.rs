//! Nodes: capacity is allocatable where nothing else is said; the status has a road of its own.

use serde_json::{Value, json};

use crate::schema::FieldError;

pub(super) fn complete(node: &mut Value) {
    let capacity = node["status"]["capacity"].clone();
    if node["status"]["allocatable"].is_null() && !capacity.is_null() {
        node["status"]["allocatable"] = capacity;
    }
    for part in ["spec", "status"] {
        if node[part].is_null() {
            node[part] = json!({});
        }
    }
}

/// The status is not changed through the node.
pub(super) fn on_update(node: &mut Value, old: &Value) {
    node["status"] = old["status"].clone();
}

/// Only the status changes through `status`, and labels and annotations.
pub(super) fn on_status(node: &mut Value, old: &Value) {
    node["spec"] = old["spec"].clone();
}

pub(super) fn check(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    for (index, taint) in node["spec"]["taints"].as_array().into_iter().flatten().enumerate() {
        let field = format!("spec.taints[{index}]");
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        match taint["effect"].as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(format!("{field}.effect"), "")),
            effect if effects.contains(&effect) => {}
            _ => errors.push(FieldError::not_supported(format!("{field}.effect"), taint["effect"].clone(), &effects)),
        }
        let key = taint["key"].as_str().unwrap_or_default();
        let why = crate::selectors::label_key_errors(key).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(format!("{field}.key"), taint["key"].clone(), why)));
        let identity = (taint["key"].clone(), taint["effect"].clone());
        if seen.contains(&identity) {
            errors.push(FieldError::duplicate(field, taint.clone()));
        }
        seen.push(identity);
    }
    errors
}
