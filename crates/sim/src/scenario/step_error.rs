//! Why a scenario could not be prepared, a step not be performed, or the cluster not be read.
//!
//! Every error names the attempted operation and the server's message.

use muster_controllers::NotServed;
use muster_controllers::webhook::WebhookError;
use muster_runtime::StartError;

use super::field_error::FieldError;

/// Why an operation on the cluster failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// The server refused a request, or did not answer.
    #[error("{attempt}: {}", server_message(.error))]
    Request { attempt: String, error: kube::Error },
    /// The same, where the server's message says enough.
    #[error("{}", server_message(.0))]
    Api(#[from] kube::Error),
    #[error("the cluster serves no {kind} of {api_version}: {}", server_message(.error))]
    UnknownKind { api_version: String, kind: String, error: kube::Error },
    #[error("apiVersion {0:?}")]
    ApiVersion(String),
    #[error("the manifest cannot be read: {0}")]
    Manifest(serde_json::Error),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("Node {name}: {error}")]
    Node { name: String, error: FieldError },
    #[error("Muster does not start: {0}")]
    Start(#[from] StartError),
    #[error(transparent)]
    Controllers(#[from] NotServed),
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// The cluster is not in a state in which the step can be performed.
    #[error("{0}")]
    Precondition(String),
    #[error("{0}")]
    TimedOut(String),
}

impl StepError {
    pub(super) fn request(attempt: impl Into<String>, error: kube::Error) -> Self {
        StepError::Request { attempt: attempt.into(), error }
    }

    /// Whether the API server refused the request.
    pub(super) fn is_of_server(&self) -> bool {
        matches!(self, Self::Request { error: kube::Error::Api(_), .. } | Self::Api(kube::Error::Api(_)))
    }
}

/// The server's error message.
fn server_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}
