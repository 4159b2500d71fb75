//! Translates findings of `muster_api::native` into field errors with the messages of kube-apiserver.
//!
//! The findings have messages of their own for invalid names, which clients of kube-apiserver never see. The format of
//! a field follows from its name. Must not depend on the validation rules.

use muster_api::field_error::{ErrorKind, FieldError as Finding};
use muster_playground_schema::selectors::label_key_errors;
use muster_playground_schema::{FieldError, FieldErrorKind};
use serde_json::Value;

use super::names::NameRule;

const CONDITION_REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Translates the findings about an object. Metadata is validated elsewhere, since all kinds share those rules.
pub(super) fn translate(findings: Vec<Finding>, object: &Value) -> Vec<FieldError> {
    let findings = findings.into_iter().filter(|finding| !finding.field.starts_with("metadata."));
    findings.flat_map(|finding| one(finding, object)).collect()
}

fn one(finding: Finding, object: &Value) -> Vec<FieldError> {
    let value = finding.value.as_deref().map(|text| match serde_json::from_str(text) {
        Ok(value) => value,
        // A long value is truncated in the finding.
        Err(_) => at(object, &finding.field).cloned().unwrap_or_default(),
    });
    let details = match &value {
        Some(Value::String(text)) if finding.kind == ErrorKind::Invalid => shape_errors(&finding.field, text),
        _ => Vec::new(),
    };
    // Generated validation has other messages for counts than the handwritten validation of 1.35.
    let is_generated = object["apiVersion"] != "scheduling.k8s.io/v1alpha1";
    let in_bytes = |detail: String| match detail.strip_prefix("must be no more than ") {
        Some(most) if is_generated => format!("must be no more than {}", most.replace("characters", "bytes")),
        _ => detail,
    };
    let details = if details.is_empty() { vec![finding.detail] } else { details.into_iter().map(in_bytes).collect() };
    let error =
        |detail| FieldError { kind: kind(finding.kind), field: finding.field.clone(), value: value.clone(), detail };
    details.into_iter().map(error).collect()
}

fn kind(kind: ErrorKind) -> FieldErrorKind {
    match kind {
        ErrorKind::Required => FieldErrorKind::Required,
        ErrorKind::Invalid => FieldErrorKind::Invalid,
        ErrorKind::Forbidden => FieldErrorKind::Forbidden,
        ErrorKind::Duplicate => FieldErrorKind::Duplicate,
        ErrorKind::TooMany => FieldErrorKind::TooMany,
        ErrorKind::TooLong => FieldErrorKind::TooLong,
        ErrorKind::NotSupported => FieldErrorKind::NotSupported,
    }
}

/// The errors of a string in a field with a format; empty if it is valid, or if the field has no format.
fn shape_errors(field: &str, text: &str) -> Vec<String> {
    let last = field.rsplit('.').next().unwrap_or_default();
    match last {
        "kind" | "name" if field.starts_with("spec.controllerRef.") => NameRule::PathSegment.errors(text, false),
        "name" | "templateName" | "podGroupTemplateName" => NameRule::Label.errors(text, false),
        "workloadName" | "priorityClassName" | "apiGroup" | "resourceClaimName" | "resourceClaimTemplateName" => {
            NameRule::Subdomain.errors(text, false)
        }
        "type" | "key" => label_key_errors(text),
        "reason" => vec![CONDITION_REASON.to_owned()],
        _ => Vec::new(),
    }
}

/// The value at a path such as `spec.items[0].name`.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
    object.pointer(&pointer)
}
