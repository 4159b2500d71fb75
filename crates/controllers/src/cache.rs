//! A local cache fed by a watch, and the changes that each watch event makes in it.
//!
//! Invariants: when a broken watch lists again, objects that are gone are reported as changes too. A kind that the
//! cluster does not serve has no objects. Must not depend on any particular kind.

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

const PAGE_SIZE: u32 = 500;
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(60);

/// Namespace and name.
pub(crate) type Key = (String, String);

/// What a watch delivers.
#[derive(Debug)]
pub(crate) enum WatchEvent<K> {
    /// An event of the watcher.
    Event(watcher::Event<K>),
    /// The cluster does not serve the kind.
    NotServed,
}

/// The events of a watch that is restarted with exponential backoff when it fails.
pub(crate) fn watch<K>(
    what: &'static str,
    api: Api<K>,
    labels: Option<&str>,
) -> impl Stream<Item = WatchEvent<K>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Clone + Send,
{
    let mut config = watcher::Config::default().page_size(PAGE_SIZE);
    if let Some(labels) = labels {
        config = config.labels(labels);
    }
    let translate = move |event: watcher::Result<watcher::Event<K>>| match event {
        Ok(event) => Some(WatchEvent::Event(event)),
        Err(error) if is_not_served(&error) => Some(WatchEvent::NotServed),
        Err(error) => {
            tracing::warn!(what, %error, "the watch failed and will be restarted");
            None
        }
    };
    let events = watcher(api, config).backoff(WatchBackoff::default());
    events.filter_map(move |event| std::future::ready(translate(event)))
}

fn is_not_served(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Exponential backoff without jitter, so that tests are repeatable. It resets only after a time without failures: the
/// watcher asks for a reset at the start of every attempt, and without this delay a kind that the cluster does not
/// serve would be listed twice a second forever.
#[derive(Debug)]
struct WatchBackoff {
    next: Duration,
    last: Option<Instant>,
}

impl Default for WatchBackoff {
    fn default() -> Self {
        Self { next: BACKOFF_MIN, last: None }
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.next;
        self.next = (delay * 2).min(BACKOFF_MAX);
        self.last = Some(Instant::now());
        Some(delay)
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() > BACKOFF_RESET_AFTER) {
            *self = Self::default();
        }
    }
}

/// A change of one object.
#[derive(Debug)]
pub(crate) struct Change<K> {
    pub(crate) old: Option<Arc<K>>,
    pub(crate) new: Option<Arc<K>>,
}

impl<K> Change<K> {
    /// The object after the change or, if it was deleted, before it.
    pub(crate) fn latest(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// The index values of an object, within its namespace.
type IndexFunc<K> = fn(&K) -> Vec<String>;

/// A local cache of the objects of one kind.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    objects: BTreeMap<Key, Arc<K>>,
    index: IndexFunc<K>,
    /// The names of the objects by namespace and index value.
    indexed: BTreeMap<Key, BTreeSet<String>>,
    /// The objects that the running list has delivered so far.
    listed: BTreeSet<Key>,
    synced: bool,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self::indexed_by(|_| Vec::new())
    }
}

impl<K> Cache<K> {
    /// A cache with an index, for lookups that are as frequent as the objects.
    pub(crate) fn indexed_by(index: IndexFunc<K>) -> Self {
        let (objects, indexed, listed) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { objects, index, indexed, listed, synced: false }
    }

    /// A cache of a kind that is not watched: it is always empty and synced.
    pub(crate) fn unwatched() -> Self {
        Self { synced: true, ..Self::default() }
    }
}

impl<K: Resource> Cache<K> {
    /// Applies a watch event and returns what it changed.
    pub(crate) fn apply(&mut self, event: WatchEvent<K>) -> Vec<Change<K>> {
        match event {
            WatchEvent::NotServed => {
                self.listed.clear();
                self.finish_list()
            }
            WatchEvent::Event(watcher::Event::Init) => {
                self.listed.clear();
                Vec::new()
            }
            WatchEvent::Event(watcher::Event::InitApply(object)) => {
                self.listed.insert(key_of(&object));
                vec![self.put(object)]
            }
            WatchEvent::Event(watcher::Event::InitDone) => self.finish_list(),
            WatchEvent::Event(watcher::Event::Apply(object)) => vec![self.put(object)],
            WatchEvent::Event(watcher::Event::Delete(object)) => {
                let old = self.remove(&key_of(&object));
                vec![Change { old: old.or_else(|| Some(Arc::new(object))), new: None }]
            }
        }
    }

    fn finish_list(&mut self) -> Vec<Change<K>> {
        self.synced = true;
        let listed = std::mem::take(&mut self.listed);
        let deleted: Vec<Key> = self.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
        deleted.iter().map(|key| Change { old: self.remove(key), new: None }).collect()
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
            let index_key = (key.0.clone(), value);
            let Some(names) = self.indexed.get_mut(&index_key) else { continue };
            names.remove(&key.1);
            if names.is_empty() {
                self.indexed.remove(&index_key);
            }
        }
        Some(old)
    }

    /// Whether the initial list is complete.
    pub(crate) fn has_synced(&self) -> bool {
        self.synced
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.objects.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The objects of a namespace with this index value.
    pub(crate) fn by_index<'a>(&'a self, namespace: &'a str, value: &str) -> impl Iterator<Item = &'a Arc<K>> {
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

    /// The watcher resets the backoff at the start of every attempt.
    #[tokio::test(start_paused = true)]
    async fn kind_that_is_not_served_is_listed_with_growing_backoff() {
        let mut backoff = WatchBackoff::default();
        let seconds: Vec<f64> = (0..8)
            .map(|_| {
                backoff.reset();
                backoff.next().expect("the backoff never ends").as_secs_f64()
            })
            .collect();
        assert_eq!(seconds, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]);
        tokio::time::sleep(BACKOFF_RESET_AFTER * 2).await;
        backoff.reset();
        assert_eq!(backoff.next(), Some(BACKOFF_MIN));
    }
}
