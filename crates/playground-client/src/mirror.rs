//! What a watch has shown so far: a copy of the objects, and what each event changed in it.
//!
//! Invariant: after a watch was cut and listed again, what went meanwhile is told as a change too.
//! It must not know any kind.

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

/// What client-go waits as well, without its chance.
const WAIT_MIN: Duration = Duration::from_millis(800);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Namespace and name; the namespace is empty where there is none.
pub type Key = (String, String);

/// The key of an object.
pub fn key_of<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The events of a watch that starts again, later and later, whenever it fails.
pub fn watch<K>(api: Api<K>, config: watcher::Config) -> impl Stream<Item = watcher::Event<K>> + Send + Unpin + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // A failure says nothing that the next list does not say better.
    Box::pin(watcher(api, config).backoff(Patience::default()).filter_map(|event| std::future::ready(event.ok())))
}

/// How long a failed watch waits: longer each time, and never by chance, so that a seed replays.
#[derive(Debug, Default)]
struct Patience {
    failures: u32,
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = WAIT_MIN.saturating_mul(1 << self.failures.min(16)).min(WAIT_MAX);
        self.failures += 1;
        Some(wait)
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.failures = 0;
    }
}

/// What became of one object.
#[derive(Debug)]
pub struct Change<K> {
    /// As it was before; nothing if it is new.
    pub old: Option<Arc<K>>,
    /// As it is; nothing if it is gone.
    pub new: Option<Arc<K>>,
}

/// A copy of what there is.
#[derive(Debug)]
pub struct Mirror<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// What the list under way has shown.
    listed: BTreeSet<Key>,
    complete: bool,
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeSet::new(), complete: false }
    }
}

impl<K: Resource<DynamicType = ()>> Mirror<K> {
    /// Takes in an event.
    pub fn take(&mut self, event: watcher::Event<K>) -> Vec<Change<K>> {
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
                self.complete = true;
                let listed = std::mem::take(&mut self.listed);
                let gone: Vec<Key> = self.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
                gone.iter().map(|key| Change { old: self.objects.remove(key), new: None }).collect()
            }
            watcher::Event::Apply(object) => vec![self.put(object)],
            watcher::Event::Delete(object) => {
                // The last state goes along: it may say more than what was seen before.
                let old = self.objects.remove(&key_of(&object));
                vec![Change { old: old.or_else(|| Some(Arc::new(object))), new: None }]
            }
        }
    }

    fn put(&mut self, object: K) -> Change<K> {
        let new = Arc::new(object);
        Change { old: self.objects.insert(key_of(&*new), Arc::clone(&new)), new: Some(new) }
    }

    /// Whether a whole list has been seen.
    pub fn is_complete(&self) -> bool {
        self.complete
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
    pub fn within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
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
    fn a_second_list_tells_what_went_meanwhile() {
        let mut mirror = Mirror::default();
        mirror.take(watcher::Event::Init);
        mirror.take(watcher::Event::InitApply(pod("a")));
        assert!(!mirror.is_complete());
        mirror.take(watcher::Event::InitDone);
        mirror.take(watcher::Event::Apply(pod("b")));
        mirror.take(watcher::Event::Init);
        mirror.take(watcher::Event::InitApply(pod("b")));
        let changes = mirror.take(watcher::Event::InitDone);
        assert_eq!(changes.len(), 1);
        assert_eq!(key_of(&**changes[0].old.as_ref().unwrap()), ("d".to_owned(), "a".to_owned()));
        assert!(changes[0].new.is_none() && mirror.is_complete());
        assert_eq!(mirror.within("d").count(), 1);
        assert_eq!(mirror.within("e").count(), 0);
    }
}
