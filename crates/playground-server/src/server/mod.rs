//! The server: requests in, answers out, one at a time on one state.
//!
//! This file is the shell: it reads bodies, locks the state for the moment of one step, and turns answers into HTTP.
//! Everything below it is synchronous and waits for nothing; only watches live longer than their request.

pub(crate) mod admission;
pub(crate) mod answer;
pub(crate) mod apply;
pub(crate) mod binding;
pub(crate) mod body;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod discovery;
pub(crate) mod dispatch;
mod durability;
pub(crate) mod eviction;
pub(crate) mod failure;
mod front;
pub(crate) mod hook;
pub(crate) mod json_patch;
pub(crate) mod json_syntax;
pub(crate) mod json_text;
mod origin;
pub(crate) mod ownership;
pub(crate) mod patch;
mod patient;
mod presentation;
pub(crate) mod query;
pub(crate) mod read;
pub(crate) mod request;
pub(crate) mod review;
pub(crate) mod scale;
pub(crate) mod selection;
pub(crate) mod state;
pub(crate) mod strategic_patch;
pub(crate) mod update;
pub(crate) mod view;
pub(crate) mod watch;
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
use muster_determinism::clock::Clock;
use tokio::net::TcpListener;
use tokio::sync::Notify;

pub use self::answer::List;
use self::answer::{Answer, printed};
use self::dispatch::{Reply, dispatch};
use self::durability::Durability;
use self::failure::Failure;
pub use self::front::Limits;
pub use self::hook::{Admission, AdmissionOperation};
pub use self::presentation::{Document, Include, OPENAPI_V2, Presentation, ProtobufError, TableForm, partial};
use self::state::State;
use crate::housekeeping;
use crate::kinds::NativeGroups;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Decides generated names and UIDs.
    pub seed: u64,
    /// The date at which the server starts; the machine's if it is left out.
    pub start: Option<Timestamp>,
    /// How many changes of each resource are kept for watches and lists of the past.
    pub window: usize,
    /// How long after a write its consequences come: garbage collection, emptied namespaces, released groups.
    pub housekeeping_delay: Duration,
    /// Kubernetes' own API for groups, and so the release that the server is like.
    pub native_groups: NativeGroups,
    /// Who is asked about writes, as a mutating webhook is.
    pub admission: Option<Admission>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            start: None,
            window: 65_536,
            housekeeping_delay: Duration::ZERO,
            native_groups: NativeGroups::default(),
            admission: None,
        }
    }
}

/// A Kubernetes API server in the process. Clones are the same server.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    state: Arc<Mutex<State>>,
    clock: Clock,
    /// Wakes the housekeeper.
    chores: Arc<Notify>,
    /// What answers wait for, if the state is kept on a disk.
    durability: Option<Durability>,
    /// Set at most once, before clients come.
    presentation: OnceLock<Arc<dyn Presentation>>,
}

impl Server {
    /// Starts a server with the namespaces and priority classes that every cluster has. Needs a tokio runtime.
    pub fn start(settings: Settings) -> Self {
        let clock = settings.start.map_or_else(Clock::real, Clock::starting_at);
        let mut state = State::new(&settings, clock.now());
        dispatch::bootstrap(&mut state);
        state.admission = settings.admission;
        Self::with(Arc::new(Mutex::new(state)), clock, settings.housekeeping_delay, None)
    }

    fn with(state: Arc<Mutex<State>>, clock: Clock, delay: Duration, durability: Option<Durability>) -> Self {
        let chores = Arc::new(Notify::new());
        // There may be chores from before a restart; if not, the housekeeper looks once for nothing.
        if durability.is_some() {
            chores.notify_one();
        }
        let inner =
            Arc::new(Inner { state, clock, chores: Arc::clone(&chores), durability, presentation: OnceLock::new() });
        tokio::spawn(keep_house(Arc::downgrade(&inner), chores, delay));
        Self { inner }
    }

    /// The same server, which from now on also answers clients that want more than JSON: kubectl, and other typed Go
    /// clients. To be called when it has just started; a server that has a presentation keeps it.
    #[must_use]
    pub fn with_presentation(self, presentation: Arc<dyn Presentation>) -> Self {
        self.inner.presentation.get_or_init(|| presentation);
        self
    }

