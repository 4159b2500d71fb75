//! A watch that never ends: it restarts with backoff after every failure.
//!
//! The first list is a streaming list, which the API server sends object by object, where it knows them; else it is
//! read page by page. Both are consistent reads of the latest state, also after a restart: a copy that goes back in
//! time would show pods that are long gone.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use kube::api::{ListParams, WatchEvent};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::age::Age;
use crate::backoff::Pauses;
use crate::delta::Delta;
use crate::error::WatchError;
use crate::page::{self, PAGE_DEADLINE, PAGE_SIZE};
use crate::selection::Selection;

/// The longest pause of a client that must not burden an API server in trouble.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);
/// API servers close a watch after 290 seconds, as it asks them to. One on which nothing arrives for longer, not even
/// that, has lost its connection.
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// A watch that is closed sooner, without an event, has failed.
const CLOSED_AT_ONCE: Duration = Duration::from_secs(1);
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Watches a kind. A kind that the cluster does not serve is listed again from time to time; every other failure goes to
/// `on_error`, and the watch restarts, after pauses that grow up to `pause_max`.
pub fn watch<K>(
    api: Api<K>,
    selection: Selection,
    pause_max: Duration,
    age: Age,
    on_error: impl FnMut(&WatchError) + Send + 'static,
) -> impl Stream<Item = Delta<K>> + Send + Unpin + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let pauses = Pauses::up_to(pause_max);
    let watch = Watch { api, selection, pauses, pause: None, has_streaming_lists: true, state: State::Start, age };
    Box::pin(stream::unfold((watch, on_error), |(mut watch, mut on_error)| async move {
        let delta = watch.next(&mut on_error).await;
        Some((delta, (watch, on_error)))
    }))
}

struct Watch<K> {
    api: Api<K>,
    selection: Selection,
    pauses: Pauses,
    /// What to wait for before the next request.
    pause: Option<Duration>,
    /// Whether the API server may know streaming lists.
    has_streaming_lists: bool,
    state: State<K>,
    age: Age,
}

type Events<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

/// How far a watch has got.
enum State<K> {
    /// The next request is a list.
    Start,
    /// A list is read page by page.
    Paging(Paging<K>),
    /// A streaming list is read.
    Streaming(Events<K>),
    /// All objects are known as of a resource version; the next request is a watch.
    Listed { resource_version: String },
    /// A watch is open.
    Watching(Watching<K>),
}

struct Paging<K> {
    /// The request for the next page.
    params: ListParams,
    /// What is left of the last page.
    objects: std::vec::IntoIter<K>,
    /// Of the list, once its last page has been read.
    resource_version: Option<String>,
}

struct Watching<K> {
    resource_version: String,
    events: Events<K>,
    opened: Instant,
    has_events: bool,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn next(&mut self, on_error: &mut impl FnMut(&WatchError)) -> Delta<K> {
        loop {
            if let Some(pause) = self.pause.take() {
                sleep(pause).await;
            }
            match self.step().await {
                Ok(Some(delta)) => return delta,
                Ok(None) => {}
                Err(error) => {
                    self.pause = Some(self.pauses.next());
                    if !error.is_without_answer() {
                        self.age.answer();
                    }
                    if error.is_not_served() {
                        self.state = State::Start;
                        self.age.confirm();
                        return Delta::NotServed;
                    }
                    on_error(&error);
                }
            }
        }
    }

    /// One step. Without another state it starts over.
    async fn step(&mut self) -> Result<Option<Delta<K>>, WatchError> {
        match std::mem::replace(&mut self.state, State::Start) {
            State::Start if self.has_streaming_lists => self.start_streaming().await,
            State::Start => {
                let params = ListParams { limit: Some(PAGE_SIZE), ..self.selection.list_params() };
                self.state = State::Paging(Paging { params, objects: Vec::new().into_iter(), resource_version: None });
                Ok(Some(Delta::ListStarted))
            }
            State::Paging(paging) => self.read_page(paging).await,
            State::Streaming(events) => self.read_streaming(events).await,
            State::Listed { resource_version } => self.resume(resource_version).await,
            State::Watching(watching) => self.read_watch(watching).await,
        }
    }

    async fn start_streaming(&mut self) -> Result<Option<Delta<K>>, WatchError> {
        let params = self.selection.watch_params().initial_events();
        // Without a resource version the list is as new as the request.
        match timeout(PAGE_DEADLINE, self.api.watch(&params, "")).await {
            Ok(Ok(events)) => {
                self.state = State::Streaming(events.boxed());
                Ok(Some(Delta::ListStarted))
            }
            Ok(Err(error)) => self.streaming_failed(WatchError::Watch(error)),
            Err(_) => self.streaming_failed(WatchError::ListDeadline(PAGE_DEADLINE)),
        }
    }

    fn streaming_failed(&mut self, error: WatchError) -> Result<Option<Delta<K>>, WatchError> {
        if error.may_be_no_streaming_lists() {
            self.has_streaming_lists = false;
            return Ok(None);
        }
        Err(error)
    }

