//! Nodes: `allocatable` defaults to `capacity`, and the status is a subresource.

use muster_playground_schema::FieldError;
use muster_playground_schema::selectors::{label_key_errors, label_value_errors};
use serde_json::{Value, json};

use super::pod_resources::amount_errors;
use super::{copy_field, default_field};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const CIDRS_FIXED: &str = "node updates may not change podCIDR except from \"\" to valid";
/// A new node has this taint until its kubelet reports it as ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) fn set_defaults(node: &mut Value) {
    default_field(node, "spec", json!({}));
    default_field(node, "status", json!({}));
    let capacity = node["status"]["capacity"].clone();
    if !capacity.is_null() {
        default_field(&mut node["status"], "allocatable", capacity);
    }
    if node["spec"]["unschedulable"] == false {
        forget(node, "unschedulable");
    }
    set_addresses_defaults(&mut node["spec"]);
    set_info_defaults(&mut node["status"]);
}

/// Keeps `podCIDR` and the first of `podCIDRs` equal.
fn set_addresses_defaults(spec: &mut Value) {
    let first = spec["podCIDRs"][0].clone();
    if !first.is_null() {
        default_field(spec, "podCIDR", first);
    } else if spec["podCIDR"].as_str().is_some_and(|range| !range.is_empty()) {
        spec["podCIDRs"] = json!([spec["podCIDR"]]);
    }
}

/// The kubelet endpoint and node info are always present, if only with empty fields.
fn set_info_defaults(status: &mut Value) {
    default_field(status, "daemonEndpoints", json!({}));
    default_field(&mut status["daemonEndpoints"], "kubeletEndpoint", json!({"Port": 0}));
    default_field(status, "nodeInfo", json!({}));
    for field in [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ] {
        default_field(&mut status["nodeInfo"], field, json!(""));
    }
}

/// The status cannot be changed through the node.
pub(super) fn prepare_for_update(node: &mut Value, old: &Value) {
    copy_field(node, "status", old);
    if old["spec"]["configSource"].is_null() {
        forget(node, "configSource");
    }
}

/// Only the status, labels and annotations can be changed through `status`.
pub(super) fn prepare_for_status_update(node: &mut Value, old: &Value) {
    copy_field(node, "spec", old);
}

pub(super) fn prepare_for_create(node: &mut Value) {
    forget(node, "configSource");
}

fn forget(node: &mut Value, field: &str) {
    if let Some(spec) = node["spec"].as_object_mut() {
        spec.remove(field);
    }
}

/// Adds the not-ready taint to a new node, as the admission plugin does.
pub(crate) fn mark_not_ready(node: &mut Value) {
    let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
    match node["spec"]["taints"].as_array_mut() {
        Some(taints) => {
            if !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule") {
                taints.push(taint);
            }
        }
        None => node["spec"]["taints"] = json!([taint]),
    }
}

pub(super) fn validate(node: &Value) -> Vec<FieldError> {
    let mut errors = taint_errors(node);
    errors.extend(resource_errors(node));
    errors
}

/// The errors of an update of the node or its status.
pub(super) fn validate_update(node: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = resource_errors(node);
    let mut seen: Vec<&Value> = Vec::new();
    for (index, address) in node["status"]["addresses"].as_array().into_iter().flatten().enumerate() {
        if seen.contains(&address) {
            errors.push(FieldError::duplicate(format!("status.addresses[{index}]"), address.clone()));
        }
        seen.push(address);
    }
    let ranges = |node: &Value| node["spec"]["podCIDRs"].as_array().cloned().unwrap_or_default();
    let (now, before) = (ranges(node), ranges(old));
    if !before.is_empty() {
        let same_length = now.len() == before.len();
        let changed =
            if same_length { now.iter().zip(&before).filter(|(now, before)| now != before).count() } else { 1 };
        errors.extend((0..changed).map(|_| FieldError::forbidden("spec.podCIDRs", CIDRS_FIXED)));
    }
    let provider = |node: &Value| node["spec"]["providerID"].as_str().unwrap_or_default().to_owned();
    let (now, before) = (provider(node), provider(old));
    if !before.is_empty() && now != before {
        let verb = if now.is_empty() { "cleared" } else { "modified" };
        let detail = format!("field cannot be {verb} once set");
        errors.push(FieldError::invalid("spec.providerID", Value::Null, detail));
    }
    errors.extend(taint_errors(node));
    errors
}

fn resource_errors(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["capacity", "allocatable"] {
        for (name, value) in node["status"][list].as_object().into_iter().flatten() {
            errors.extend(amount_errors(name, value, &format!("status.{list}.{name}")));
        }
    }
    errors
}

/// kube-apiserver reports taints under the path of metadata.
fn taint_errors(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    for (index, taint) in node["spec"]["taints"].as_array().into_iter().flatten().enumerate() {
        let field = format!("metadata.taints[{index}]");
        let text = |part: &str| taint[part].as_str().unwrap_or_default();
        let (key, value, effect) = (text("key"), text("value"), text("effect"));
        let why = label_key_errors(key).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(format!("{field}.key"), key, why)));
        let why = label_value_errors(value);
        if !why.is_empty() {
            errors.push(FieldError::invalid(format!("{field}.value"), value, why.join(";")));
        }
        if effect.is_empty() {
            errors.push(FieldError::required(format!("{field}.effect"), ""));
        } else if !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(format!("{field}.effect"), effect, &EFFECTS));
        }
        if seen.contains(&(key, effect)) {
            let detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(FieldError { detail, ..FieldError::duplicate(field, taint.clone()) });
        }
        seen.push((key, effect));
    }
    errors
}
