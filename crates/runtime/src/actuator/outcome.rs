//! What a response of the API server means for the sender of the request.

use std::time::Duration;

use kube::core::Status;

/// The outcome of a status write or an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// It is written; with the text of the object as it is now, where it is needed.
    Written(Option<String>),
    /// The object does not exist, or another one has its name.
    Gone,
    /// Another client wrote first.
    Conflict,
    /// A retry may succeed.
    Later {
        /// The error message.
        message: String,
        /// The server's `Retry-After`, if there is one.
        after: Option<Duration>,
    },
    /// A retry of the same write would fail again.
    Refused(String),
}

impl WriteOutcome {
    /// The server's `Retry-After`, in milliseconds.
    pub(crate) fn retry_after_ms(&self) -> u64 {
        match self {
            Self::Later { after: Some(after), .. } => u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
            _ => 0,
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server rejected it and did nothing: 400, 403, 405, 415, 422, and 429 because of a disruption budget.
    Refused(String),
    /// The object does not exist.
    Missing(String),
    /// It conflicts with the current state of the object.
    Conflict(String),
    /// The server is overloaded or failing: 429, 500, 502, 503. It probably did nothing.
    Busy(String, Option<Duration>),
    /// It is unknown whether the request took effect: 504, a broken connection, a timeout.
    Unknown(String),
}

impl Failure {
    pub(super) fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            other => Self::Unknown(chain(other)),
        }
    }

    fn of_status(status: &Status) -> Self {
        let message = if status.message.is_empty() { status.reason.clone() } else { status.message.clone() };
        match status.code {
            404 => Self::Missing(message),
            409 => Self::Conflict(message),
            // The response does not contain a time at which the budget will allow it.
            429 if is_blocked_by_budget(status) => Self::Refused(message),
            429 | 500 | 502 | 503 => {
                let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                Self::Busy(message, (seconds > 0).then(|| Duration::from_secs(u64::from(seconds))))
            }
            400..=499 => Self::Refused(message),
            _ => Self::Unknown(message),
        }
    }

    pub(super) fn message(&self) -> &str {
        match self {
            Self::Refused(text)
            | Self::Missing(text)
            | Self::Conflict(text)
            | Self::Busy(text, _)
            | Self::Unknown(text) => text,
        }
    }
}

impl From<Failure> for WriteOutcome {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(message) => Self::Refused(message),
            Failure::Missing(_) => Self::Gone,
            Failure::Conflict(_) => Self::Conflict,
            Failure::Busy(message, after) => Self::Later { message, after },
            Failure::Unknown(message) => Self::Later { message, after: None },
        }
    }
}

fn is_blocked_by_budget(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "DisruptionBudget")
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}
