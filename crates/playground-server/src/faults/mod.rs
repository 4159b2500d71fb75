//! Faults between a client and a server, from a seed: the playground's own, or any other.
//!
//! What a network and a busy control plane do to a client: delay, loss before and after the effect, errors, conflicts,
//! throttling; watches that are cut, expire, repeat an event or tell it late. The server itself is never touched:
//! behind this layer its state is always true.
//! Invariant: one seed, one order of requests, one run of faults. It must not know kinds.

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
    dice: Arc<Mutex<Dice>>,
}

#[derive(Debug)]
struct Dice {
    random: Random,
    plan: Plan,
    /// Faults that were ordered for certain requests.
    ordered: VecDeque<(Method, String, Fault)>,
    /// Faults that were ordered for events of certain watches.
    ordered_events: VecDeque<(String, StreamFault)>,
    told: Vec<String>,
}

/// The most faults that are remembered for a report.
const TOLD_MAX: usize = 10_000;

impl Faults {
    /// Faults that come with the chances of `plan`.
    pub fn new(seed: u64, plan: Plan) -> Self {
        let dice = Dice {
            random: Random::new(seed),
            plan,
            ordered: VecDeque::new(),
            ordered_events: VecDeque::new(),
            told: Vec::new(),
        };
        Self { dice: Arc::new(Mutex::new(dice)) }
    }

    /// No faults but those that are ordered.
    pub fn none() -> Self {
        Self::new(0, Plan::default())
    }

    /// Other chances from now on.
    pub fn set_plan(&self, plan: Plan) {
        self.dice().plan = plan;
    }

    /// The next request of this method whose path contains `path` meets this fault. Orders are met in their order.
    pub fn order(&self, method: Method, path: &str, fault: Fault) {
        self.dice().ordered.push_back((method, path.to_owned(), fault));
    }

    /// The next event of a watch whose path contains `path` meets this fault.
    pub fn order_event(&self, path: &str, fault: StreamFault) {
        self.dice().ordered_events.push_back((path.to_owned(), fault));
    }

    /// How many ordered faults nothing has met yet.
    pub fn unmet(&self) -> usize {
        let dice = self.dice();
        dice.ordered.len() + dice.ordered_events.len()
    }

    /// What happened so far, one line for each fault.
    pub fn report(&self) -> Vec<String> {
        self.dice().told.clone()
    }

    fn dice(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, request: &http::request::Parts) -> Option<Fault> {
        let mut dice = self.dice();
        let fault = dice.draw(request)?;
        dice.tell(format!("{} {}: {fault:?}", request.method, request.uri));
        Some(fault)
    }

    fn draw_for_event(&self, path: &str) -> Option<StreamFault> {
        let mut dice = self.dice();
        let ordered = dice.ordered_events.iter().position(|(part, _)| path.contains(part.as_str()));
        let fault = if let Some((_, fault)) = ordered.and_then(|index| dice.ordered_events.remove(index)) {
            fault
        } else {
            let Dice { random, plan, .. } = &mut *dice;
            plan.draw_for_event(random)?
        };
        dice.tell(format!("event of {path}: {fault:?}"));
        Some(fault)
    }
}

impl Dice {
    fn draw(&mut self, request: &http::request::Parts) -> Option<Fault> {
        let path = request.uri.path();
        let ordered =
            self.ordered.iter().position(|(method, part, _)| *method == request.method && path.contains(part.as_str()));
        if let Some((_, _, fault)) = ordered.and_then(|index| self.ordered.remove(index)) {
            return Some(fault);
        }
        let changes_what_is_there = matches!(request.method, Method::PUT | Method::PATCH) || path.ends_with("/binding");
        let query = request.uri.query().unwrap_or_default();
        let past =
            query.contains("continue=") || (query.contains("resourceVersion=") && !query.contains("resourceVersion=0"));
        self.plan.draw(&mut self.random, changes_what_is_there, past)
    }

    fn tell(&mut self, line: String) {
        if self.told.len() < TOLD_MAX {
            self.told.push(line);
        }
    }
}

impl Faults {
    /// Puts these faults before any service that answers as an API server does, such as the transport of a client:
    /// `ClientBuilder::try_from(config)?.with_layer(&faults.layer()).build()`.
    pub fn layer(&self) -> FaultLayer {
        FaultLayer { faults: self.clone() }
    }
}

impl Server {
    /// A client whose requests and watches meet faults.
    pub fn client_with(&self, faults: &Faults) -> kube::Client {
        kube::Client::new(faults.layer().layer(self.clone()), "default")
    }
}

/// Wraps services so that their requests and watches meet faults.
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

/// A service, seen through faults. Its errors are those of the service and losses of the connection.
#[derive(Debug)]
pub struct Faulty<S> {
    /// Shared, because a request that is late reaches the service after later ones, and not every service can be cloned.
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
        // The service is asked when the request reaches it.
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
            None => self.pass_on(request).await?,
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                self.pass_on(request).await?
            }
            Some(Fault::AnswerDelayed(time)) => {
                let response = self.pass_on(request).await;
                tokio::time::sleep(time).await;
                response?
            }
            Some(Fault::Lost) => return Err(lost().into()),
            Some(Fault::AnswerLost) => {
                self.pass_on(request).await?;
                return Err(lost().into());
            }
            Some(Fault::AnswerTimedOut) => {
                self.pass_on(request).await?;
                refusal(504, "Timeout", "Timeout: request did not complete within the allowed duration", None)
            }
            Some(Fault::Forbidden) => refusal(403, "Forbidden", "an injected refusal", None),
            Some(Fault::Failed(error)) => refusal(error.code(), error.reason(), "an injected failure", None),
            Some(Fault::Conflict) => refusal(409, "Conflict", CONFLICT, None),
            Some(Fault::Throttled { retry_after_seconds }) => {
                refusal(429, "TooManyRequests", THROTTLED, Some(retry_after_seconds))
            }
            Some(Fault::Expired) => {
                refusal(410, "Expired", "The resourceVersion for the provided list is too old.", None)
            }
        };
        if watches && response.status() == http::StatusCode::OK {
            Ok(stream::with_faults(response, self.faults, path))
        } else {
            Ok(response)
        }
    }

    /// Lets the service answer. It is locked until it has taken the request, not until it has answered.
    async fn pass_on<B, R>(&self, request: Request<B>) -> Result<Response<Body>, BoxError>
    where
        S: Service<Request<B>, Response = Response<R>>,
        S::Error: Into<BoxError>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let answer = {
            let mut service = self.service.lock().await;
            poll_fn(|context| service.poll_ready(context)).await.map_err(Into::into)?;
            service.call(request)
        };
        Ok(answer.await.map_err(Into::into)?.map(Body::new))
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

fn refusal(code: u16, reason: &str, message: &str, retry_after_seconds: Option<u32>) -> Response<Body> {
    let status = status(code, reason, message, retry_after_seconds);
    let mut response = Response::builder().status(code).header(http::header::CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after_seconds {
        response = response.header(http::header::RETRY_AFTER, seconds);
    }
    response.body(Body::from(status.to_string())).expect("a code and two headers make a response")
}

/// A delay of up to `most`, so that an answer in no time stays possible.
fn some_of(random: &mut Random, most: Duration) -> Duration {
    let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX).max(1);
    Duration::from_micros(random.below(most) + 1)
}
