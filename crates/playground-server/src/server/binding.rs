//! The `binding` subresource: assigns a node to a pod, once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::admission;
use super::body;
use super::query::{FieldValidation, Query, WriteOptions, WriteVerb};
use super::request::Target;
use super::response::ApiResponse;
use super::state::State;
use super::status_error::StatusError;
use crate::kinds::{GroupResource, Kind, NameRule, decode_as, is_bound};

const BINDING: GroupResource<'static> = GroupResource { group: "", resource: "pods/binding" };
/// Node labels that are copied to the pods on the node.
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Binds the pod named by the path or, for the legacy collection, by the body.
pub(crate) fn bind(
    state: &mut State,
    pods: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
) -> Result<ApiResponse, StatusError> {
    let options = WriteOptions::read(query, WriteVerb::Create)?;
    let binding = read(state, bytes, options.field_validation)?;
    let name = binding["metadata"]["name"].as_str().unwrap_or_default();
    if !target.name.is_empty() && *name != *target.name {
        return Err(StatusError::bad_request("name in URL does not match name in Binding object"));
    }
    let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
    if !namespace.is_empty() && *namespace != *target.namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    admission::check_namespace_lifecycle(state, pods, target, &binding)?;
    let node = check(&binding)?;
    let old =
        state.get(pods, &target.namespace, name).ok_or_else(|| StatusError::not_found(pods.group_resource(), name))?;
    let mut pod = old.value();
    preconditions(pods, &binding, &old)?;
    check_unbound(name, &pod)?;
    assign(state, &mut pod, node, &binding["metadata"]["annotations"], &binding["metadata"]["labels"]);
    if !options.dry_run {
        state.write(pods, pod);
    }
    Ok(ApiResponse::success(201, None))
}

fn read(state: &State, bytes: &[u8], field_validation: FieldValidation) -> Result<Value, StatusError> {
    let (binding, _) = body::decode_part(&state.registry, bytes, &[("", "v1")], "Binding")?;
    if !binding["metadata"].is_null() {
        decode_as::<ObjectMeta>(binding["metadata"].clone()).map_err(|error| {
            let why = format!("metadata.{}: {}", error.field, error.why);
            StatusError::bad_request(format!("Binding in version \"v1\" cannot be handled as a Binding: {why}"))
        })?;
    }
    // Unknown fields of a binding have no effect; they are rejected only in strict mode.
    let known = ["apiVersion", "kind", "metadata", "target"];
    let unknown =
        binding.as_object().into_iter().flatten().map(|(key, _)| key).find(|key| !known.contains(&key.as_str()));
    if let (FieldValidation::Strict, Some(unknown)) = (field_validation, unknown) {
        let why = format!("strict decoding error: unknown field \"{unknown}\"");
        return Err(StatusError::bad_request(format!(
            "Binding in version \"v1\" cannot be handled as a Binding: {why}"
        )));
    }
    Ok(binding)
}

/// The target node of a binding.
fn check(binding: &Value) -> Result<&str, StatusError> {
    let mut errors = Vec::new();
    let kind = binding["target"]["kind"].as_str().unwrap_or_default();
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    if !["", "Node"].contains(&kind) {
        errors.push(FieldError::not_supported("target.kind", kind, &["Node", "<empty>"]));
    }
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    } else {
        let why = NameRule::Subdomain.errors(node, false).into_iter();
        errors.extend(why.map(|why| FieldError::invalid("target.name", node, why)));
    }
    if errors.is_empty() {
        return Ok(node);
    }
    // kube-apiserver does not wrap these errors in a Status of their own.
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Err(StatusError::internal_plain(if let [only] = &*messages {
        only.clone()
    } else {
        format!("[{}]", messages.join(", "))
    }))
}

fn preconditions(pods: &Kind, binding: &Value, old: &muster_playground_store::Object) -> Result<(), StatusError> {
    let wanted = |field: &str| binding["metadata"][field].as_str().filter(|text| !text.is_empty());
    let revision = old.revision.to_string();
    let precondition_failed = |what: &str, wanted: &str, found: &str| {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/pods/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}",
            old.key.namespace, old.key.name
        );
        StatusError::conflict(pods.group_resource(), &old.key.name, why)
    };
    if let Some(uid) = wanted("uid").filter(|uid| **uid != *old.uid) {
        return Err(precondition_failed("UID", uid, &old.uid));
    }
    if let Some(written) = wanted("resourceVersion").filter(|written| *written != revision) {
        return Err(precondition_failed("ResourceVersion", written, &revision));
    }
    Ok(())
}

/// A pod can be bound if it is neither bound nor gated nor being deleted.
fn check_unbound(name: &str, pod: &Value) -> Result<(), StatusError> {
    let why = if pod["metadata"]["deletionTimestamp"].is_string() {
        format!("pod {name} is being deleted, cannot be assigned to a host")
    } else if is_bound(pod) {
        format!("pod {name} is already assigned to node {}", pod["spec"]["nodeName"])
    } else if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        format!("pod {name} has non-empty .spec.schedulingGates")
    } else {
        return Ok(());
    };
    Err(StatusError::conflict(BINDING, name, why))
}

fn assign(state: &State, pod: &mut Value, node: &str, annotations: &Value, labels: &Value) {
    pod["spec"]["nodeName"] = json!(node);
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    for (key, value) in annotations.as_object().into_iter().flatten() {
        pod["metadata"]["annotations"][key] = value.clone();
    }
    for (key, value) in labels.as_object().into_iter().flatten() {
        pod["metadata"]["labels"][key] = value.clone();
    }
    let nodes = state.registry.builtin("", "nodes");
    if let Some(node) = state.get(nodes, "", node) {
        for label in TOPOLOGY_LABELS {
            if let Some(value) = node.labels.get(label) {
                pod["metadata"]["labels"][label] = json!(value);
            }
        }
    }
    let now = state.time();
    set_condition(pod, &json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null}), &now);
}

/// Sets a condition of a pod; its transition time changes only with its status.
pub(crate) fn set_condition(pod: &mut Value, condition: &Value, now: &str) {
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let mut condition = condition.clone();
    condition["lastTransitionTime"] = json!(now);
    let Some(old) = conditions.iter_mut().find(|old| old["type"] == condition["type"]) else {
        conditions.push(condition);
        return;
    };
    if old["status"] == condition["status"] {
        condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
    }
    *old = condition;
}