    async fn read_streaming(&mut self, mut events: Events<K>) -> Result<Option<Delta<K>>, WatchError> {
        let event = match timeout(PAGE_DEADLINE, events.next()).await {
            Ok(Some(Ok(event))) => event,
            Ok(Some(Err(error))) => return Err(WatchError::Watch(error)),
            Ok(None) => return self.streaming_failed(WatchError::ListCutShort),
            Err(_) => return self.streaming_failed(WatchError::ListDeadline(PAGE_DEADLINE)),
        };
        // A long list makes progress, but confirms nothing before its end.
        self.age.answer();
        let delta = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(Delta::Listed(object)),
            WatchEvent::Deleted(object) => Some(Delta::Deleted(object)),
            WatchEvent::Bookmark(bookmark) if bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END) => {
                self.age.confirm();
                self.watch_from(bookmark.metadata.resource_version, events);
                return Ok(Some(Delta::ListDone));
            }
            WatchEvent::Bookmark(_) => None,
            WatchEvent::Error(status) => return self.streaming_failed(WatchError::Event(status)),
        };
        self.state = State::Streaming(events);
        Ok(delta)
    }

    async fn read_page(&mut self, mut paging: Paging<K>) -> Result<Option<Delta<K>>, WatchError> {
        if let Some(object) = paging.objects.next() {
            self.state = State::Paging(paging);
            return Ok(Some(Delta::Listed(object)));
        }
        if let Some(resource_version) = paging.resource_version {
            self.age.confirm();
            self.state = State::Listed { resource_version };
            return Ok(Some(Delta::ListDone));
        }
        let client = self.api.clone().into_client();
        let page = page::read(&client, self.api.resource_url(), &mut paging.params).await?;
        self.age.answer();
        paging.objects = page.items.into_iter();
        paging.params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if paging.params.continue_token.is_none() {
            let version = page.metadata.resource_version.filter(|version| !version.is_empty());
            paging.resource_version = Some(version.ok_or(WatchError::NoResourceVersion)?);
        }
        self.state = State::Paging(paging);
        Ok(None)
    }

    async fn resume(&mut self, resource_version: String) -> Result<Option<Delta<K>>, WatchError> {
        let params = self.selection.watch_params();
        let error = match timeout(PAGE_DEADLINE, self.api.watch(&params, &resource_version)).await {
            Ok(Ok(events)) => {
                // What it sends will confirm it: the request alone proves nothing.
                self.watch_from(resource_version, events.boxed());
                return Ok(None);
            }
            Ok(Err(error)) => WatchError::Watch(error),
            Err(_) => WatchError::Silent(PAGE_DEADLINE),
        };
        self.go_on_from(resource_version, error)
    }

    /// Everything up to here is known, and the API server sends what comes after it.
    fn watch_from(&mut self, resource_version: String, events: Events<K>) {
        let watching = Watching { resource_version, events, opened: Instant::now(), has_events: false };
        self.state = State::Watching(watching);
    }

    /// Opens the next watch where the last one failed, if the API server still knows what has changed since.
    fn go_on_from(&mut self, resource_version: String, error: WatchError) -> Result<Option<Delta<K>>, WatchError> {
        if !error.is_expired() {
            self.state = State::Listed { resource_version };
        }
        Err(error)
    }

    async fn read_watch(&mut self, mut watching: Watching<K>) -> Result<Option<Delta<K>>, WatchError> {
        let event = match timeout(SILENCE_MAX, watching.events.next()).await {
            Ok(Some(Ok(event))) => event,
            Ok(Some(Err(error))) => {
                // One event that cannot be read; a broken connection ends the stream next.
                self.state = State::Watching(watching);
                return Err(WatchError::Watch(error));
            }
            Ok(None) if !watching.has_events && watching.opened.elapsed() < CLOSED_AT_ONCE => {
                return self.go_on_from(watching.resource_version, WatchError::ClosedAtOnce);
            }
            Ok(None) => {
                // Nothing happened since the last event, or it would have been sent.
                self.age.confirm();
                self.state = State::Listed { resource_version: watching.resource_version };
                return Ok(None);
            }
            Err(_) => return self.go_on_from(watching.resource_version, WatchError::Silent(SILENCE_MAX)),
        };
        let delta = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(Delta::Applied(object)),
            WatchEvent::Deleted(object) => Some(Delta::Deleted(object)),
            WatchEvent::Bookmark(bookmark) => {
                watching.resource_version = bookmark.metadata.resource_version;
                None
            }
            WatchEvent::Error(status) => {
                return self.go_on_from(watching.resource_version, WatchError::Event(status));
            }
        };
        if let Some(Delta::Applied(object) | Delta::Deleted(object)) = &delta {
            let version = object.resource_version().filter(|version| !version.is_empty());
            watching.resource_version = version.ok_or(WatchError::NoResourceVersion)?;
        }
        self.age.confirm();
        watching.has_events = true;
        self.state = State::Watching(watching);
        Ok(delta)
    }
}
