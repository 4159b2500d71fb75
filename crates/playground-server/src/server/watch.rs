//! Watch: the changes of a collection, one line each, for as long as the client listens.
//!
//! A watcher holds a place in its table's log and reads on from there, so that a slow one costs no memory: when the
//! log no longer reaches back to its place it is told so (410) and starts again.
//! Invariant: of every object that the selection shows, each change is told once and in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use muster_playground_store::{Change, Ear, Object};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Server;
use super::answer::{printed, shown};
use super::failure::Failure;
use super::query::{Freshness, ListOptions};
use super::read::not_newer_than_now;
use super::request::Target;
use super::selection::Selection;
use super::state::State;
use crate::kinds::Kind;

/// How often an idle watcher is told where it stands.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A watch without a time of its own ends after this long, and up to twice.
const TIMEOUT_SECONDS_MIN: u64 = 1800;
/// Longer ones count as this, a hundred years: no clock reaches the longest that can be written.
const TIMEOUT_SECONDS_MAX: u64 = 3_155_760_000;
/// The most changes that are read from the log at once.
const BATCH: usize = 512;
/// A piece of the stream is sent when it has this many bytes.
const CHUNK_SIZE: usize = 64 * 1024;

/// A watcher's place.
pub(crate) struct Watch {
    server: Server,
    kind: Arc<Kind>,
    selection: Selection,
    /// Objects that are told before the changes.
    initial: VecDeque<Arc<Object>>,
    /// Whether the end of those is to be marked.
    mark_initial: bool,
    seen: u64,
    changed: Ear,
    bookmarks: bool,
    next_bookmark: Instant,
    ends: Instant,
    /// Why the watch cannot start; the real server opens the stream and says so in it.
    expired: Option<Failure>,
    over: bool,
}

impl Watch {
    /// Starts a watch on the present state.
    pub(crate) fn open(
        server: &Server,
        state: &mut State,
        kind: &Arc<Kind>,
        target: &Target,
        options: &ListOptions,
    ) -> Result<Self, Failure> {
        let selection = Selection::read(kind, target, options)?;
        let current = state.store.revision();
        let from_here = options.send_initial_events == Some(false);
        let mut refused = None;
        let (initial, seen) = match options.freshness {
            Freshness::NotOlderThan(revision) | Freshness::Exactly(revision)
                if options.send_initial_events != Some(true) =>
            {
                (VecDeque::new(), revision)
            }
            Freshness::Latest | Freshness::Any if from_here => (VecDeque::new(), current),
            freshness => {
                if let Freshness::NotOlderThan(revision) = freshness {
                    refused = not_newer_than_now(state, revision).err();
                }
                let present = state.store.list(kind.table, selection.namespace());
                (present.filter(|object| selection.matches(object)).cloned().collect(), current)
            }
        };
        let timeout =
            options.timeout_seconds.unwrap_or_else(|| TIMEOUT_SECONDS_MIN + state.random.below(TIMEOUT_SECONDS_MIN));
        let now = Instant::now();
        let too_old = state.store.reaches(kind.table, seen).err();
        Ok(Self {
            server: server.clone(),
            kind: Arc::clone(kind),
            selection,
            initial,
            mark_initial: options.send_initial_events == Some(true) && options.bookmarks,
            seen,
            changed: state.store.subscribe(kind.table),
            bookmarks: options.bookmarks,
            next_bookmark: now + BOOKMARK_EVERY,
            ends: now + Duration::from_secs(timeout.min(TIMEOUT_SECONDS_MAX)),
            expired: refused.or(too_old
                .map(|too_old| Failure::expired(format!("too old resource version: {seen} ({})", too_old.oldest)))),
            over: false,
        })
    }

    pub(crate) fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// The next piece of the stream; nothing at its end.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if let Some(failure) = self.expired.take() {
            self.over = true;
            return Some(line("ERROR", &printed(&failure.status())));
        }
        if let Some(chunk) = self.tell_initial() {
            return Some(chunk);
        }
        loop {
            if Instant::now() >= self.ends {
                return None;
            }
            self.changed.hear();
            let chunk = self.read_on();
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
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    return Some(self.bookmark(false));
                }
            }
        }
    }

    fn tell_initial(&mut self) -> Option<Bytes> {
        let mut chunk = BytesMut::new();
        while let Some(object) = self.initial.pop_front() {
            put_line(&mut chunk, "ADDED", &shown(&self.kind, &object));
            if chunk.len() >= CHUNK_SIZE {
                return Some(chunk.freeze());
            }
        }
        if self.mark_initial {
            self.mark_initial = false;
            chunk.put_slice(&self.bookmark(true));
        }
        (!chunk.is_empty()).then(|| chunk.freeze())
    }

    /// What happened since the last look, as far as the selection shows it.
    fn read_on(&mut self) -> Bytes {
        let mut chunk = BytesMut::new();
        while chunk.len() < CHUNK_SIZE {
            let (changes, current) = {
                let state = self.server.state();
                (state.store.since(self.kind.table, self.seen, BATCH), state.store.settled())
            };
            let changes = match changes {
                Ok(changes) => changes,
                Err(too_old) => {
                    self.over = true;
                    let message = format!("too old resource version: {} ({})", self.seen, too_old.oldest);
                    put_line(&mut chunk, "ERROR", &printed(&Failure::expired(message).status()));
                    break;
                }
            };
            if changes.is_empty() {
                // Nothing of this table up to here was missed. A watch from the future stays there.
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

    /// To who watches a selection, an object that enters it is new and one that leaves it is gone.
    fn put_change(&self, chunk: &mut BytesMut, change: &Change) {
        let was = change.before.as_deref().is_some_and(|before| self.selection.matches(before));
        let is = !change.gone && self.selection.matches(&change.now);
        match (was, is) {
            (false, true) => put_line(chunk, "ADDED", &shown(&self.kind, &change.now)),
            (true, true) => put_line(chunk, "MODIFIED", &shown(&self.kind, &change.now)),
            (true, false) if change.gone => put_line(chunk, "DELETED", &shown(&self.kind, &change.now)),
            (true, false) => {
                // The last state that was seen, with the revision of the change that hides it.
                let mut last = self.kind.show(change.before.as_deref().map_or(Value::Null, Object::value));
                last["metadata"]["resourceVersion"] = json!(change.revision.to_string());
                put_line(chunk, "DELETED", &printed(&last));
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
        line("BOOKMARK", &printed(&object))
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
