//! The API server: handles requests one at a time on one state.
//!
//! This file reads bodies, locks the state while a request is processed, and encodes responses as HTTP. Everything
//! below it is synchronous; only watches outlive their request.

pub(crate) mod admission;
pub(crate) mod apply;
pub(crate) mod binding;
pub(crate) mod body;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod discovery;
pub(crate) mod dispatch;
mod durability;
pub(crate) mod eviction;
mod http_server;
pub(crate) mod json_patch;
pub(crate) mod json_syntax;
pub(crate) mod json_text;
pub(crate) mod managed_fields;
pub(crate) mod negotiation;
mod origin;
pub(crate) mod patch;
mod presentation;
pub(crate) mod query;
pub(crate) mod read;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod review;
pub(crate) mod scale;
pub(crate) mod selection;
pub(crate) mod state;
pub(crate) mod status_error;
pub(crate) mod strategic_patch;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod webhook;
mod write_timeout;
pub(crate) mod yaml_text;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WARNING};
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use muster_api::native::Gates;
use muster_clock::Clock;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use self::dispatch::{Reply, dispatch};
use self::durability::Durability;
pub use self::http_server::Limits;
pub use self::presentation::{Document, Include, OPENAPI_V2, Presentation, ProtobufError, TableForm, partial};
pub use self::response::List;
use self::response::{ApiResponse, encode};
use self::state::State;
use self::status_error::StatusError;
pub use self::webhook::{Admission, AdmissionOperation};
use crate::controllers;
use crate::kinds::NativeGroups;

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Determines generated names and UIDs.
    pub seed: u64,
    /// The date at which the server starts; by default the system time.
    pub start: Option<Timestamp>,
    /// How many changes of each resource are kept for watches and for lists at an older revision.
    pub window: usize,
    /// How long after a write the controllers act: garbage collection, namespaces, PodGroup protection.
    pub controllers_delay: Duration,
    /// The version of the native PodGroup API, and so the Kubernetes release to imitate.
    pub native_groups: NativeGroups,
    /// The feature gates of that API.
    pub gates: Gates,
    /// A mutating webhook.
    pub admission: Option<Admission>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            start: None,
            window: 65_536,
            controllers_delay: Duration::ZERO,
            native_groups: NativeGroups::default(),
            gates: Gates::default(),
            admission: None,
        }
    }
}

/// An in-process Kubernetes API server. Clones share the server.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    state: Arc<Mutex<State>>,
    clock: Clock,
    /// Wakes the controllers.
    work_available: Arc<Notify>,
    /// What responses wait for, if the state is durable.
    durability: Option<Durability>,
    /// Set at most once, before the first client.
    presentation: OnceLock<Arc<dyn Presentation>>,
}

impl Server {
    /// Starts a server with the namespaces and priority classes that every cluster has. Needs a tokio runtime.
    pub fn start(settings: Settings) -> Self {
        let clock = settings.start.map_or_else(Clock::real, Clock::starting_at);
        let mut state = State::new(&settings, clock.now());
        dispatch::bootstrap(&mut state);
        state.webhook = settings.admission;
        Self::with(Arc::new(Mutex::new(state)), clock, settings.controllers_delay, None)
    }

    fn with(state: Arc<Mutex<State>>, clock: Clock, delay: Duration, durability: Option<Durability>) -> Self {
        let work_available = Arc::new(Notify::new());
        // There may be work from before a restart; otherwise the first check finds nothing to do.
        if durability.is_some() {
            work_available.notify_one();
        }
        let inner = Arc::new(Inner {
            state,
            clock,
            work_available: Arc::clone(&work_available),
            durability,
            presentation: OnceLock::new(),
        });
        tokio::spawn(run_controllers(Arc::downgrade(&inner), work_available, delay));
        Self { inner }
    }

    /// Adds support for clients that need more than JSON: kubectl and other typed Go clients. To be called right after
    /// the start; an existing presentation is kept.
    #[must_use]
    pub fn with_presentation(self, presentation: Arc<dyn Presentation>) -> Self {
        self.inner.presentation.get_or_init(|| presentation);
        self
    }

