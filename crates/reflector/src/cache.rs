//! A local copy of the objects of a watch, with what each event changed, and an optional index.
//!
//! Invariant: what was deleted while the watch was interrupted is reported as a change after the next list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::{Resource, ResourceExt as _};

use crate::delta::Delta;
use crate::relist::Relist;

/// Namespace and name; the namespace of a cluster-scoped object is empty.
pub type Key = (String, String);

/// The key of an object.
pub fn key_of<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// How one object changed.
#[derive(Debug)]
pub struct Change<K> {
    /// Its state before; nothing if it is new.
    pub old: Option<Arc<K>>,
    /// Its state now; nothing if it is gone.
    pub new: Option<Arc<K>>,
}

impl<K> Change<K> {
    /// The newest state that is known.
    pub fn latest(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// The values by which an object is found within its namespace.
type Index<K> = fn(&K) -> Vec<String>;

/// The objects that a watch has shown.
#[derive(Debug)]
pub struct Cache<K> {
    objects: BTreeMap<Key, Arc<K>>,
    index: Index<K>,
    /// By namespace and indexed value: the names of the objects.
    indexed: BTreeMap<Key, BTreeSet<String>>,
    relist: Relist<Key>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self::indexed_by(|_| Vec::new())
    }
}

impl<K> Cache<K> {
    /// A cache whose objects are found by these values too, without a walk over all of them.
    pub fn indexed_by(index: Index<K>) -> Self {
        Self { objects: BTreeMap::new(), index, indexed: BTreeMap::new(), relist: Relist::default() }
    }

    /// The cache of a kind that is not watched: empty and complete.
    pub fn unwatched() -> Self {
        Self { relist: Relist::unwatched(), ..Self::default() }
    }

    /// Whether a whole list has been seen.
    pub fn has_synced(&self) -> bool {
        self.relist.has_synced()
    }

    /// The object of a namespace and name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.objects.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The objects of a namespace that the index has under a value.
    pub fn by_index<'a>(&'a self, namespace: &'a str, value: &str) -> impl Iterator<Item = &'a Arc<K>> {
        let names = self.indexed.get(&(namespace.to_owned(), value.to_owned()));
        names.into_iter().flatten().filter_map(move |name| self.get(namespace, name))
    }
}

impl<K: Resource> Cache<K> {
    /// Applies an event, and returns what it changed.
    pub fn apply(&mut self, event: Delta<K>) -> Vec<Change<K>> {
        if let Delta::Deleted(object) = event {
            // The last state goes along: it may contain more than the one before it.
            let old = self.remove(&key_of(&object));
            return vec![Change { old: old.or_else(|| Some(Arc::new(object))), new: None }];
        }
        let (object, gone) = self.relist.apply(event, key_of, || self.objects.keys().cloned().collect());
        let mut changes: Vec<_> = object.map(|object| self.put(object)).into_iter().collect();
        changes.extend(gone.iter().map(|key| Change { old: self.remove(key), new: None }));
        changes
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(name: &str, app: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("n".to_owned());
        object.metadata.name = Some(name.to_owned());
        object.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
        object
    }

    fn by_app(object: &ConfigMap) -> Vec<String> {
        object.metadata.labels.iter().filter_map(|labels| labels.get("app").cloned()).collect()
    }

    fn names<'a>(objects: impl Iterator<Item = &'a Arc<ConfigMap>>) -> Vec<String> {
        objects.map(|object| object.name_any()).collect()
    }

    #[test]
    fn a_later_list_reports_what_was_deleted_meanwhile() {
        let mut cache = Cache::indexed_by(by_app);
        for event in [Delta::ListStarted, Delta::Listed(object("a", "x")), Delta::Listed(object("b", "x"))] {
            cache.apply(event);
        }
        assert!(!cache.has_synced());
        assert!(cache.apply(Delta::ListDone).is_empty() && cache.has_synced());
        cache.apply(Delta::ListStarted);
        cache.apply(Delta::Listed(object("b", "y")));
        let changes = cache.apply(Delta::ListDone);
        assert_eq!(changes.iter().map(|change| change.old.as_ref().unwrap().name_any()).collect::<Vec<_>>(), ["a"]);
        assert!(changes.iter().all(|change| change.new.is_none()));
        assert!(cache.get("n", "a").is_none() && cache.get("n", "b").is_some());
    }

    #[test]
    fn the_index_follows_every_change() {
        let mut cache = Cache::indexed_by(by_app);
        cache.apply(Delta::Applied(object("a", "x")));
        cache.apply(Delta::Applied(object("b", "x")));
        assert_eq!(names(cache.by_index("n", "x")), ["a", "b"]);
        cache.apply(Delta::Applied(object("a", "y")));
        assert_eq!(
            (names(cache.by_index("n", "x")), names(cache.by_index("n", "y"))),
            (vec!["b".into()], vec!["a".into()])
        );
        let changes = cache.apply(Delta::Deleted(object("b", "x")));
        assert_eq!(changes.len(), 1);
        assert_eq!(names(cache.by_index("n", "x")), Vec::<String>::new());
        assert_eq!(names(cache.by_index("other", "y")), Vec::<String>::new());
    }

    #[test]
    fn a_kind_that_is_no_longer_served_has_no_objects() {
        let mut cache = Cache::default();
        cache.apply(Delta::Applied(object("a", "x")));
        assert_eq!(cache.apply(Delta::NotServed).len(), 1);
        assert!(cache.has_synced() && cache.get("n", "a").is_none());
        assert!(Cache::<ConfigMap>::unwatched().has_synced());
    }
}
