//! Native PodGroups and Workloads (`scheduling.k8s.io/v1beta1`).

use serde_json::{Value, json};

use crate::schema::FieldError;

pub(super) fn complete(group: &mut Value) {
    if group["spec"]["disruptionMode"].is_null() {
        group["spec"]["disruptionMode"] = json!({"single": {}});
    }
}

pub(super) fn complete_workload(_: &mut Value) {}

pub(super) fn check(_: &Value) -> Vec<FieldError> {
    Vec::new()
}

pub(super) fn check_update(_: &Value, _: &Value) -> Vec<FieldError> {
    Vec::new()
}

pub(super) fn check_status(_: &Value, _: &Value) -> Vec<FieldError> {
    Vec::new()
}

pub(super) fn check_workload(_: &Value) -> Vec<FieldError> {
    Vec::new()
}

pub(super) fn check_workload_update(_: &Value, _: &Value) -> Vec<FieldError> {
    Vec::new()
}
