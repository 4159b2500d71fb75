//! The strategy of native Workloads of 1.35, and the `workloadRef` of pods.
//!
//! The types of built-in kinds are those of 1.37, which have another field in place of `workloadRef`: it is extracted
//! before a pod is decoded, decoded separately, and inserted again. The validation rules are those of
//! `muster_api::native`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::native::v1alpha1::{Workload, WorkloadSpec, validate_workload, validate_workload_update};
use muster_api::wire::pod::WorkloadRef;
use muster_playground_schema::FieldError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::default_field;
use super::names::NameRule;
use super::native_errors::translate;
use super::pod_group::typed;
use super::typed_decode::{DecodeError, decode_as};

/// An object with its complete metadata and a reduced spec and status.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TypedObject<Spec, Status = Value> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    spec: Option<Spec>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

fn none<T>() -> Option<T> {
    None
}

pub(super) fn decode(mut workload: Value) -> Result<Value, DecodeError> {
    // The kind has no status.
    if let Some(fields) = workload.as_object_mut() {
        fields.remove("status");
    }
    decode_as::<TypedObject<WorkloadSpec>>(workload)
}

pub(super) fn set_defaults(workload: &mut Value) {
    default_field(workload, "spec", json!({}));
    let groups = workload["spec"].get_mut("podGroups").and_then(Value::as_array_mut);
    for group in groups.into_iter().flatten() {
        default_field(group, "policy", json!({}));
    }
}

pub(super) fn validate(workload: &Value) -> Vec<FieldError> {
    translate(validate_workload(&typed::<Workload>(workload)), workload)
}

pub(super) fn validate_update(workload: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<Workload>(workload), typed::<Workload>(old));
    translate(validate_workload_update(&new, &old), workload)
}

/// The path of the pod spec in a kind.
fn pod_spec_of(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Pod" => "/spec",
        "PodTemplate" => "/template/spec",
        "CronJob" => "/spec/jobTemplate/spec/template/spec",
        "ReplicationController" | "ReplicaSet" | "Deployment" | "StatefulSet" | "DaemonSet" | "Job" => {
            "/spec/template/spec"
        }
        _ => return None,
    })
}

/// Extracts the reference from an object with a pod spec, and removes the field that does not exist yet in 1.35.
pub(super) fn extract_reference(kind: &str, value: &mut Value) -> Result<Option<Value>, DecodeError> {
    let Some(path) = pod_spec_of(kind) else { return Ok(None) };
    let Some(spec) = value.pointer_mut(path).and_then(Value::as_object_mut) else { return Ok(None) };
    spec.remove("schedulingGroup");
    let Some(reference) = spec.remove("workloadRef").filter(|reference| !reference.is_null()) else { return Ok(None) };
    let field = path.trim_start_matches('/').replace('/', ".");
    let within = |error: DecodeError| DecodeError { field: format!("{field}.workloadRef.{}", error.field), ..error };
    decode_as::<WorkloadRef>(reference).map(Some).map_err(within)
}

/// Inserts an extracted reference.
pub(super) fn insert_reference(kind: &str, value: &mut Value, reference: Option<Value>) {
    let spec = pod_spec_of(kind).and_then(|path| value.pointer_mut(path)).and_then(Value::as_object_mut);
    if let (Some(spec), Some(reference)) = (spec, reference) {
        spec.insert("workloadRef".to_owned(), reference);
    }
}

/// The errors of the reference of a pod.
pub(super) fn reference_errors(reference: &Value, path: &str) -> Vec<FieldError> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let mut rules = vec![("name", NameRule::Subdomain), ("podGroup", NameRule::Label)];
    if !text("podGroupReplicaKey").is_empty() {
        rules.push(("podGroupReplicaKey", NameRule::Label));
    }
    let errors = rules.into_iter().flat_map(|(field, rule)| {
        let why = rule.errors(text(field), false).into_iter();
        why.map(move |why| FieldError::invalid(format!("{path}.{field}"), text(field), why))
    });
    errors.collect()
}
