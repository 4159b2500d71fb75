//! PodDisruptionBudgets.

use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::label_selector;

pub(super) fn set_defaults(budget: &mut Value) {
    if budget["spec"].is_null() {
        budget["spec"] = json!({});
    }
}

/// A new budget allows no disruptions yet.
pub(super) fn prepare_for_create(budget: &mut Value) {
    budget["status"] = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
}

pub(super) fn validate(budget: &Value) -> Vec<FieldError> {
    let spec = &budget["spec"];
    let mut errors = Vec::new();
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", spec.clone(), detail));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        errors.extend(count_error(&spec[field], &format!("spec.{field}")));
    }
    errors.extend(label_selector::validate(&spec["selector"], "spec.selector"));
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if !policy.is_null() && !policies.iter().any(|known| *policy == **known) {
        errors.push(FieldError::not_supported("spec.unhealthyPodEvictionPolicy", policy.clone(), &policies));
    }
    errors
}

/// A number of pods or a percentage.
fn count_error(count: &Value, field: &str) -> Option<FieldError> {
    const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
    let invalid = |detail: &str| Some(FieldError::invalid(field, count.clone(), detail));
    if let Some(text) = count.as_str() {
        let digits = text.strip_suffix('%').unwrap_or_default();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return invalid(PERCENT);
        }
        let is_more = digits.parse::<u64>().is_ok_and(|share| share > 100);
        return if is_more { invalid("must not be greater than 100%") } else { None };
    }
    if count.as_i64().is_some_and(|count| count < 0) { invalid("must be greater than or equal to 0") } else { None }
}

pub(super) fn validate_status_update(budget: &Value, _: &Value) -> Vec<FieldError> {
    let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"].into_iter();
    let negative = counts.filter(|field| budget["status"][field].as_i64().is_some_and(|count| count < 0));
    negative
        .map(|field| {
            let detail = "must be greater than or equal to 0";
            FieldError::invalid(format!("status.{field}"), budget["status"][field].clone(), detail)
        })
        .collect()
}

/// Sets the condition that no further disruption is allowed.
pub(crate) fn deny_further_disruptions(budget: &mut Value, now: &str) {
    let generation = budget["status"]["observedGeneration"].clone();
    let denied = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": now, "observedGeneration": generation,
    });
    let conditions = &mut budget["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| condition["type"] == "DisruptionAllowed") {
        Some(condition) => *condition = denied,
        None => conditions.push(denied),
    }
}