    /// The server's clock, for clients that must agree with it.
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// The current date of the server.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.state().store.revision()
    }

    /// The durable revision, as a channel that publishes every change.
    pub fn revisions(&self) -> tokio::sync::watch::Receiver<u64> {
        self.state().store.subscribe_to_all()
    }

    /// Drops the change history: lists and watches from an older revision get 410.
    pub fn compact(&self) {
        self.state().store.compact();
    }

    /// Replaces or removes the webhook.
    pub fn set_webhook(&self, admission: Option<Admission>) {
        self.state().webhook = admission;
    }

    /// An in-process client of this server.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Serves HTTP with the default limits until the future is dropped, which ends all connections.
    pub async fn serve(&self, listener: TcpListener) {
        self.serve_until(listener, Limits::default(), std::future::pending()).await;
    }

    /// Serves HTTP until `stop` resolves: then watches end and requests in flight are completed.
    pub async fn serve_until(&self, listener: TcpListener, limits: Limits, stop: impl Future<Output = ()>) {
        http_server::serve(self.clone(), listener, limits, stop).await;
    }

    /// The locked state, with its time updated.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.inner.lock();
        state.now = self.inner.clock.now();
        state
    }

    /// Support for clients that need more than JSON, if there is any.
    pub(crate) fn presentation(&self) -> Option<&Arc<dyn Presentation>> {
        self.inner.presentation.get()
    }

    /// Handles one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if self.inner.state.is_poisoned() {
            // The state after a panic cannot be trusted.
            return error_response(&StatusError::internal("a request handler has panicked"));
        }
        let (parts, body) = request.into_parts();
        let is_head = parts.method == http::Method::HEAD;
        let accept = parts.headers.get(http::header::ACCEPT).and_then(|header| header.to_str().ok());
        let query = parts.uri.query().unwrap_or_default();
        let view = match negotiation::View::of(accept, parts.uri.path(), query, self.presentation()) {
            Ok(view) => view,
            Err(failure) => return error_response(&failure),
        };
        let bytes = match Limited::new(body, body::BODY_SIZE_MAX).collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(_) => {
                return error_response(&StatusError::entity_too_large(format!("limit is {}", body::BODY_SIZE_MAX)));
            }
        };
        let (reply, seen) = {
            let mut state = self.state();
            let reply = dispatch(self, &mut state, &parts, &bytes);
            if !state.work_queue.is_empty() {
                self.inner.work_available.notify_one();
            }
            // Read under the lock, before another request can change or roll back the state.
            (reply, state.store.revision())
        };
        if let Some(durability) = &self.inner.durability
            && let Err(failure) = durability.wait_until_durable(seen).await
        {
            return error_response(&failure);
        }
        let mut response = match reply {
            Ok(Reply::Response(response)) => convert_result(view.convert_response(response, None, self.now())),
            Ok(Reply::Objects(response, kind)) => {
                convert_result(view.convert_response(response, Some(&kind), self.now()))
            }
            Ok(Reply::Watch(watch)) => match view.event_converter(Arc::clone(watch.kind()), self.clock()) {
                Ok(lines) => watch_response(*watch, lines),
                Err(failure) => error_response(&failure),
            },
            Err(failure) => error_response(&failure),
        };
        if is_head {
            *response.body_mut() = Body::empty();
        }
        response
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic requests are refused; watches deliver what they can.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn process_next_item(&self) -> bool {
        let mut state = self.lock();
        state.now = self.clock.now();
        controllers::process_next(&mut state)
    }
}

