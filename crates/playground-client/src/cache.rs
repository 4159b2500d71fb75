//! A cache fed by a watch, which reports what each event changed.
//!
//! Invariant: after a relist, objects that were deleted meanwhile are reported as changes too.
//! Must not depend on any kind.

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

/// The backoff of client-go without its jitter.
const BACKOFF_MIN: Duration = Duration::from_millis(800);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Namespace and name; the namespace is empty for cluster-scoped objects.
pub type Key = (String, String);

/// The key of an object.
pub fn key_of<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// A stream of watch events. A failed watch restarts with backoff.
pub fn watch<K>(api: Api<K>, config: watcher::Config) -> impl Stream<Item = watcher::Event<K>> + Send + Unpin + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // The error is dropped: the next list shows the current state.
    Box::pin(watcher(api, config).backoff(WatchBackoff::default()).filter_map(|event| std::future::ready(event.ok())))
}

/// Exponential backoff without jitter, so that a seed reproduces a run.
#[derive(Debug, Default)]
struct WatchBackoff {
    failures: u32,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(BACKOFF_MAX);
        self.failures += 1;
        Some(wait)
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A change of one object.
#[derive(Debug)]
pub struct Change<K> {
    /// The state before; nothing if the object is new.
    pub old: Option<Arc<K>>,
    /// The new state; nothing if the object is gone.
    pub new: Option<Arc<K>>,
}

/// The objects that the watch has shown.
#[derive(Debug)]
pub struct Cache<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// The keys seen in the current list.
    listed: BTreeSet<Key>,
    synced: bool,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeSet::new(), synced: false }
    }
}

impl<K: Resource<DynamicType = ()>> Cache<K> {
    /// Applies an event and returns the changes.
    pub fn apply(&mut self, event: watcher::Event<K>) -> Vec<Change<K>> {
        match event {
            watcher::Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                self.listed.insert(key_of(&object));
                vec![self.put(object)]
            }
            watcher::Event::InitDone => {
                self.synced = true;
                let listed = std::mem::take(&mut self.listed);
                let gone: Vec<Key> = self.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
                gone.iter().map(|key| Change { old: self.objects.remove(key), new: None }).collect()
            }
            watcher::Event::Apply(object) => vec![self.put(object)],
            watcher::Event::Delete(object) => {
                // The final state stands in if the object was never seen.
                let old = self.objects.remove(&key_of(&object));
                vec![Change { old: old.or_else(|| Some(Arc::new(object))), new: None }]
            }
        }
    }

    fn put(&mut self, object: K) -> Change<K> {
        let new = Arc::new(object);
        Change { old: self.objects.insert(key_of(&*new), Arc::clone(&new)), new: Some(new) }
    }

    /// Whether the initial list is complete.
    pub fn has_synced(&self) -> bool {
        self.synced
    }

    /// The object of a key.
    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    /// All objects.
    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// The objects of a namespace.
    pub fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        let from = (namespace.to_owned(), String::new());
        self.objects.range(from..).take_while(move |(key, _)| key.0 == namespace).map(|(_, object)| object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_api::wire::Pod;

    fn pod(name: &str) -> Pod {
        let json = serde_json::json!({"metadata": {"name": name, "namespace": "d"}});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn relist_reports_deleted_objects() {
        let mut cache = Cache::default();
        cache.apply(watcher::Event::Init);
        cache.apply(watcher::Event::InitApply(pod("a")));
        assert!(!cache.has_synced());
        cache.apply(watcher::Event::InitDone);
        cache.apply(watcher::Event::Apply(pod("b")));
        cache.apply(watcher::Event::Init);
        cache.apply(watcher::Event::InitApply(pod("b")));
        let changes = cache.apply(watcher::Event::InitDone);
        assert_eq!(changes.len(), 1);
        assert_eq!(key_of(&**changes[0].old.as_ref().unwrap()), ("d".to_owned(), "a".to_owned()));
        assert!(changes[0].new.is_none() && cache.has_synced());
        assert_eq!(cache.in_namespace("d").count(), 1);
        assert_eq!(cache.in_namespace("e").count(), 0);
    }
}
