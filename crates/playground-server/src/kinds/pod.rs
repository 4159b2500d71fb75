//! The strategy of pods.
//!
//! Validation covers what is relevant to scheduling; the rest of kube-apiserver's is listed in COMPATIBILITY.md.

use std::collections::BTreeSet;

use muster_playground_schema::FieldError;
use muster_playground_schema::selectors::label_key_errors;
use serde_json::{Value, json};

use super::metadata::label_errors;
use super::names::NameRule;
use super::{native_v1alpha1, pod_container, pod_defaults, pod_placement, pod_qos};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const SYSTEMS: [&str; 2] = ["linux", "windows"];

/// The pod's phase.
pub(crate) fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

/// Whether the pod has terminated.
pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the pod is bound to a node.
pub(crate) fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
}

/// Whether the pod's `Ready` condition is true.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// A new pod is pending, no matter what the client sent.
pub(super) fn prepare_for_create(pod: &mut Value) {
    let mut status = json!({"phase": "Pending"});
    if is_gated(&pod["spec"]) {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "lastProbeTime": null,
            "lastTransitionTime": pod["metadata"]["creationTimestamp"],
            "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    pod_defaults::pod_level_requests(&mut pod["spec"]);
    status["qosClass"] = json!(pod_qos::class_of(&pod["spec"]));
    pod["status"] = status;
}

/// The status cannot be changed through the pod, nor fields that admission has set.
pub(super) fn prepare_for_update(pod: &mut Value, old: &Value) {
    pod["status"] = old["status"].clone();
    for field in ["priority", "preemptionPolicy"] {
        if pod["spec"][field].is_null() && !old["spec"][field].is_null() {
            pod["spec"][field] = old["spec"][field].clone();
        }
    }
}

/// Only the status, labels and annotations can be changed through `status`.
pub(super) fn prepare_for_status_update(pod: &mut Value, old: &Value) {
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

/// The errors of a new pod.
pub(super) fn validate(pod: &Value) -> Vec<FieldError> {
    let mut errors = validate_common(pod);
    let spec = &pod["spec"];
    if spec["ephemeralContainers"].as_array().is_some_and(|list| !list.is_empty()) {
        errors.push(FieldError::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
    if is_gated(spec) && is_bound(pod) {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", detail));
    }
    errors
}

/// The errors of any pod, new or not.
pub(super) fn validate_common(pod: &Value) -> Vec<FieldError> {
    let mut errors = validate_spec(&pod["spec"], "spec", true);
    let grace = &pod["spec"]["terminationGracePeriodSeconds"];
    if grace.as_i64().is_some_and(|seconds| seconds < 0) {
        let field = "spec.terminationGracePeriodSeconds";
        errors.push(FieldError::invalid(field, grace.clone(), "must be greater than or equal to 0"));
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in pod["spec"][list].as_array().into_iter().flatten().enumerate() {
            let image = container["image"].as_str().unwrap_or_default();
            if image.trim() != image {
                let field = format!("spec.{list}[{index}].image");
                errors.push(FieldError::invalid(field, image, "must not have leading or trailing whitespace"));
            }
        }
    }
    errors
}

/// Whether the pod has scheduling gates.
pub(super) fn is_gated(spec: &Value) -> bool {
    spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

/// The errors of a pod spec, in a pod or a template.
pub(super) fn validate_spec(spec: &Value, path: &str, in_pod: bool) -> Vec<FieldError> {
    let at = |field: &str| format!("{path}.{field}");
    let mut errors = pod_container::validate(spec, path, in_pod);
    errors.extend(choice_error(&spec["restartPolicy"], &at("restartPolicy"), &RESTART_POLICIES));
    errors.extend(choice_error(&spec["dnsPolicy"], &at("dnsPolicy"), &DNS_POLICIES));
    errors.extend(label_errors(&spec["nodeSelector"], &at("nodeSelector")));
    errors.extend(pod_placement::affinity_errors(&spec["affinity"], &at("affinity")));
    for (index, gate) in spec["readinessGates"].as_array().into_iter().flatten().enumerate() {
        let kind = gate["conditionType"].as_str().unwrap_or_default();
        let field = at(&format!("readinessGates[{index}].conditionType"));
        errors.extend(label_key_errors(kind).into_iter().map(|why| FieldError::invalid(&*field, kind, why)));
    }
    errors.extend(gate_errors(spec, path));
    let constraints = &spec["topologySpreadConstraints"];
    errors.extend(pod_placement::spread_errors(constraints, &at("topologySpreadConstraints")));
    errors.extend(name_errors(spec, path));
    let deadline = &spec["activeDeadlineSeconds"];
    if deadline.as_i64().is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds)) {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(at("activeDeadlineSeconds"), deadline.clone(), detail));
    }
    errors.extend(pod_placement::toleration_errors(&spec["tolerations"], &at("tolerations")));
    if let Some(policy) = spec["preemptionPolicy"].as_str() {
        errors.extend(choice_error(&json!(policy), &at("preemptionPolicy"), &["PreemptLowerPriority", "Never"]));
    }
    match spec["os"]["name"].as_str() {
        Some("") => errors.push(FieldError::required(at("os.name"), "")),
        Some(system) if !SYSTEMS.contains(&system) => {
            errors.push(FieldError::not_supported(at("os"), system, &SYSTEMS));
        }
        _ => {}
    }
    if let Some(group) = spec.get("schedulingGroup").filter(|group| group.is_object()) {
        errors.extend(group_errors(&group["podGroupName"], &at("schedulingGroup.podGroupName")));
    }
    if let Some(reference) = spec.get("workloadRef").filter(|reference| reference.is_object()) {
        errors.extend(native_v1alpha1::reference_errors(reference, &at("workloadRef")));
    }
    errors
}

fn choice_error(value: &Value, field: &str, known: &[&str]) -> Option<FieldError> {
    match value.as_str().unwrap_or_default() {
        "" => Some(FieldError::required(field, "")),
        value if known.contains(&value) => None,
        value => Some(FieldError::not_supported(field, value, known)),
    }
}

/// Fields that contain names.
fn name_errors(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (field, rule) in [
        ("serviceAccountName", NameRule::Subdomain),
        ("nodeName", NameRule::Subdomain),
        ("hostname", NameRule::Label),
        ("subdomain", NameRule::Label),
        ("priorityClassName", NameRule::Subdomain),
        ("runtimeClassName", NameRule::Subdomain),
    ] {
        let name = spec[field].as_str().filter(|name| !name.is_empty());
        let why = name.map(|name| rule.errors(name, false)).unwrap_or_default().into_iter();
        errors.extend(why.map(|why| FieldError::invalid(format!("{path}.{field}"), spec[field].clone(), why)));
    }
    errors
}

fn gate_errors(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, gate) in spec["schedulingGates"].as_array().into_iter().flatten().enumerate() {
        let name = gate["name"].as_str().unwrap_or_default();
        let field = format!("{path}.schedulingGates[{index}]");
        errors.extend(label_key_errors(name).into_iter().map(|why| FieldError::invalid(&*field, name, why)));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(field, name));
        }
    }
    errors
}

fn group_errors(name: &Value, field: &str) -> Vec<FieldError> {
    let Some(name) = name.as_str() else {
        return vec![FieldError::invalid(field, Value::Null, "must specify one of: `podGroupName`")];
    };
    NameRule::Subdomain.errors(name, false).into_iter().map(|why| FieldError::invalid(field, name, why)).collect()
}