/// Processes the work queue for as long as the server exists.
async fn run_controllers(server: Weak<Inner>, work_available: Arc<Notify>, delay: Duration) {
    loop {
        work_available.notified().await;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        loop {
            let Some(inner) = server.upgrade() else { return };
            if !inner.process_next_item() {
                break;
            }
            drop(inner);
            // Lets other tasks run between two items.
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(mut durability) = self.durability.take() {
            self.lock().store.close();
            durability.finish();
        }
        // Wakes the controllers, which find the server gone and end.
        self.work_available.notify_one();
    }
}

fn convert_result(response: Result<ApiResponse, StatusError>) -> Response<Body> {
    match response {
        Ok(response) => encode_response(response),
        Err(failure) => error_response(&failure),
    }
}

fn encode_response(response: ApiResponse) -> Response<Body> {
    match response {
        ApiResponse::List(mut list) => {
            let warnings = std::mem::take(&mut list.warnings);
            let body = if list.is_one_chunk() {
                Body::from(list.chunks().next().unwrap_or_default())
            } else {
                Body::from_stream(futures::stream::iter(list.chunks().map(Ok::<_, Infallible>)))
            };
            let mut response = respond(200, "application/json", body);
            warn(&mut response, &warnings);
            response
        }
        ApiResponse::Document(Document { media_type, text }) => respond(200, media_type, Body::from(text)),
        ApiResponse::Json { code, text, warnings } => {
            let mut response = respond(code, "application/json", Body::from(text));
            warn(&mut response, &warnings);
            response
        }
        ApiResponse::Text { code, text } => respond(code, "text/plain; charset=utf-8", Body::from(text)),
        ApiResponse::NoContent => {
            let mut response = respond(204, "text/plain", Body::empty());
            response.headers_mut().remove(CONTENT_TYPE);
            response
        }
    }
}

fn error_response(failure: &StatusError) -> Response<Body> {
    let mut response = respond(failure.code, "application/json", Body::from(encode(&failure.status())));
    if let Some(seconds) = failure.retry_after_seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    warn(&mut response, &failure.warnings);
    response
}

/// The most characters of all warnings, and of each one if there are too many. Clients limit the size of headers.
const WARNINGS_LENGTH_MAX: usize = 4096;
const WARNING_LENGTH_MAX: usize = 256;

fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let whole = warnings.iter().map(String::len).sum::<usize>() <= WARNINGS_LENGTH_MAX;
    let mut length = 0;
    for warning in warnings {
        let warning = if whole { warning.clone() } else { warning.chars().take(WARNING_LENGTH_MAX).collect() };
        length += warning.len();
        if length > WARNINGS_LENGTH_MAX {
            return;
        }
        // Code 299 is a persistent warning; `-` is an unknown agent.
        let text = format!("299 - {}", muster_playground_schema::go_text::quoted(&warning));
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

fn watch_response(watch: watch::Watch, lines: negotiation::EventConverter) -> Response<Body> {
    let stream = futures::stream::unfold((watch, lines), async move |(mut watch, mut lines)| {
        let chunk = watch.next().await?;
        let chunk = lines.of(chunk);
        Some((Ok::<_, Infallible>(chunk), (watch, lines)))
    });
    respond(200, "application/json", Body::from_stream(stream))
}

fn respond(code: u16, media_type: &'static str, body: Body) -> Response<Body> {
    const CACHE: (HeaderName, HeaderValue) =
        (http::header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CACHE.0, CACHE.1);
    response
}

impl<B> tower::Service<Request<B>> for Server
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.answer(request).await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_fit_into_headers() {
        let header_lengths = |warnings: &[String]| {
            let mut response = Response::new(Body::empty());
            warn(&mut response, warnings);
            let lengths = response.headers().get_all(WARNING).iter().map(HeaderValue::len);
            lengths.collect::<Vec<_>>()
        };
        assert_eq!(header_lengths(&["short".to_owned()]).len(), 1);
        assert_eq!(header_lengths(&["x".repeat(4000)]), [4000 + "299 - \"\"".len()]);
        let many = header_lengths(&vec!["y".repeat(4000); 100]);
        assert!(many.iter().sum::<usize>() < 5000 && many.len() > 10, "{many:?}");
    }
}
