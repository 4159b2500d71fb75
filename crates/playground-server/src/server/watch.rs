//! The watch verb: the changes of a collection as a stream of events.
//!
//! A watch holds a position in the watch cache of its table and reads from there, so that a slow one uses no memory:
//! when the cache no longer reaches back to its position it gets a 410 and starts again.
//! Invariant: each change of a selected object is delivered once and in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use muster_playground_store::{Change, Object, Subscription};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Server;
use super::query::{ListOptions, ResourceVersionMatch};
use super::read::check_revision_reached;
use super::request::Target;
use super::response::{encode, encode_object};
use super::selection::Selection;
use super::state::State;
use super::status_error::StatusError;
use crate::kinds::Kind;

/// The interval of bookmarks of an idle watch.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// A watch without a timeout ends after this long, and up to twice as long.
const TIMEOUT_SECONDS_MIN: u64 = 1800;
/// Longer timeouts are reduced to this, a hundred years, which every clock can represent.
const TIMEOUT_SECONDS_MAX: u64 = 3_155_760_000;
/// The most changes that are read from the watch cache at once.
const BATCH: usize = 512;
/// A chunk of the stream is sent when it has this many bytes.
const CHUNK_SIZE: usize = 64 * 1024;

/// The state of a watch.
pub(crate) struct Watch {
    server: Server,
    kind: Arc<Kind>,
    selection: Selection,
    /// Objects that are sent before the changes.
    initial: VecDeque<Arc<Object>>,
    /// Whether a bookmark marks their end.
    mark_initial_end: bool,
    seen: u64,
    changed: Subscription,
    bookmarks: bool,
    next_bookmark: Instant,
    ends: Instant,
    /// Why the watch cannot start; kube-apiserver sends the error as the first event.
    expired: Option<StatusError>,
    over: bool,
}

impl Watch {
    /// Starts a watch on the current state.
    pub(crate) fn open(
        server: &Server,
        state: &mut State,
        kind: &Arc<Kind>,
        target: &Target,
        options: &ListOptions,
    ) -> Result<Self, StatusError> {
        let selection = Selection::read(kind, target, options)?;
        let current = state.store.revision();
        let from_here = options.send_initial_events == Some(false);
        let mut too_large = None;
        let (initial, seen) = match options.resource_version_match {
            ResourceVersionMatch::NotOlderThan(revision) | ResourceVersionMatch::Exactly(revision)
                if options.send_initial_events != Some(true) =>
            {
                (VecDeque::new(), revision)
            }
            ResourceVersionMatch::Latest | ResourceVersionMatch::Any if from_here => (VecDeque::new(), current),
            resource_version_match => {
                if let ResourceVersionMatch::NotOlderThan(revision) = resource_version_match {
                    too_large = check_revision_reached(state, revision).err();
                }
                let current_objects = state.store.list(kind.table, selection.namespace());
                (current_objects.filter(|object| selection.matches(object)).cloned().collect(), current)
            }
        };
        let timeout =
            options.timeout_seconds.unwrap_or_else(|| TIMEOUT_SECONDS_MIN + state.random.below(TIMEOUT_SECONDS_MIN));
        let now = Instant::now();
        let too_old = state.store.check_available(kind.table, seen).err();
        Ok(Self {
            server: server.clone(),
            kind: Arc::clone(kind),
            selection,
            initial,
            mark_initial_end: options.send_initial_events == Some(true) && options.bookmarks,
            seen,
            changed: state.store.subscribe(kind.table),
            bookmarks: options.bookmarks,
            next_bookmark: now + BOOKMARK_INTERVAL,
            ends: now + Duration::from_secs(timeout.min(TIMEOUT_SECONDS_MAX)),
            expired: too_large.or(too_old
                .map(|too_old| StatusError::expired(format!("too old resource version: {seen} ({})", too_old.oldest)))),
            over: false,
        })
    }

