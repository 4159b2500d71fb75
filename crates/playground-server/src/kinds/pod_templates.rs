//! The strategies of kinds with a pod template: ReplicaSet, Deployment, StatefulSet, DaemonSet.
//!
//! Only what their controllers and the playground's clients need is defaulted and validated.

use muster_playground_schema::FieldError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::typed_decode::{DecodeError, decode_as};
use super::{label_selector, pod, pod_defaults};

/// Decodes a kind whose type always has a selector, so that a missing selector is distinguished from an empty one.
pub(super) fn decode<T: DeserializeOwned + Serialize>(object: Value) -> Result<Value, DecodeError> {
    let is_missing = object["spec"]["selector"].is_null();
    let mut decoded = decode_as::<T>(object)?;
    if is_missing && let Some(spec) = decoded["spec"].as_object_mut() {
        spec.remove("selector");
    }
    Ok(decoded)
}

/// Applies the defaults of the pod template.
pub(super) fn set_pod_defaults(object: &mut Value) {
    if object["spec"]["template"].is_object() {
        let template = &mut object["spec"]["template"];
        if template["metadata"].is_null() {
            template["metadata"] = json!({});
        }
        if template["spec"].is_object() {
            pod_defaults::set_spec_defaults(&mut template["spec"]);
        }
    }
}

fn default(object: &mut Value, field: &str, value: Value) {
    if object["spec"][field].is_null() {
        object["spec"][field] = value;
    }
}

pub(super) fn set_template_defaults(object: &mut Value) {
    if object["template"]["spec"].is_object() {
        pod_defaults::set_spec_defaults(&mut object["template"]["spec"]);
    }
}

pub(super) fn set_replicas_defaults(object: &mut Value) {
    default(object, "replicas", json!(1));
    set_pod_defaults(object);
}

pub(super) fn set_daemon_defaults(object: &mut Value) {
    default(
        object,
        "updateStrategy",
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
    );
    default(object, "revisionHistoryLimit", json!(10));
    set_pod_defaults(object);
}

/// A new set has zero replicas in its status.
pub(super) fn no_replicas(object: &mut Value) {
    object["status"] = json!({"replicas": 0});
}

/// The errors of the template and the selector.
pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let labels = &spec["template"]["metadata"]["labels"];
    if spec["selector"].is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else {
        errors.extend(label_selector::validate(&spec["selector"], "spec.selector"));
    }
    if !label_selector::matches(&spec["selector"], labels) {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels.clone(), detail));
    }
    if spec["replicas"].as_i64().is_some_and(|count| count < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.replicas", spec["replicas"].clone(), detail));
    }
    errors.extend(pod::validate_spec(&spec["template"]["spec"], "spec.template.spec", false));
    errors.extend(restart_errors(&spec["template"]["spec"]));
    errors
}

/// Pods of these kinds must always restart.
fn restart_errors(pod: &Value) -> Vec<FieldError> {
    let field = "spec.template.spec";
    let mut errors = Vec::new();
    // An unknown policy is reported with the pod spec.
    if matches!(pod["restartPolicy"].as_str(), Some("Never" | "OnFailure")) {
        let policy = pod["restartPolicy"].clone();
        errors.push(FieldError::not_supported(format!("{field}.restartPolicy"), policy, &["Always"]));
    }
    if !pod["activeDeadlineSeconds"].is_null() {
        let detail = "activeDeadlineSeconds is not supported here: the pods are to run for ever";
        errors.push(FieldError::forbidden(format!("{field}.activeDeadlineSeconds"), detail));
    }
    errors
}

pub(super) fn validate_selector_unchanged(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(object);
    if object["spec"]["selector"] != old["spec"]["selector"] {
        errors.push(FieldError::invalid("spec.selector", object["spec"]["selector"].clone(), "field is immutable"));
    }
    errors
}
