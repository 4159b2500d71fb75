//! What the webhook serves: admission reviews, within the limits of its listener.
//!
//! Must not depend on where certificates come from, or on the content of a review beyond its envelope.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use muster_listener::{Limits, ThrottledLog};
use serde_json::Value;

use super::review::{Review, Routes};

/// An API server sends a review on a connection of its own if all others are in use: one for each of the writes that it
/// processes at a time, by default at most 200 (`--max-mutating-requests-inflight`).
pub(super) const LIMITS: Limits = Limits {
    // Together with the other listeners clearly less than 1024, the usual limit of open files.
    connections_max: 512,
    connections_per_peer_max: 256,
    header_deadline: Duration::from_secs(10),
    // Less than the `timeoutSeconds` of the webhook configuration, so that the API server gets an answer.
    body_deadline: Duration::from_secs(4),
    answer_deadline: Duration::from_secs(30),
    // Longer than API servers keep an idle connection (90 s), so that they close it first: otherwise a review could be
    // sent on a closing connection.
    idle_deadline: Duration::from_secs(180),
    stop_deadline: Duration::from_secs(10),
    // The largest request of an API server.
    body_bytes_max: 3 << 20,
    bodies_bytes_max: 64 << 20,
};

/// The router for all paths.
pub(super) fn router(routes: &Routes) -> Router {
    let log = Arc::new(ThrottledLog::default());
    let mut router = Router::new().route("/readyz", get(|| async { "ok" }));
    for (path, review) in routes.iter() {
        let (review, log) = (Arc::clone(review), Arc::clone(&log));
        router = router.route(path, post(move |body: Bytes| async move { answer(path, &review, &log, &body) }));
    }
    // The listener has limited the body.
    router.layer(DefaultBodyLimit::disable())
}

fn answer(path: &str, review: &Review, log: &ThrottledLog, body: &[u8]) -> Response {
    match read_envelope(body) {
        Ok(request) => ([(CONTENT_TYPE, "application/json")], review(request).to_string()).into_response(),
        Err(reason) => {
            if let Some(suppressed) = log.admit() {
                tracing::warn!(path, reason, suppressed, "a review request was rejected");
            }
            (StatusCode::BAD_REQUEST, format!("{path}: {reason}\n")).into_response()
        }
    }
}

/// Checks that a review has its kind, and a request with a UID, which the response must repeat.
fn read_envelope(body: &[u8]) -> Result<Value, String> {
    let review: Value = serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    if review["kind"] != "AdmissionReview" {
        return Err(format!("kind: {}: not \"AdmissionReview\"", shortened(&review["kind"])));
    }
    match review["request"]["uid"].as_str() {
        Some(uid) if !uid.is_empty() => Ok(review),
        _ => Err(format!("AdmissionReview: request.uid: {}: not a UID", shortened(&review["request"]["uid"]))),
    }
}

/// A value for a message, of which a client must not determine the length.
fn shortened(value: &Value) -> String {
    const CHARS_MAX: usize = 100;
    let text = value.to_string();
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