    pub(crate) fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// The next chunk of the stream; `None` at its end.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if let Some(failure) = self.expired.take() {
            self.over = true;
            return Some(line("ERROR", &encode(&failure.status())));
        }
        if let Some(chunk) = self.send_initial() {
            return Some(chunk);
        }
        loop {
            if Instant::now() >= self.ends {
                return None;
            }
            self.changed.mark_seen();
            let chunk = self.read_changes();
            if !chunk.is_empty() {
                return Some(chunk);
            }
            if self.over {
                return None;
            }
            tokio::select! {
                biased;
                changed = self.changed.wait() => {
                    if !changed {
                        return None;
                    }
                }
                () = tokio::time::sleep_until(self.ends) => return None,
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
                    return Some(self.bookmark(false));
                }
            }
        }
    }

    fn send_initial(&mut self) -> Option<Bytes> {
        let mut chunk = BytesMut::new();
        while let Some(object) = self.initial.pop_front() {
            put_line(&mut chunk, "ADDED", &encode_object(&self.kind, &object));
            if chunk.len() >= CHUNK_SIZE {
                return Some(chunk.freeze());
            }
        }
        if self.mark_initial_end {
            self.mark_initial_end = false;
            chunk.put_slice(&self.bookmark(true));
        }
        (!chunk.is_empty()).then(|| chunk.freeze())
    }

    /// The events of the changes since the last read.
    fn read_changes(&mut self) -> Bytes {
        let mut chunk = BytesMut::new();
        while chunk.len() < CHUNK_SIZE {
            let (changes, current) = {
                let state = self.server.state();
                (state.store.since(self.kind.table, self.seen, BATCH), state.store.durable_revision())
            };
            let changes = match changes {
                Ok(changes) => changes,
                Err(too_old) => {
                    self.over = true;
                    let message = format!("too old resource version: {} ({})", self.seen, too_old.oldest);
                    put_line(&mut chunk, "ERROR", &encode(&StatusError::expired(message).status()));
                    break;
                }
            };
            if changes.is_empty() {
                // Nothing of this table up to here was missed. A watch from a future revision stays there.
                self.seen = self.seen.max(current);
                break;
            }
            for change in &changes {
                self.put_change(&mut chunk, change);
                self.seen = change.revision;
                if chunk.len() >= CHUNK_SIZE {
                    break;
                }
            }
        }
        chunk.freeze()
    }

    /// An object that enters the selection is added, and one that leaves it is deleted.
    fn put_change(&self, chunk: &mut BytesMut, change: &Change) {
        let was = change.before.as_deref().is_some_and(|before| self.selection.matches(before));
        let is = !change.deleted && self.selection.matches(&change.now);
        match (was, is) {
            (false, true) => put_line(chunk, "ADDED", &encode_object(&self.kind, &change.now)),
            (true, true) => put_line(chunk, "MODIFIED", &encode_object(&self.kind, &change.now)),
            (true, false) if change.deleted => put_line(chunk, "DELETED", &encode_object(&self.kind, &change.now)),
            (true, false) => {
                // The last visible state, with the revision of the change that hides it.
                let mut last = self.kind.show(change.before.as_deref().map_or(Value::Null, Object::value));
                last["metadata"]["resourceVersion"] = json!(change.revision.to_string());
                put_line(chunk, "DELETED", &encode(&last));
            }
            (false, false) => {}
        }
    }

    fn bookmark(&self, initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": self.seen.to_string()});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata});
        line("BOOKMARK", &encode(&object))
    }
}

fn put_line(chunk: &mut BytesMut, event: &str, object: &[u8]) {
    chunk.put_slice(b"{\"type\":\"");
    chunk.put_slice(event.as_bytes());
    chunk.put_slice(b"\",\"object\":");
    chunk.put_slice(object);
    chunk.put_slice(b"}\n");
}

fn line(event: &str, object: &[u8]) -> Bytes {
    let mut chunk = BytesMut::new();
    put_line(&mut chunk, event, object);
    chunk.freeze()
}
