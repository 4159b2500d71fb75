//! Kinds that make pods from a template: ReplicaSet, Deployment, StatefulSet, DaemonSet.
//!
//! Only what their controllers and this server's clients lean on is filled in and checked.

use muster_playground_schema::FieldError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::retype::{Unreadable, retype};
use super::{label_selector, pod, pod_defaults};

/// Reads a kind whose type has a selector in any case, so that one that is missing can be told from an empty one.
pub(super) fn read<T: DeserializeOwned + Serialize>(object: Value) -> Result<Value, Unreadable> {
    let is_missing = object["spec"]["selector"].is_null();
    let mut read = retype::<T>(object)?;
    if is_missing && let Some(spec) = read["spec"].as_object_mut() {
        spec.remove("selector");
    }
    Ok(read)
}

/// Fills in the defaults of the pods' template.
pub(super) fn complete_pod(object: &mut Value) {
    if object["spec"]["template"].is_object() {
        let template = &mut object["spec"]["template"];
        if template["metadata"].is_null() {
            template["metadata"] = json!({});
        }
        if template["spec"].is_object() {
            pod_defaults::complete_spec(&mut template["spec"]);
        }
    }
}

fn default(object: &mut Value, field: &str, value: Value) {
    if object["spec"][field].is_null() {
        object["spec"][field] = value;
    }
}

pub(super) fn complete_template(object: &mut Value) {
    if object["template"]["spec"].is_object() {
        pod_defaults::complete_spec(&mut object["template"]["spec"]);
    }
}

pub(super) fn complete_replicas(object: &mut Value) {
    default(object, "replicas", json!(1));
    complete_pod(object);
}

pub(super) fn complete_daemon(object: &mut Value) {
    default(
        object,
        "updateStrategy",
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
    );
    default(object, "revisionHistoryLimit", json!(10));
    complete_pod(object);
}

/// A new set has no replicas, and says so.
pub(super) fn no_replicas(object: &mut Value) {
    object["status"] = json!({"replicas": 0});
}

/// What is wrong with the template and the selector.
pub(super) fn check(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let labels = &spec["template"]["metadata"]["labels"];
    if spec["selector"].is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else {
        errors.extend(label_selector::check(&spec["selector"], "spec.selector"));
    }
    if !label_selector::matches(&spec["selector"], labels) {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels.clone(), detail));
    }
    if spec["replicas"].as_i64().is_some_and(|count| count < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.replicas", spec["replicas"].clone(), detail));
    }
    errors.extend(pod::check_spec(&spec["template"]["spec"], "spec.template.spec", false));
    errors.extend(restart_errors(&spec["template"]["spec"]));
    errors
}

/// Pods of these kinds run for ever.
fn restart_errors(pod: &Value) -> Vec<FieldError> {
    let field = "spec.template.spec";
    let mut errors = Vec::new();
    // A policy that nobody knows is told with the pod.
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

pub(super) fn check_selector_kept(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = check(object);
    if object["spec"]["selector"] != old["spec"]["selector"] {
        errors.push(FieldError::invalid("spec.selector", object["spec"]["selector"].clone(), "field is immutable"));
    }
    errors
}
