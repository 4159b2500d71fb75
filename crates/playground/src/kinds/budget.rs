//! Pod disruption budgets.

use serde_json::{Value, json};

use crate::schema::FieldError;

pub(super) fn complete(budget: &mut Value) {
    if budget["spec"].is_null() {
        budget["spec"] = json!({});
    }
}

/// A new budget has allowed nothing yet.
pub(super) fn on_create(budget: &mut Value) {
    budget["status"] = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
}

pub(super) fn check(budget: &Value) -> Vec<FieldError> {
    let spec = &budget["spec"];
    let mut errors = Vec::new();
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", spec.clone(), detail));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if spec[field].as_i64().is_some_and(|count| count < 0) {
            let path = format!("spec.{field}");
            errors.push(FieldError::invalid(path, spec[field].clone(), "must be greater than or equal to 0"));
        }
    }
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if !policy.is_null() && !policies.iter().any(|known| *policy == **known) {
        errors.push(FieldError::not_supported("spec.unhealthyPodEvictionPolicy", policy.clone(), &policies));
    }
    errors
}

/// Says in the conditions that the last disruption was used up.
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