    /// The server's clock, for clients that must agree with it about the date.
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// The server's date.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.state().store.revision()
    }

    /// The revision of the last change, for those who wait for the next one.
    pub fn revisions(&self) -> tokio::sync::watch::Receiver<u64> {
        self.state().store.subscribe_to_all()
    }

    /// Forgets the past: lists and watches that start from an older revision get 410.
    pub fn compact(&self) {
        self.state().store.compact();
    }

    /// Asks somebody else about writes from now on, or nobody, as if the webhook and its configuration were gone.
    pub fn set_admission(&self, admission: Option<Admission>) {
        self.state().admission = admission;
    }

    /// A client of this server, in the process.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Serves HTTP with the usual limits until the future is dropped; connections end with it.
    pub async fn serve(&self, listener: TcpListener) {
        self.serve_until(listener, Limits::default(), std::future::pending()).await;
    }

    /// Serves HTTP until `stop` is done: then watches end and requests that are under way are finished.
    pub async fn serve_until(&self, listener: TcpListener, limits: Limits, stop: impl Future<Output = ()>) {
        front::serve(self.clone(), listener, limits, stop).await;
    }

    /// The state, with the time of this step.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.inner.lock();
        state.now = self.inner.clock.now();
        state
    }

    /// What answers clients that want more than JSON, if anybody does.
    pub(crate) fn presentation(&self) -> Option<&Arc<dyn Presentation>> {
        self.inner.presentation.get()
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if self.inner.state.is_poisoned() {
            // Not to be missed: what a broken step leaves behind cannot be trusted.
            return failed(&Failure::internal("a step of the server has panicked"));
        }
        let (parts, body) = request.into_parts();
        let is_head = parts.method == http::Method::HEAD;
        let accept = parts.headers.get(http::header::ACCEPT).and_then(|header| header.to_str().ok());
        let query = parts.uri.query().unwrap_or_default();
        let view = match view::View::of(accept, parts.uri.path(), query, self.presentation()) {
            Ok(view) => view,
            Err(failure) => return failed(&failure),
        };
        let bytes = match Limited::new(body, body::BODY_SIZE_MAX).collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(_) => return failed(&Failure::entity_too_large(format!("limit is {}", body::BODY_SIZE_MAX))),
        };
        let (reply, seen) = {
            let mut state = self.state();
            let reply = dispatch(self, &mut state, &parts, &bytes);
            if !state.chores.is_empty() {
                self.inner.chores.notify_one();
            }
            // Before anybody else can change it, or take it back.
            (reply, state.store.revision())
        };
        if let Some(durability) = &self.inner.durability
            && let Err(failure) = durability.settled(seen).await
        {
            return failed(&failure);
        }
        let mut response = match reply {
            Ok(Reply::Answer(answer)) => shaped(view.of_answer(answer, None, self.now())),
            Ok(Reply::Objects(answer, kind)) => shaped(view.of_answer(answer, Some(&kind), self.now())),
            Ok(Reply::Watch(watch)) => match view.of_watch(Arc::clone(watch.kind()), self.clock()) {
                Ok(lines) => streamed(*watch, lines),
                Err(failure) => failed(&failure),
            },
            Err(failure) => failed(&failure),
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
        // After a panic inside a step requests are refused; watches tell what they can.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn do_one_chore(&self) -> bool {
        let mut state = self.lock();
        state.now = self.clock.now();
        housekeeping::do_one(&mut state)
    }
}

/// Does the chores that writes leave behind, for as long as there is a server.
async fn keep_house(server: Weak<Inner>, chores: Arc<Notify>, delay: Duration) {
    loop {
        chores.notified().await;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        loop {
            let Some(inner) = server.upgrade() else { return };
            if !inner.do_one_chore() {
                break;
            }
            drop(inner);
            // Others get their turn between two chores.
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
        // The housekeeper wakes, finds nobody, and goes.
        self.chores.notify_one();
    }
}

fn shaped(answer: Result<Answer, Failure>) -> Response<Body> {
    match answer {
        Ok(answer) => answered(answer),
        Err(failure) => failed(&failure),
    }
}

fn answered(answer: Answer) -> Response<Body> {
    match answer {
        Answer::List(mut list) => {
            let warnings = std::mem::take(&mut list.warnings);
            let body = if list.is_small() {
                Body::from(list.pieces().next().unwrap_or_default())
            } else {
                Body::from_stream(futures::stream::iter(list.pieces().map(Ok::<_, Infallible>)))
            };
            let mut response = respond(200, "application/json", body);
            warn(&mut response, &warnings);
            response
        }
        Answer::Document(Document { media_type, text }) => respond(200, media_type, Body::from(text)),
        Answer::Json { code, text, warnings } => {
            let mut response = respond(code, "application/json", Body::from(text));
            warn(&mut response, &warnings);
            response
        }
        Answer::Text { code, text } => respond(code, "text/plain; charset=utf-8", Body::from(text)),
        Answer::Nothing => {
            let mut response = respond(204, "text/plain", Body::empty());
            response.headers_mut().remove(CONTENT_TYPE);
            response
        }
    }
}

fn failed(failure: &Failure) -> Response<Body> {
    let mut response = respond(failure.code, "application/json", Body::from(printed(&failure.status())));
    if let Some(seconds) = failure.retry_after_seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    warn(&mut response, &failure.warnings);
    response
}

/// The most characters of all warnings, and of one where they are too many. Clients have limits for headers.
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
        // 299 is a warning that is to be shown, from nobody in particular.
        let text = format!("299 - {}", muster_playground_schema::go_text::quoted(&warning));
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

fn streamed(watch: watch::Watch, lines: view::Lines) -> Response<Body> {
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
        let told = |warnings: &[String]| {
            let mut response = Response::new(Body::empty());
            warn(&mut response, warnings);
            let lengths = response.headers().get_all(WARNING).iter().map(HeaderValue::len);
            lengths.collect::<Vec<_>>()
        };
        assert_eq!(told(&["short".to_owned()]).len(), 1);
        assert_eq!(told(&["x".repeat(4000)]), [4000 + "299 - \"\"".len()]);
        let many = told(&vec!["y".repeat(4000); 100]);
        assert!(many.iter().sum::<usize>() < 5000 && many.len() > 10, "{many:?}");
    }
}
