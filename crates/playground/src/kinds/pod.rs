//! Pods: what the server sets on them, and what it checks.
//!
//! The checks are those that a scheduler's users run into; the rest of the real server's is listed in
//! COMPATIBILITY.md.

use std::collections::BTreeSet;

use muster_api::names::check_dns_label;
use serde_json::{Value, json};

use super::names::NameRule;
use super::{pod_defaults, pod_quality};
use crate::schema::FieldError;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// The pod's phase.
pub(crate) fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

/// Whether the pod will not run again.
pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the pod has a node.
pub(crate) fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
}

/// Whether the pod's `Ready` condition is true.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// A new pod is pending, whatever the client wrote.
pub(super) fn on_create(pod: &mut Value) {
    let mut status = json!({"phase": "Pending"});
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": null,
            "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    pod_defaults::pod_level_requests(&mut pod["spec"]);
    status["qosClass"] = json!(pod_quality::class_of(&pod["spec"]));
    pod["status"] = status;
}

/// The status is not changed through the pod, and what admission once set stays.
pub(super) fn on_update(pod: &mut Value, old: &Value) {
    pod["status"] = old["status"].clone();
    for field in ["priority", "preemptionPolicy"] {
        if pod["spec"][field].is_null() && !old["spec"][field].is_null() {
            pod["spec"][field] = old["spec"][field].clone();
        }
    }
}

/// Only the status changes through `status`, and labels and annotations.
pub(super) fn on_status(pod: &mut Value, old: &Value) {
    pod["spec"] = old["spec"].clone();
    match old["metadata"].get("ownerReferences") {
        Some(owners) => pod["metadata"]["ownerReferences"] = owners.clone(),
        None => drop(pod["metadata"].as_object_mut().and_then(|metadata| metadata.remove("ownerReferences"))),
    }
    for field in ["qosClass", "resourceClaimStatuses", "extendedResourceClaimStatus", "observedGeneration"] {
        if pod["status"][field].is_null() && !old["status"][field].is_null() {
            pod["status"][field] = old["status"][field].clone();
        }
    }
}

/// What is wrong with a pod.
pub(super) fn check(pod: &Value) -> Vec<FieldError> {
    check_spec(&pod["spec"], "spec")
}

/// What is wrong with a pod's spec, also inside a template.
pub(super) fn check_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let containers = spec["containers"].as_array();
    if containers.is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            errors.extend(container_errors(container, &format!("{path}.{list}[{index}]"), &mut names));
        }
    }
    let policy = spec["restartPolicy"].as_str().unwrap_or_default();
    if !RESTART_POLICIES.contains(&policy) {
        let field = format!("{path}.restartPolicy");
        errors.push(FieldError::not_supported(field, spec["restartPolicy"].clone(), &RESTART_POLICIES));
    }
    if let Some(node) = spec["nodeName"].as_str().filter(|node| !node.is_empty()) {
        let why = NameRule::Subdomain.refusals(node, false).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(format!("{path}.nodeName"), spec["nodeName"].clone(), why)));
    }
    errors.extend(gate_errors(spec, path));
    errors.extend(super::metadata::label_errors(&spec["nodeSelector"], &format!("{path}.nodeSelector")));
    if let Some(group) = spec.get("schedulingGroup") {
        errors.extend(group_errors(group, &format!("{path}.schedulingGroup.podGroupName")));
    }
    errors
}

fn container_errors(container: &Value, path: &str, names: &mut BTreeSet<String>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = container["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else if check_dns_label(name).is_err() {
        let why = NameRule::Label.refusals(name, false).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(format!("{path}.name"), name, why)));
    } else if !names.insert(name.to_owned()) {
        errors.push(FieldError::duplicate(format!("{path}.name"), name));
    }
    if container["image"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    errors.extend(resource_errors(&container["resources"], &format!("{path}.resources")));
    errors
}

fn resource_errors(resources: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let quantity = |value: &Value| value.as_str().and_then(|text| text.parse::<muster_api::quantity::Quantity>().ok());
    for list in ["limits", "requests"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            if quantity(value).is_some_and(muster_api::quantity::Quantity::is_negative) {
                let field = format!("{path}.{list}[{name}]");
                errors.push(FieldError::invalid(field, value.clone(), "must be greater than or equal to 0"));
            }
        }
    }
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][name];
        if let (Some(asked), Some(most)) = (quantity(request), quantity(limit))
            && asked > most
        {
            let detail =
                format!("must be less than or equal to {name} limit of {}", limit.as_str().unwrap_or_default());
            errors.push(FieldError::invalid(format!("{path}.requests"), request.clone(), detail));
        }
    }
    errors
}

fn gate_errors(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, gate) in spec["schedulingGates"].as_array().into_iter().flatten().enumerate() {
        let name = gate["name"].as_str().unwrap_or_default();
        let field = format!("{path}.schedulingGates[{index}]");
        errors.extend(
            crate::selectors::label_key_errors(name).into_iter().map(|why| FieldError::invalid(&*field, name, why)),
        );
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), name));
        }
    }
    if !seen.is_empty() && spec["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(format!("{path}.nodeName"), detail));
    }
    errors
}

fn group_errors(group: &Value, path: &str) -> Vec<FieldError> {
    match group["podGroupName"].as_str().unwrap_or_default() {
        "" => vec![FieldError::required(path, "")],
        name => {
            let why = NameRule::Subdomain.refusals(name, false).into_iter();
            why.map(|why| FieldError::invalid(path, name, why)).collect()
        }
    }
}
