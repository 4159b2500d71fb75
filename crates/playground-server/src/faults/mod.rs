//! Seeded fault injection between a client and any API server.
//!
//! The faults of a network and of a busy control plane: delays, requests lost before and after they take effect,
//! errors, conflicts, throttling; watches that are cut, expire, repeat an event or deliver it late. The server itself
//! is not affected: behind this layer its state is always consistent.
//! Invariant: the same seed and the same order of requests give the same faults. Must not depend on kinds.

mod plan;
mod stream;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response};
use muster_determinism::random::Random;
use serde_json::{Value, json};
use tower::{BoxError, Layer, Service};

use crate::server::Server;

pub use plan::{Fault, Plan, ServerError, StreamFault};

/// A source of faults. Clones share it.
#[derive(Clone, Debug)]
pub struct Faults {
    state: Arc<Mutex<FaultState>>,
}

#[derive(Debug)]
struct FaultState {
    random: Random,
    plan: Plan,
    /// Faults scheduled for specific requests.
    scheduled: VecDeque<(Method, String, Fault)>,
    /// Faults scheduled for events of specific watches.
    scheduled_events: VecDeque<(String, StreamFault)>,
    log: Vec<String>,
}

/// The most faults that are kept for the report.
const LOG_LINES_MAX: usize = 10_000;

