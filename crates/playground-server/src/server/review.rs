//! SelfSubjectReview and access reviews. All clients are anonymous and may do everything.
//!
//! A review is answered and not stored. Must not depend on the store.

use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::body::{self, Decoded};
use super::create;
use super::query::{Query, WriteOptions, WriteVerb};
use super::request::Target;
use super::response::ApiResponse;
use super::state::State;
use super::status_error::StatusError;
use crate::kinds::{GroupResource, Kind};

/// The user and group of all clients.
const ANONYMOUS: (&str, &str) = ("system:anonymous", "system:unauthenticated");

/// Answers a review.
pub(crate) fn review(
    state: &State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
) -> Result<ApiResponse, StatusError> {
    let options = WriteOptions::read(query, WriteVerb::Create)?;
    let Decoded { mut value, warnings } = body::decode(&state.registry, kind, bytes, options.field_validation)?;
    match &*kind.kind {
        "SelfSubjectRulesReview" => {
            require(&value["spec"]["namespace"], "no namespace on request")?;
            value["spec"] = json!({});
            value["status"] = json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            });
        }
        "SelfSubjectReview" => {
            value["metadata"] = json!({"creationTimestamp": state.time()});
            value["status"] = json!({"userInfo": {"username": ANONYMOUS.0, "groups": [ANONYMOUS.1]}});
        }
        "TokenReview" => {
            require(&value["spec"]["token"], "token is required for TokenReview in authentication")?;
            value["status"] = json!({"user": {}, "error": "this server gives no tokens, and so knows none"});
        }
        access => {
            let is_local = access == "LocalSubjectAccessReview";
            if is_local {
                create::set_namespace(kind, target, &mut value)?;
            }
            let errors = check(&value, access);
            if !errors.is_empty() {
                return Err(StatusError::invalid(
                    GroupResource { resource: &kind.kind, ..kind.group_resource() },
                    "",
                    &errors,
                ));
            }
            value["status"] = json!({"allowed": true});
        }
    }
    Ok(ApiResponse::value(201, &value).with_warnings(warnings))
}

fn require(field: &Value, message: &str) -> Result<(), StatusError> {
    if field.as_str().unwrap_or_default().is_empty() { Err(StatusError::bad_request(message)) } else { Ok(()) }
}

/// The validation errors of an access review.
fn check(value: &Value, kind: &str) -> Vec<FieldError> {
    let spec = &value["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut errors = Vec::new();
    if resource.is_null() == other.is_null() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec", other.clone(), why));
    }
    let is_empty = |field: &Value| field.is_null() || *field == json!("") || *field == json!([]);
    if kind != "SelfSubjectAccessReview" && is_empty(&spec["user"]) && is_empty(&spec["groups"]) {
        errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    let is_local = kind == "LocalSubjectAccessReview";
    let mut fields = value["metadata"].as_object().into_iter().flatten();
    if fields.any(|(field, _)| !is_local || field != "namespace") {
        let why = if is_local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", value["metadata"].clone(), why));
    }
    if is_local && !resource.is_null() && resource["namespace"] != value["metadata"]["namespace"] {
        let why = "must match metadata.namespace";
        errors.push(FieldError::invalid("spec.resourceAttributes.namespace", resource["namespace"].clone(), why));
    }
    if is_local && !other.is_null() {
        let why = "disallowed on this kind of request";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", other.clone(), why));
    }
    errors
}
