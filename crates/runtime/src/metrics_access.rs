//! Authentication and authorisation of clients that read metrics, by the API server and as in kube-scheduler: a
//! TokenReview of the bearer token, then a SubjectAccessReview for the path.
//!
//! Verdicts are kept for a short time. Reviews in flight are limited, also per client, so that clients cannot use this
//! process to flood the API server. Must not depend on what is served.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use muster_listener::ThrottledLog;
use serde_json::json;
use tokio::time::{Instant, timeout};

/// As long as kube-scheduler keeps them.
const VERDICT_AGE_MAX: Duration = Duration::from_secs(10);
const VERDICTS_MAX: usize = 256;
const REVIEWS_IN_FLIGHT_MAX: usize = 16;
/// For both reviews together.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a client may not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The token is invalid, or could not be reviewed.
    Unauthorized,
    /// The user has no right to read the path.
    Forbidden { user: String, verb: String, path: String },
    /// Too many reviews are in flight.
    TooManyReviews,
    /// The API server could not say whether the user has the right.
    Failed,
}

/// What the API server has said about a request.
type Verdict = Result<(), Denial>;

/// Reviews requests for metrics.
pub(crate) struct AccessReviewer {
    client: Client,
    verdicts: Mutex<HashMap<Request, (Instant, Verdict)>>,
    /// The clients with a review in flight, each with one.
    in_flight: Mutex<HashSet<IpAddr>>,
    log: ThrottledLog,
}

/// A request of a client, without what does not matter for its verdict.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Request {
    /// Empty for an anonymous client.
    token: String,
    verb: String,
    path: String,
}

/// A review in flight; dropping it allows the next one of its client.
struct InFlight<'a> {
    reviewer: &'a AccessReviewer,
    peer: IpAddr,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        locked(&self.reviewer.in_flight).remove(&self.peer);
    }
}

impl AccessReviewer {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, verdicts: Mutex::default(), in_flight: Mutex::default(), log: ThrottledLog::default() }
    }

    /// Whether the client may make this request.
    pub(crate) async fn review(&self, peer: IpAddr, headers: &HeaderMap, verb: &str, path: &str) -> Verdict {
        let request =
            Request { token: bearer_token(headers).to_owned(), verb: verb.to_lowercase(), path: path.to_owned() };
        if let Some(verdict) = self.recent(&request) {
            return verdict;
        }
        let _in_flight = self.begin(peer)?;
        let verdict = match timeout(REVIEW_TIMEOUT, self.ask(&request)).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err((denial, error))) => return Err(self.report(denial, &error.to_string())),
            Err(_) => return Err(self.report(Denial::Failed, "no answer in time")),
        };
        self.remember(request, verdict.clone());
        verdict
    }

    /// Asks the API server. An error is not a verdict: the denial for it is not kept.
    async fn ask(&self, request: &Request) -> Result<Verdict, (Denial, kube::Error)> {
        let user = if request.token.is_empty() {
            let groups = Some(vec!["system:unauthenticated".to_owned()]);
            UserInfo { username: Some("system:anonymous".to_owned()), groups, ..UserInfo::default() }
        } else {
            let spec = TokenReviewSpec { token: request.token.clone(), ..TokenReviewSpec::default() };
            let review = TokenReview { spec, ..TokenReview::default() };
            let reviewed = Api::all(self.client.clone()).create(&PostParams::default(), &review).await;
            let status = reviewed.map_err(|error| (Denial::Unauthorized, error))?.status.unwrap_or_default();
            match status.user {
                Some(user) if status.authenticated == Some(true) => user,
                _ => return Ok(Err(Denial::Unauthorized)),
            }
        };
        let attributes = NonResourceAttributes { path: Some(request.path.clone()), verb: Some(request.verb.clone()) };
        let name = user.username.clone().unwrap_or_default();
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviewed = Api::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let status = reviewed.map_err(|error| (Denial::Failed, error))?.status.unwrap_or_default();
        let Request { verb, path, .. } = request.clone();
        Ok(if status.allowed { Ok(()) } else { Err(Denial::Forbidden { user: name, verb, path }) })
    }

    fn begin(&self, peer: IpAddr) -> Result<InFlight<'_>, Denial> {
        let mut in_flight = locked(&self.in_flight);
        if in_flight.len() >= REVIEWS_IN_FLIGHT_MAX || !in_flight.insert(peer) {
            return Err(Denial::TooManyReviews);
        }
        Ok(InFlight { reviewer: self, peer })
    }

    fn recent(&self, request: &Request) -> Option<Verdict> {
        let verdicts = locked(&self.verdicts);
        let (since, verdict) = verdicts.get(request)?;
        (since.elapsed() < VERDICT_AGE_MAX).then(|| verdict.clone())
    }

    fn remember(&self, request: Request, verdict: Verdict) {
        let mut verdicts = locked(&self.verdicts);
        verdicts.retain(|_, (since, _)| since.elapsed() < VERDICT_AGE_MAX);
        if verdicts.len() >= VERDICTS_MAX {
            let oldest = verdicts.iter().min_by_key(|(_, (since, _))| *since).map(|(request, _)| request.clone());
            oldest.map(|oldest| verdicts.remove(&oldest));
        }
        verdicts.insert(request, (Instant::now(), verdict));
    }

    fn report(&self, denial: Denial, error: &str) -> Denial {
        if let Some(suppressed) = self.log.admit() {
            tracing::warn!(error, suppressed, "the API server could not review a client of the metrics");
        }
        denial
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bearer token of a request; empty if there is none, as for an anonymous client.
fn bearer_token(headers: &HeaderMap) -> &str {
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match value.trim().split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => "",
    }
}

impl IntoResponse for Denial {
    /// The Status that an API server would answer with.
    fn into_response(self) -> Response {
        let (code, reason, message) = match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".to_owned()),
            Self::Forbidden { user, verb, path } => {
                let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
                (StatusCode::FORBIDDEN, "Forbidden", message)
            }
            Self::TooManyReviews => {
                let message = "too many clients are being authenticated, please try again later".to_owned();
                (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
            }
            Self::Failed => {
                let message = "the API server could not authorize the request".to_owned();
                (StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
            }
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code.as_u16(),
        });
        let mut response = (code, [(CONTENT_TYPE, "application/json")], status.to_string()).into_response();
        if code == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
pub(crate) mod tests;