impl Faults {
    /// Faults with the probabilities of `plan`.
    pub fn new(seed: u64, plan: Plan) -> Self {
        let state = FaultState {
            random: Random::new(seed),
            plan,
            scheduled: VecDeque::new(),
            scheduled_events: VecDeque::new(),
            log: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// No faults except scheduled ones.
    pub fn none() -> Self {
        Self::new(0, Plan::default())
    }

    /// Replaces the probabilities.
    pub fn set_plan(&self, plan: Plan) {
        self.lock().plan = plan;
    }

    /// Schedules a fault for the next request with this method whose path contains `path`, in the order of the calls.
    pub fn schedule(&self, method: Method, path: &str, fault: Fault) {
        self.lock().scheduled.push_back((method, path.to_owned(), fault));
    }

    /// Schedules a fault for the next event of a watch whose path contains `path`.
    pub fn schedule_event(&self, path: &str, fault: StreamFault) {
        self.lock().scheduled_events.push_back((path.to_owned(), fault));
    }

    /// The number of scheduled faults that have not been injected yet.
    pub fn pending(&self) -> usize {
        let state = self.lock();
        state.scheduled.len() + state.scheduled_events.len()
    }

    /// The injected faults so far, one line each.
    pub fn report(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    fn lock(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, request: &http::request::Parts) -> Option<Fault> {
        let mut state = self.lock();
        let fault = state.draw(request)?;
        state.record(format!("{} {}: {fault:?}", request.method, request.uri));
        Some(fault)
    }

    fn draw_for_event(&self, path: &str) -> Option<StreamFault> {
        let mut state = self.lock();
        let scheduled = state.scheduled_events.iter().position(|(part, _)| path.contains(part.as_str()));
        let fault = if let Some((_, fault)) = scheduled.and_then(|index| state.scheduled_events.remove(index)) {
            fault
        } else {
            let FaultState { random, plan, .. } = &mut *state;
            plan.draw_for_event(random)?
        };
        state.record(format!("event of {path}: {fault:?}"));
        Some(fault)
    }
}

impl FaultState {
    fn draw(&mut self, request: &http::request::Parts) -> Option<Fault> {
        let path = request.uri.path();
        let scheduled = self
            .scheduled
            .iter()
            .position(|(method, part, _)| *method == request.method && path.contains(part.as_str()));
        if let Some((_, _, fault)) = scheduled.and_then(|index| self.scheduled.remove(index)) {
            return Some(fault);
        }
        let changes_what_is_there = matches!(request.method, Method::PUT | Method::PATCH) || path.ends_with("/binding");
        let query = request.uri.query().unwrap_or_default();
        let past =
            query.contains("continue=") || (query.contains("resourceVersion=") && !query.contains("resourceVersion=0"));
        self.plan.draw(&mut self.random, changes_what_is_there, past)
    }

    fn record(&mut self, line: String) {
        if self.log.len() < LOG_LINES_MAX {
            self.log.push(line);
        }
    }
}

impl Faults {
    /// Wraps a service that responds as an API server does, such as the transport of a client:
    /// `ClientBuilder::try_from(config)?.with_layer(&faults.layer()).build()`.
    pub fn layer(&self) -> FaultLayer {
        FaultLayer { faults: self.clone() }
    }
}

impl Server {
    /// A client whose requests and watches are subject to faults.
    pub fn client_with(&self, faults: &Faults) -> kube::Client {
        kube::Client::new(faults.layer().layer(self.clone()), "default")
    }
}

/// A tower layer that injects faults into requests and watches.
#[derive(Clone, Debug)]
pub struct FaultLayer {
    faults: Faults,
}

impl<S> Layer<S> for FaultLayer {
    type Service = Faulty<S>;

    fn layer(&self, service: S) -> Faulty<S> {
        Faulty { service: Arc::new(tokio::sync::Mutex::new(service)), faults: self.faults.clone() }
    }
}

/// A service with fault injection. Its errors are those of the service and lost connections.
#[derive(Debug)]
pub struct Faulty<S> {
    /// Shared, because a delayed request reaches the service after later ones, and not every service can be cloned.
    service: Arc<tokio::sync::Mutex<S>>,
    faults: Faults,
}

impl<S> Clone for Faulty<S> {
    fn clone(&self) -> Self {
        Self { service: Arc::clone(&self.service), faults: self.faults.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for Faulty<S>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Send + 'static,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Readiness is checked when the request reaches the service.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let faulty = self.clone();
        Box::pin(async move { faulty.answer(request).await })
    }
}

impl<S> Faulty<S> {
    async fn answer<B, R>(self, request: Request<B>) -> Result<Response<Body>, BoxError>
    where
        S: Service<Request<B>, Response = Response<R>>,
        S::Error: Into<BoxError>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let watches = parts.uri.path().contains("/watch/")
            || parts.uri.query().is_some_and(|query| query.contains("watch=true") || query.contains("watch=1"));
        let path = parts.uri.path().to_owned();
        let fault = self.faults.draw(&parts);
        let request = Request::from_parts(parts, body);
        let response = match fault {
            None => self.forward(request).await?,
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                self.forward(request).await?
            }
            Some(Fault::ResponseDelayed(time)) => {
                let response = self.forward(request).await;
                tokio::time::sleep(time).await;
                response?
            }
            Some(Fault::Lost) => return Err(lost().into()),
            Some(Fault::ResponseLost) => {
                self.forward(request).await?;
                return Err(lost().into());
            }
            Some(Fault::ResponseTimedOut) => {
                self.forward(request).await?;
                error_response(504, "Timeout", "Timeout: request did not complete within the allowed duration", None)
            }
            Some(Fault::Forbidden) => error_response(403, "Forbidden", "an injected refusal", None),
            Some(Fault::Invalid) => error_response(422, "Invalid", "an injected refusal", None),
            Some(Fault::Failed(error)) => error_response(error.code(), error.reason(), "an injected failure", None),
            Some(Fault::Conflict) => error_response(409, "Conflict", CONFLICT, None),
            Some(Fault::Throttled { retry_after_seconds }) => {
                error_response(429, "TooManyRequests", THROTTLED, Some(retry_after_seconds))
            }
            Some(Fault::Expired) => {
                error_response(410, "Expired", "The resourceVersion for the provided list is too old.", None)
            }
        };
        if watches && response.status() == http::StatusCode::OK {
            Ok(stream::with_faults(response, self.faults, path))
        } else {
            Ok(response)
        }
    }

    /// Forwards a request. The service is locked until it has accepted the request, not until it has responded.
    async fn forward<B, R>(&self, request: Request<B>) -> Result<Response<Body>, BoxError>
    where
        S: Service<Request<B>, Response = Response<R>>,
        S::Error: Into<BoxError>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let response = {
            let mut service = self.service.lock().await;
            poll_fn(|context| service.poll_ready(context)).await.map_err(Into::into)?;
            service.call(request)
        };
        Ok(response.await.map_err(Into::into)?.map(Body::new))
    }
}

const CONFLICT: &str = "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again";
const THROTTLED: &str =
    "Too many requests: the server has received too many requests and has asked us to try again later";

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "an injected loss of the connection")
}

fn status(code: u16, reason: &str, message: &str, retry_after_seconds: Option<u32>) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    if let Some(seconds) = retry_after_seconds {
        status["details"] = json!({"retryAfterSeconds": seconds});
    }
    status
}

fn error_response(code: u16, reason: &str, message: &str, retry_after_seconds: Option<u32>) -> Response<Body> {
    let status = status(code, reason, message, retry_after_seconds);
    let mut response = Response::builder().status(code).header(http::header::CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after_seconds {
        response = response.header(http::header::RETRY_AFTER, seconds);
    }
    response.body(Body::from(status.to_string())).expect("a code and two headers make a response")
}

/// A random delay of up to `most`, including none.
fn random_delay(random: &mut Random, most: Duration) -> Duration {
    let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX).max(1);
    Duration::from_micros(random.below(most) + 1)
}
