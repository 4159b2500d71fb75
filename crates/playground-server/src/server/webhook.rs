//! A mutating webhook as an in-process function.
//!
//! Turns a write into an AdmissionReview, and its response into a changed object, a denial or warnings, with the
//! messages of kube-apiserver. Must not depend on what the webhook does, nor on where in a write it is called.

use std::fmt::Display;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_playground_schema::go_text::quoted;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::state::State;
use super::status_error::StatusError;
use super::{body, json_patch, json_text, managed_fields};
use crate::kinds::Kind;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// A write that a webhook can match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionOperation {
    /// POST, and any other write that creates an object.
    Create,
    /// PUT, and any PATCH of an existing object.
    Update,
}

impl AdmissionOperation {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
        }
    }
}

/// Answers an AdmissionReview.
type Respond = dyn Fn(Value) -> Value + Send + Sync;

/// A function that the server calls for writes, as kube-apiserver calls a mutating webhook.
///
/// It receives an `admission.k8s.io/v1` AdmissionReview and returns one. It is called after defaulting and built-in
/// admission, before validation, for creates and updates of objects: not for subresources, not for deletes, and not for
/// writes of the server itself. The changed object passes through built-in admission and validation like any other.
///
/// It runs while the server is locked, so it must be a pure function: it must neither block nor call the server, and if
/// it panics the server stays unusable.
#[derive(Clone)]
pub struct Admission {
    name: Arc<str>,
    rules: Vec<Rule>,
    respond: Arc<Respond>,
}

#[derive(Clone, Debug)]
struct Rule {
    group: String,
    plural: String,
    operations: Vec<AdmissionOperation>,
}

impl Admission {
    /// A webhook with this name in error messages. It matches nothing yet.
    pub fn new(name: &str, respond: impl Fn(Value) -> Value + Send + Sync + 'static) -> Self {
        Self { name: name.into(), rules: Vec::new(), respond: Arc::new(respond) }
    }

    /// Adds a rule: these operations on a resource, in any version.
    #[must_use]
    pub fn about(mut self, group: &str, plural: &str, operations: &[AdmissionOperation]) -> Self {
        let (group, plural) = (group.to_owned(), plural.to_owned());
        self.rules.push(Rule { group, plural, operations: operations.to_vec() });
        self
    }

    /// Adds rules as a MutatingWebhookConfiguration writes them: group, version and plural of a resource, and the names
    /// of the operations.
    #[must_use]
    pub fn about_all(self, rules: &[([&str; 3], &[&str])]) -> Self {
        rules.iter().fold(self, |webhook, ([group, _, plural], operations)| {
            let both = [AdmissionOperation::Create, AdmissionOperation::Update];
            let operations: Vec<_> = both.into_iter().filter(|one| operations.contains(&one.name())).collect();
            webhook.about(group, plural, &operations)
        })
    }

    fn matches(&self, kind: &Kind, operation: AdmissionOperation) -> bool {
        self.rules.iter().any(|rule| kind.is(&rule.group, &rule.plural) && rule.operations.contains(&operation))
    }

    /// The webhook could not be called, or its response is invalid.
    fn call_error(&self, why: impl Display) -> StatusError {
        StatusError::internal(format!("failed calling webhook {}: {why}", quoted(&self.name)))
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").field("name", &self.name).field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// A write that the webhook is called for.
#[derive(Clone, Copy)]
pub(crate) struct WebhookRequest<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) operation: AdmissionOperation,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The object to be replaced, as it is stored.
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
}

/// The result of a webhook that allows a write.
#[derive(Debug)]
pub(crate) struct WebhookResult {
    /// The object after the webhook's patch, if there was one.
    pub(crate) changed: Option<Value>,
    pub(crate) warnings: Vec<String>,
}

/// The webhook that matches a write, if there is one.
pub(crate) fn matching(state: &State, kind: &Kind, operation: AdmissionOperation) -> Option<Admission> {
    state.webhook.as_ref().filter(|webhook| webhook.matches(kind, operation)).cloned()
}

/// Calls a webhook for an object, which is decoded again if the webhook changes it.
pub(crate) fn call(
    webhook: &Admission,
    state: &mut State,
    request: WebhookRequest<'_>,
    value: &Value,
) -> Result<WebhookResult, StatusError> {
    let uid = state.random.uid();
    let shown = request.kind.show(value.clone());
    let response = ValidResponse::read(webhook, (webhook.respond)(request.review(&uid, &shown)), &uid)?;
    if !response.allowed {
        return Err(denied(webhook, response.status.unwrap_or_default()).with_warnings(response.warnings));
    }
    let changed = match response.patch {
        Some(patch) => Some(
            apply_patch(webhook, state, request.kind, shown, &patch)
                .map_err(|failure| failure.with_warnings(response.warnings.clone()))?,
        ),
        None => None,
    };
    Ok(WebhookResult { changed, warnings: response.warnings })
}

impl WebhookRequest<'_> {
    /// The review, without the options of the request.
    fn review(&self, uid: &str, object: &Value) -> Value {
        let kind = self.kind;
        let of_kind = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let of_resource = json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
        let mut request = json!({
            "uid": uid,
            "kind": of_kind, "resource": of_resource, "requestKind": of_kind, "requestResource": of_resource,
            "operation": self.operation.name(),
            "userInfo": {"username": "system:anonymous", "groups": ["system:unauthenticated"]},
            "object": object,
            "oldObject": self.old.map(|old| kind.show(old.clone())),
            "dryRun": self.dry_run,
        });
        for (field, text) in [("name", self.name), ("namespace", self.namespace)] {
            if !text.is_empty() {
                request[field] = json!(text);
            }
        }
        json!({"apiVersion": API_VERSION, "kind": KIND, "request": request})
    }
}

