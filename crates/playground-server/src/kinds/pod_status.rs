//! Validates updates of a pod's status.

use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::names::NameRule;

/// The lists of container statuses.
const CONTAINERS: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];

/// Fields of container statuses that are encoded even if empty.
pub(super) fn set_defaults(pod: &mut Value) {
    for field in CONTAINERS {
        let statuses = pod["status"].get_mut(field).and_then(Value::as_array_mut);
        for status in statuses.into_iter().flatten() {
            for state in ["state", "lastState"] {
                if status[state].is_null() {
                    status[state] = json!({});
                }
            }
        }
    }
}

/// The errors of a status update.
pub(super) fn validate_update(pod: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (status, was) = (&pod["status"], &old["status"]);
    for (index, condition) in status["conditions"].as_array().into_iter().flatten().enumerate() {
        if let Some(number) = condition["observedGeneration"].as_i64().filter(|number| *number < 0) {
            let path = format!("status.conditions[{index}].observedGeneration");
            errors.push(FieldError::invalid(path, number, "must be greater than or equal to 0"));
        }
    }
    errors.extend(nominated_errors(pod, old));
    if let Some(number) = status["observedGeneration"].as_i64().filter(|number| *number < 0) {
        errors.push(FieldError::invalid("status.observedGeneration", number, "must be a non-negative integer"));
    }
    let quality = |status: &Value| status["qosClass"].as_str().unwrap_or_default().to_owned();
    if quality(status) != quality(was) {
        errors.push(FieldError::invalid("status.qosClass", quality(status), "field is immutable"));
    }
    errors.extend(address_errors(status, was, "podIP"));
    errors.extend(address_errors(status, was, "hostIP"));
    errors
}

fn nominated_errors(pod: &Value, old: &Value) -> Vec<FieldError> {
    let path = "status.nominatedNodeName";
    let node = pod["status"]["nominatedNodeName"].as_str().unwrap_or_default();
    if node.is_empty() || old["status"]["nominatedNodeName"] == *node {
        return Vec::new();
    }
    let why = NameRule::Subdomain.errors(node, false).into_iter();
    let mut errors: Vec<FieldError> = why.map(|why| FieldError::invalid(path, node, why)).collect();
    if !old["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::forbidden(path, "may not be set on pods that are already bound to a node"));
    }
    errors
}

/// The first address is both a field of its own and the first element of a list, which is the one that is validated.
fn address_errors(status: &Value, was: &Value, field: &str) -> Vec<FieldError> {
    let list = format!("{field}s");
    let single = status[field].as_str().unwrap_or_default();
    let mut addresses: Vec<&str> =
        status[&list].as_array().into_iter().flatten().filter_map(|entry| entry["ip"].as_str()).collect();
    if addresses.is_empty() && !single.is_empty() {
        addresses.push(single);
    }
    if status[field] == was[field] && status[&list] == was[&list] {
        return Vec::new();
    }
    let wrong = addresses.iter().enumerate().filter(|(_, text)| text.parse::<std::net::IpAddr>().is_err());
    wrong
        .map(|(index, text)| {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            FieldError::invalid(format!("status.{list}[{index}]"), *text, why)
        })
        .collect()
}
