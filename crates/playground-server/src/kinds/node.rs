//! Nodes: capacity is allocatable where nothing else is said; the status has a road of its own.

use muster_playground_schema::FieldError;
use muster_playground_schema::selectors::{label_key_errors, label_value_errors};
use serde_json::{Value, json};

use super::pod_resources::amount_errors;
use super::{keep, present};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const CIDRS_FIXED: &str = "node updates may not change podCIDR except from \"\" to valid";
/// A new node takes no pods until its kubelet says that it is ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) fn complete(node: &mut Value) {
    present(node, "spec", json!({}));
    present(node, "status", json!({}));
    let capacity = node["status"]["capacity"].clone();
    if !capacity.is_null() {
        present(&mut node["status"], "allocatable", capacity);
    }
    if node["spec"]["unschedulable"] == false {
        forget(node, "unschedulable");
    }
    complete_addresses(&mut node["spec"]);
    complete_info(&mut node["status"]);
}

/// The older field for one address range goes with the first of the newer list.
fn complete_addresses(spec: &mut Value) {
    let first = spec["podCIDRs"][0].clone();
    if !first.is_null() {
        present(spec, "podCIDR", first);
    } else if spec["podCIDR"].as_str().is_some_and(|range| !range.is_empty()) {
        spec["podCIDRs"] = json!([spec["podCIDR"]]);
    }
}

/// The endpoint of the kubelet and what it tells of its machine are always there, if only as blanks.
fn complete_info(status: &mut Value) {
    present(status, "daemonEndpoints", json!({}));
    present(&mut status["daemonEndpoints"], "kubeletEndpoint", json!({"Port": 0}));
    present(status, "nodeInfo", json!({}));
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
        present(&mut status["nodeInfo"], field, json!(""));
    }
}

/// The status is not changed through the node.
pub(super) fn on_update(node: &mut Value, old: &Value) {
    keep(node, "status", old);
    if old["spec"]["configSource"].is_null() {
        forget(node, "configSource");
    }
}

/// Only the status changes through `status`, and labels and annotations.
pub(super) fn on_status(node: &mut Value, old: &Value) {
    keep(node, "spec", old);
}

pub(super) fn on_create(node: &mut Value) {
    forget(node, "configSource");
}

fn forget(node: &mut Value, field: &str) {
    if let Some(spec) = node["spec"].as_object_mut() {
        spec.remove(field);
    }
}

/// Marks a new node as not ready, as admission does.
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

pub(super) fn check(node: &Value) -> Vec<FieldError> {
    let mut errors = taint_errors(node);
    errors.extend(resource_errors(node));
    errors
}

/// What is wrong with a change, of the node or of its status.
pub(super) fn check_update(node: &Value, old: &Value) -> Vec<FieldError> {
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

/// The real server looks for taints in the metadata, by the paths that it names.
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
