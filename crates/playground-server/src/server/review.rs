//! Questions about who a client is and what it may do. Here everybody is nobody in particular, and may do everything.
//!
//! A question is answered and not kept. It must not know the store.

use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::answer::Answer;
use super::body::{self, Read};
use super::create;
use super::failure::Failure;
use super::query::{Query, Write, WriteOptions};
use super::request::Target;
use super::state::State;
use crate::kinds::{About, Kind};

/// Who everybody is: whoever does not say who they are.
const NOBODY: (&str, &str) = ("system:anonymous", "system:unauthenticated");

/// Answers a question.
pub(crate) fn review(
    state: &State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
) -> Result<Answer, Failure> {
    let options = WriteOptions::read(query, Write::Create)?;
    let Read { mut value, warnings } = body::read(&state.registry, kind, bytes, options.unknown_fields)?;
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
            value["status"] = json!({"userInfo": {"username": NOBODY.0, "groups": [NOBODY.1]}});
        }
        "TokenReview" => {
            require(&value["spec"]["token"], "token is required for TokenReview in authentication")?;
            value["status"] = json!({"user": {}, "error": "this server gives no tokens, and so knows none"});
        }
        access => {
            let is_local = access == "LocalSubjectAccessReview";
            if is_local {
                create::place(kind, target, &mut value)?;
            }
            let errors = check(&value, access);
            if !errors.is_empty() {
                return Err(Failure::invalid(About { resource: &kind.kind, ..kind.about() }, "", &errors));
            }
            value["status"] = json!({"allowed": true});
        }
    }
    Ok(Answer::value(201, &value).with_warnings(warnings))
}

fn require(field: &Value, message: &str) -> Result<(), Failure> {
    if field.as_str().unwrap_or_default().is_empty() { Err(Failure::bad_request(message)) } else { Ok(()) }
}

/// What is wrong with a question about access.
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
