//! Questions about who a client is and what it may do. Here everybody is nobody in particular, and may do everything.
//!
//! A question is answered and not kept. It must not know the store.

use serde_json::{Value, json};

use super::answer::Answer;
use super::body::{self, Read};
use super::failure::{About, Failure};
use super::query::{Query, Write, WriteOptions};
use super::state::State;
use crate::kinds::Kind;
use crate::schema::FieldError;

/// Who everybody is: whoever does not say who they are.
const NOBODY: (&str, &str) = ("system:anonymous", "system:unauthenticated");

/// Answers a question.
pub(crate) fn review(state: &State, kind: &Kind, query: &Query, bytes: &[u8]) -> Result<Answer, Failure> {
    let options = WriteOptions::read(query, Write::Create)?;
    let Read { mut value, warnings } = body::read(&state.registry, kind, bytes, options.unknown_fields)?;
    let about = About { resource: &kind.kind, ..kind.about() };
    match &*kind.kind {
        "SelfSubjectAccessReview" | "SubjectAccessReview" => {
            let errors = check(&value, *kind.kind == *"SubjectAccessReview");
            if !errors.is_empty() {
                return Err(Failure::invalid(about, "", &errors));
            }
            value["status"] = json!({"allowed": true});
        }
        "SelfSubjectRulesReview" => {
            if value["spec"]["namespace"].as_str().unwrap_or_default().is_empty() {
                return Err(Failure::bad_request("no namespace on request"));
            }
            value["spec"] = json!({});
            value["status"] = json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            });
        }
        _ => {
            value["metadata"] = json!({"creationTimestamp": state.time()});
            value["status"] = json!({"userInfo": {"username": NOBODY.0, "groups": [NOBODY.1]}});
        }
    }
    Ok(Answer::value(201, &value).with_warnings(warnings))
}

fn check(value: &Value, names_somebody: bool) -> Vec<FieldError> {
    let spec = &value["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut errors = Vec::new();
    if resource.is_null() == other.is_null() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec", other.clone(), why));
    }
    let is_empty = |field: &Value| field.is_null() || *field == json!("") || *field == json!([]);
    if names_somebody && is_empty(&spec["user"]) && is_empty(&spec["groups"]) {
        errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    let is_named = value["metadata"].as_object().is_some_and(|metadata| !metadata.is_empty());
    if is_named {
        errors.push(FieldError::invalid("metadata", value["metadata"].clone(), "must be empty"));
    }
    errors
}
