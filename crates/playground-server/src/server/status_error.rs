//! Errors as `Status` objects, with the messages of kube-apiserver.
//!
//! Invariant: every one has the code, reason and message that clients act on.
//! Must not depend on how a request failed.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::kinds::GroupResource;
use muster_playground_schema::FieldError;
use muster_playground_schema::go_text::quoted;

/// An error response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusError {
    pub(crate) code: u16,
    reason: Cow<'static, str>,
    message: Box<str>,
    /// Omitted, or present and possibly empty.
    details: Option<Map<String, Value>>,
    pub(crate) retry_after_seconds: Option<u32>,
    /// Warnings that accompany the error.
    pub(crate) warnings: Box<[String]>,
    /// How a client can continue an expired list.
    continue_token: Option<Box<str>>,
}

impl StatusError {
    pub(crate) fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into().into(),
            details: None,
            retry_after_seconds: None,
            continue_token: None,
            warnings: Box::default(),
        }
    }

    pub(crate) fn with_warnings(mut self, more: Vec<String>) -> Self {
        let mut warnings = std::mem::take(&mut self.warnings).into_vec();
        warnings.extend(more);
        self.warnings = warnings.into();
        self
    }

    /// A generic error of kube-apiserver, with empty details.
    fn generic(code: u16, reason: &'static str, message: &str) -> Self {
        Self { details: Some(Map::new()), ..Self::new(code, reason, message) }
    }

    fn with_details(mut self, group_resource: GroupResource<'_>, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        for (field, text) in [("name", name), ("group", group_resource.group), ("kind", group_resource.resource)] {
            if !text.is_empty() {
                details.insert(field.to_owned(), json!(text));
            }
        }
        self
    }

    /// Adds a cause.
    pub(crate) fn with_cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        let causes = self.details.get_or_insert_default().entry("causes").or_insert_with(|| json!([]));
        let mut cause = Map::new();
        for (key, text) in [("reason", reason), ("message", &message.into()), ("field", field)] {
            if !text.is_empty() {
                cause.insert(key.to_owned(), json!(text));
            }
        }
        if let Some(causes) = causes.as_array_mut() {
            causes.push(Value::Object(cause));
        }
        self
    }

    /// Sets `Retry-After`.
    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Adds a token to continue an inconsistent list.
    pub(crate) fn continue_with(mut self, token: String) -> Self {
        self.continue_token = Some(token.into());
        self
    }

    pub(crate) fn not_found(group_resource: GroupResource<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {} not found", group_resource.qualified(), quoted(name)))
            .with_details(group_resource, name)
    }

    pub(crate) fn no_such_path() -> Self {
        Self::generic(404, "NotFound", "the server could not find the requested resource")
    }

    /// The name exists, perhaps only until the other object is deleted.
    pub(crate) fn already_exists(group_resource: GroupResource<'_>, name: &str, deleting: bool) -> Self {
        let why = if deleting { "object is being deleted: " } else { "" };
        Self::new(409, "AlreadyExists", format!("{why}{} {} already exists", group_resource.qualified(), quoted(name)))
            .with_details(group_resource, name)
    }

    pub(crate) fn conflict(group_resource: GroupResource<'_>, name: &str, why: impl Display) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {}: {why}", group_resource.qualified(), quoted(name));
        Self::new(409, "Conflict", message).with_details(group_resource, name)
    }

    /// Other managers own fields that an apply would change.
    pub(crate) fn apply_conflict(message: impl Into<String>) -> Self {
        Self::new(409, "Conflict", message)
    }

    /// The object was modified concurrently.
    pub(crate) fn modified(group_resource: GroupResource<'_>, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group_resource, name, why)
    }

    pub(crate) fn forbidden(group_resource: GroupResource<'_>, name: &str, why: impl Display) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", group_resource.qualified())
        } else {
            format!("{} {} is forbidden: {why}", group_resource.qualified(), quoted(name))
        };
        Self::new(403, "Forbidden", message).with_details(group_resource, name)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Validation failed. `group_kind` names the kind, not the resource.
    pub(crate) fn invalid(group_kind: GroupResource<'_>, name: &str, errors: &[FieldError]) -> Self {
        // kube-apiserver lists each message once.
        let mut reported = BTreeSet::new();
        let messages = errors.iter().map(ToString::to_string).filter(|text| reported.insert(text.clone()));
        let messages: Vec<String> = messages.collect();
        let all = if let [only] = &*messages { only.clone() } else { format!("[{}]", messages.join(", ")) };
        let failure =
            Self::new(422, "Invalid", format!("{} {} is invalid: {all}", group_kind.qualified(), quoted(name)));
        let failure = failure.with_details(group_kind, name);
        errors.iter().fold(failure, |failure, error| failure.with_cause(error.reason(), error.body(), &error.field))
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::generic(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn not_acceptable(offered: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", offered.join(", "));
        Self::new(406, "NotAcceptable", message)
    }

    /// An unknown response media type.
    pub(crate) fn nothing_acceptable(offered: &[&str]) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", offered.join(", "));
        Self::generic(406, "NotAcceptable", &message)
    }

    pub(crate) fn entity_too_large(why: impl Display) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
    }

    /// A patch that cannot be applied to the object.
    pub(crate) fn unprocessable() -> Self {
        Self::generic(422, "Invalid", "the server rejected our request due to an error in our request")
    }

    /// An unknown patch type.
    pub(crate) fn unknown_patch() -> Self {
        Self::generic(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    }

    /// The requested revision was compacted.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A revision that the store has not reached.
    pub(crate) fn revision_too_large(requested: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let failure = Self::new(504, "Timeout", message).retry_after(1);
        failure.with_cause("ResourceVersionTooLarge", "Too large resource version", "")
    }

    /// The body did not arrive in time.
    pub(crate) fn body_timed_out(time_max: Duration) -> Self {
        Self::new(408, "Timeout", format!("the body did not come within {} ms", time_max.as_millis()))
    }

    pub(crate) fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let failure = Self::new(429, "TooManyRequests", message);
        if retry_after_seconds > 0 { failure.retry_after(retry_after_seconds) } else { failure }
    }

    pub(crate) fn internal(message: impl Display) -> Self {
        let failure = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        failure.with_cause("", message.to_string(), "")
    }

    /// A webhook denied the request, with its own reason and details.
    pub(crate) fn denied(code: u16, reason: String, message: String, details: Option<Map<String, Value>>) -> Self {
        Self { details, ..Self::new(code, reason, message) }
    }

    /// An error that kube-apiserver returns unchanged.
    pub(crate) fn internal_plain(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// An error without a reason, which kube-apiserver has in a few places.
    pub(crate) fn without_reason(code: u16, message: impl Into<String>) -> Self {
        Self::new(code, "", message)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The Status object.
    pub(crate) fn status(&self) -> Value {
        let mut details = self.details.clone();
        if let Some(seconds) = self.retry_after_seconds {
            details.get_or_insert_default().insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = details {
            status["details"] = Value::Object(details);
        }
        status
    }
}
