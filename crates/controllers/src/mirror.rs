//! What a watch has shown so far: a copy of the objects, and what each event changed in it.
//!
//! Invariants: after a watch was cut and listed again, what went meanwhile is told as a change too. A kind that the
//! cluster does not serve has no objects. It must not know any kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::api::Api;
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

const PAGE: u32 = 500;
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const QUIET: Duration = Duration::from_secs(60);

/// Namespace and name.
pub(crate) type Key = (String, String);

/// What a watch tells.
#[derive(Debug)]
pub(crate) enum Turn<K> {
    /// Something about its objects.
    Event(watcher::Event<K>),
    /// The cluster does not serve the kind.
    Absent,
}

/// The turns of a watch that starts again, later and later, whenever it fails.
pub(crate) fn watch<K>(what: &'static str, api: Api<K>, labels: Option<&str>) -> impl Stream<Item = Turn<K>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Clone + Send,
{
    let mut config = watcher::Config::default().page_size(PAGE);
    if let Some(labels) = labels {
        config = config.labels(labels);
    }
    let turn = move |event: watcher::Result<watcher::Event<K>>| match event {
        Ok(event) => Some(Turn::Event(event)),
        Err(error) if is_not_served(&error) => Some(Turn::Absent),
        Err(error) => {
            tracing::warn!(what, %error, "the watch failed and will be started again");
            None
        }
    };
    let events = watcher(api, config).backoff(Pauses::default());
    events.filter_map(move |event| std::future::ready(turn(event)))
}

fn is_not_served(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Pauses that double, without chance, so that tests can be repeated. They begin anew only after a quiet time, since
/// every attempt begins well: a kind that the cluster does not serve would else be listed twice a second for ever.
#[derive(Debug)]
struct Pauses {
    next: Duration,
    last: Option<Instant>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: PAUSE_MIN, last: None }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX);
        self.last = Some(Instant::now());
        Some(pause)
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() > QUIET) {
            *self = Self::default();
        }
    }
}

/// What became of one object.
#[derive(Debug)]
pub(crate) struct Change<K> {
    pub(crate) old: Option<Arc<K>>,
    pub(crate) new: Option<Arc<K>>,
}

impl<K> Change<K> {
    /// The object as it is, or was.
    pub(crate) fn any(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// Under which values an object is found, within its namespace.
type Index<K> = fn(&K) -> Vec<String>;

/// A copy of what there is.
#[derive(Debug)]
pub(crate) struct Mirror<K> {
    objects: BTreeMap<Key, Arc<K>>,
    index: Index<K>,
    /// Namespaces and values of the index, and the names of the objects there.
    indexed: BTreeMap<Key, BTreeSet<String>>,
    /// What the list under way has shown.
    listed: BTreeSet<Key>,
    complete: bool,
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        Self::indexed_by(|_| Vec::new())
    }
}

impl<K> Mirror<K> {
    /// A mirror whose objects are found by these values too, for questions that come as often as there are objects.
    pub(crate) fn indexed_by(index: Index<K>) -> Self {
        let (objects, indexed, listed) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { objects, index, indexed, listed, complete: false }
    }

    /// A mirror of a kind that is not watched.
    pub(crate) fn unwatched() -> Self {
        Self { complete: true, ..Self::default() }
    }
}

impl<K: Resource> Mirror<K> {
    /// Takes in a turn.
    pub(crate) fn take(&mut self, turn: Turn<K>) -> Vec<Change<K>> {
        match turn {
            Turn::Absent => {
                self.listed.clear();
                self.all_seen()
            }
            Turn::Event(watcher::Event::Init) => {
                self.listed.clear();
                Vec::new()
            }
            Turn::Event(watcher::Event::InitApply(object)) => {
                self.listed.insert(key_of(&object));
                vec![self.put(object)]
            }
            Turn::Event(watcher::Event::InitDone) => self.all_seen(),
            Turn::Event(watcher::Event::Apply(object)) => vec![self.put(object)],
            Turn::Event(watcher::Event::Delete(object)) => {
                let old = self.remove(&key_of(&object));
                vec![Change { old: old.or_else(|| Some(Arc::new(object))), new: None }]
            }
        }
    }

    fn all_seen(&mut self) -> Vec<Change<K>> {
        self.complete = true;
        let listed = std::mem::take(&mut self.listed);
        let gone: Vec<Key> = self.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
        gone.iter().map(|key| Change { old: self.remove(key), new: None }).collect()
    }

    fn put(&mut self, object: K) -> Change<K> {
        let new = Arc::new(object);
        let key = key_of(&*new);
        let old = self.remove(&key);
        for value in (self.index)(&new) {
            self.indexed.entry((key.0.clone(), value)).or_default().insert(key.1.clone());
        }
        self.objects.insert(key, Arc::clone(&new));
        Change { old, new: Some(new) }
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        for value in (self.index)(&old) {
            let place = (key.0.clone(), value);
            let Some(names) = self.indexed.get_mut(&place) else { continue };
            names.remove(&key.1);
            if names.is_empty() {
                self.indexed.remove(&place);
            }
        }
        Some(old)
    }

    /// Whether a whole list has been seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.objects.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The objects of a namespace that the index has under a value.
    pub(crate) fn of<'a>(&'a self, namespace: &'a str, value: &str) -> impl Iterator<Item = &'a Arc<K>> {
        let names = self.indexed.get(&(namespace.to_owned(), value.to_owned()));
        names.into_iter().flatten().filter_map(move |name| self.get(namespace, name))
    }
}

/// The key of an object.
pub(crate) fn key_of<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The watcher resets the pauses whenever an attempt begins.
    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_not_served_is_asked_for_less_and_less() {
        let mut pauses = Pauses::default();
        let seconds: Vec<f64> = (0..8)
            .map(|_| {
                pauses.reset();
                pauses.next().expect("there is always a next pause").as_secs_f64()
            })
            .collect();
        assert_eq!(seconds, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]);
        tokio::time::sleep(QUIET * 2).await;
        pauses.reset();
        assert_eq!(pauses.next(), Some(PAUSE_MIN));
    }
}
