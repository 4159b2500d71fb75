//! What an answer of the API means for whoever sent the request.

use std::time::Duration;

use kube::core::Status;

/// What became of a write that says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// It is written; the text of the object as it is now, where that is of use.
    Written(Option<String>),
    /// The object is not there, or is another one of the same name.
    Gone,
    /// Somebody else wrote first.
    Conflict,
    /// It may work soon.
    Later {
        /// What was said.
        message: String,
        /// When the server wants to be asked again, if it says so.
        after: Option<Duration>,
    },
    /// It will not work like this.
    Refused(String),
}

impl WriteOutcome {
    /// How long the server wants to be left alone, in milliseconds.
    pub(crate) fn asked_pause_ms(&self) -> u64 {
        match self {
            Self::Later { after: Some(after), .. } => u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
            _ => 0,
        }
    }
}

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server refused it and did nothing: 400, 403, 405, 415, 422, and 429 for the sake of a disruption budget.
    Refused(String),
    /// No such object.
    Missing(String),
    /// It does not go with what is there.
    Conflict(String),
    /// The server is busy or broken and did nothing: 429, 500, 503.
    Busy(String, Option<Duration>),
    /// Nobody knows whether it was done: 504, a broken connection, no answer in time.
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
            // A budget does not say when it will allow it.
            429 if is_kept_by_a_budget(status) => Self::Refused(message),
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

fn is_kept_by_a_budget(status: &Status) -> bool {
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