/// The JSON form of the response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse {
    api_version: Option<String>,
    kind: Option<String>,
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: Option<String>,
    allowed: Option<bool>,
    status: Option<Status>,
    patch: Option<String>,
    patch_type: Option<String>,
    warnings: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
struct Status {
    code: Option<u16>,
    reason: Option<String>,
    message: Option<String>,
    details: Option<Map<String, Value>>,
}

/// A valid response.
struct ValidResponse {
    allowed: bool,
    status: Option<Status>,
    /// A patch with at least one operation.
    patch: Option<Value>,
    warnings: Vec<String>,
}

impl ValidResponse {
    fn read(webhook: &Admission, response: Value, uid: &str) -> Result<Self, StatusError> {
        let uncalled = |why: String| webhook.call_error(format!("failed to call webhook: {why}"));
        let invalid = |why: String| webhook.call_error(format!("received invalid webhook response: {why}"));
        let written: ReviewResponse = serde_json::from_value(response).map_err(|error| uncalled(error.to_string()))?;
        let response = written.response.ok_or_else(|| invalid("webhook response was absent".to_owned()))?;
        let own = response.uid.unwrap_or_default();
        if *own != *uid {
            return Err(invalid(format!("expected response.uid={}, got {}", quoted(uid), quoted(&own))));
        }
        let (version, kind) = (written.api_version.unwrap_or_default(), written.kind.unwrap_or_default());
        if (&*version, &*kind) != (API_VERSION, KIND) {
            let why = format!("expected webhook response of {API_VERSION}, Kind={KIND}, got {version}, Kind={kind}");
            return Err(invalid(why));
        }
        let patch = STANDARD.decode(response.patch.unwrap_or_default()).map_err(|error| uncalled(error.to_string()))?;
        match &response.patch_type {
            None if !patch.is_empty() => {
                return Err(invalid("webhook returned response.patch but not response.patchType".to_owned()));
            }
            Some(_) if patch.is_empty() => {
                return Err(invalid("webhook returned response.patchType but not response.patch".to_owned()));
            }
            Some(kind) if kind.is_empty() => {
                return Err(invalid("webhook returned invalid response.patchType of \"\"".to_owned()));
            }
            _ => {}
        }
        let allowed = response.allowed.unwrap_or_default();
        // The patch of a denied write is ignored.
        let patch = if allowed && !patch.is_empty() {
            operations(webhook, &patch, &response.patch_type.unwrap_or_default())?
        } else {
            None
        };
        Ok(Self { allowed, status: response.status, patch, warnings: response.warnings.unwrap_or_default() })
    }
}

/// The operations of a patch, if there are any.
fn operations(webhook: &Admission, patch: &[u8], kind: &str) -> Result<Option<Value>, StatusError> {
    let undecodable =
        |why: &dyn Display| webhook.call_error(format!("received undecodable patch in webhook response: {why}"));
    let (patch, _) = json_text::parse(patch).map_err(|error| undecodable(&error))?;
    if let Some(why) = json_patch::decode_error(&patch) {
        return Err(undecodable(&why));
    }
    if patch.as_array().is_none_or(Vec::is_empty) {
        return Ok(None);
    }
    if kind != "JSONPatch" {
        return Err(webhook.call_error(format!("unsupported patch type {}", quoted(kind))));
    }
    Ok(Some(patch))
}

/// The error of a write that the webhook denies.
fn denied(webhook: &Admission, status: Status) -> StatusError {
    let (reason, message) = (status.reason.unwrap_or_default(), status.message.unwrap_or_default());
    let why = match [&message, &reason].into_iter().find(|text| !text.is_empty()) {
        Some(why) => format!(": {why}"),
        None => " without explanation".to_owned(),
    };
    let message = format!("admission webhook {} denied the request{why}", quoted(&webhook.name));
    // A denial is never a success, no matter which code it has.
    StatusError::denied(status.code.unwrap_or_default().max(400), reason, message, status.details)
}

/// An object after a webhook's patch, with defaults. Its `managedFields` are unchanged: fields changed by a webhook
/// have no manager.
fn apply_patch(
    webhook: &Admission,
    state: &State,
    kind: &Kind,
    mut object: Value,
    patch: &Value,
) -> Result<Value, StatusError> {
    let managed = object["metadata"].get("managedFields").cloned();
    // kube-apiserver uses the same lenient library here.
    json_patch::apply(&mut object, patch).map_err(|_| {
        StatusError::internal(format!("the patch of webhook {} does not apply to the object", quoted(&webhook.name)))
    })?;
    if !object["metadata"].is_object() {
        return Err(StatusError::internal(format!("webhook {} has left no metadata", quoted(&webhook.name))));
    }
    managed_fields::take(&mut object);
    body::check_type_meta(&state.registry, kind, &mut object, &[])
        .map_err(|failure| StatusError::internal(failure.message()))?;
    let (mut value, _) = body::decode_value(kind, object, &[]).map_err(StatusError::internal)?;
    managed_fields::put(&mut value, managed);
    kind.set_defaults(&mut value);
    Ok(value)
}
