//! The answers that are not what was asked for, as Status objects in the words of kube-apiserver.
//!
//! Invariant: every one has the code, reason and message that clients act on.
//! It must not know how a request came to fail.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::kinds::About;
use muster_playground_schema::FieldError;
use muster_playground_schema::go_text::quoted;

/// A refused or failed request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    reason: Cow<'static, str>,
    message: Box<str>,
    /// Left out, or there and perhaps empty.
    details: Option<Map<String, Value>>,
    pub(crate) retry_after_seconds: Option<u32>,
    /// What the client is told beside the failure.
    pub(crate) warnings: Box<[String]>,
    /// How to go on with a list all the same.
    continue_token: Option<Box<str>>,
}

impl Failure {
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

    /// What the real server answers in general words, with details that say nothing.
    fn general(code: u16, reason: &'static str, message: &str) -> Self {
        Self { details: Some(Map::new()), ..Self::new(code, reason, message) }
    }

    fn about(mut self, about: About<'_>, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        for (field, text) in [("name", name), ("group", about.group), ("kind", about.resource)] {
            if !text.is_empty() {
                details.insert(field.to_owned(), json!(text));
            }
        }
        self
    }

    /// Adds a cause.
    pub(crate) fn because(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
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

    /// Asks the client to come back later.
    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Tells how to go on with a list all the same.
    pub(crate) fn continue_with(mut self, token: String) -> Self {
        self.continue_token = Some(token.into());
        self
    }

    pub(crate) fn not_found(about: About<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {} not found", about.qualified(), quoted(name))).about(about, name)
    }

    pub(crate) fn no_such_path() -> Self {
        Self::general(404, "NotFound", "the server could not find the requested resource")
    }

    /// The name is taken, perhaps only for as long as the other object is being deleted.
    pub(crate) fn already_exists(about: About<'_>, name: &str, deleting: bool) -> Self {
        let why = if deleting { "object is being deleted: " } else { "" };
        Self::new(409, "AlreadyExists", format!("{why}{} {} already exists", about.qualified(), quoted(name)))
            .about(about, name)
    }

    pub(crate) fn conflict(about: About<'_>, name: &str, why: impl Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {}: {why}", about.qualified(), quoted(name));
        Self::new(409, "Conflict", message).about(about, name)
    }

    /// Others own what an apply would change.
    pub(crate) fn owned_by_others(message: impl Into<String>) -> Self {
        Self::new(409, "Conflict", message)
    }

    /// Somebody else was faster.
    pub(crate) fn modified(about: About<'_>, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(about, name, why)
    }

    pub(crate) fn forbidden(about: About<'_>, name: &str, why: impl Display) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", about.qualified())
        } else {
            format!("{} {} is forbidden: {why}", about.qualified(), quoted(name))
        };
        Self::new(403, "Forbidden", message).about(about, name)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Rules of the kind are broken. `about` names the kind, not the resource.
    pub(crate) fn invalid(about: About<'_>, name: &str, errors: &[FieldError]) -> Self {
        // The real server names each text once.
        let mut told = BTreeSet::new();
        let texts = errors.iter().map(ToString::to_string).filter(|text| told.insert(text.clone()));
        let texts: Vec<String> = texts.collect();
        let all = if let [only] = &*texts { only.clone() } else { format!("[{}]", texts.join(", ")) };
        let failure = Self::new(422, "Invalid", format!("{} {} is invalid: {all}", about.qualified(), quoted(name)));
        let failure = failure.about(about, name);
        errors.iter().fold(failure, |failure, error| failure.because(error.reason(), error.body(), &error.field))
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::general(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
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

    /// A type of answer that the server has never heard of.
    pub(crate) fn nothing_acceptable(offered: &[&str]) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", offered.join(", "));
        Self::general(406, "NotAcceptable", &message)
    }

    pub(crate) fn entity_too_large(why: impl Display) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
    }

    /// A patch that cannot be applied to the object.
    pub(crate) fn unprocessable() -> Self {
        Self::general(422, "Invalid", "the server rejected our request due to an error in our request")
    }

    /// A kind of patch that no resource knows.
    pub(crate) fn unknown_patch() -> Self {
        Self::general(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    }

    /// The past that was asked for is gone.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A revision that the store has not reached.
    pub(crate) fn revision_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let failure = Self::new(504, "Timeout", message).retry_after(1);
        failure.because("ResourceVersionTooLarge", "Too large resource version", "")
    }

    /// A body that did not come in time.
    pub(crate) fn body_timed_out(time_max: Duration) -> Self {
        Self::new(408, "Timeout", format!("the body did not come within {} ms", time_max.as_millis()))
    }

    pub(crate) fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let failure = Self::new(429, "TooManyRequests", message);
        if retry_after_seconds > 0 { failure.retry_after(retry_after_seconds) } else { failure }
    }

    pub(crate) fn internal(message: impl Display) -> Self {
        let failure = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        failure.because("", message.to_string(), "")
    }

    /// Somebody outside has refused the request, with a reason and details of their own.
    pub(crate) fn denied(code: u16, reason: String, message: String, details: Option<Map<String, Value>>) -> Self {
        Self { details, ..Self::new(code, reason, message) }
    }

    /// An error that the real server passes on as it is.
    pub(crate) fn internal_plain(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// A failure without a reason, which the real server has in a few places.
    pub(crate) fn plain(code: u16, message: impl Into<String>) -> Self {
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
