//! A local copy of the objects of a watch, with what each event changed, and an optional index.
//!
//! Invariant: what was deleted while the watch was interrupted is reported as a change after the next list.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::{Resource, ResourceExt as _};

use crate::delta::Delta;
use crate::table::Table;

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
    objects: Table<Key, Arc<K>>,
    index: Index<K>,
    /// By namespace and indexed value: the objects by name.
    indexed: BTreeMap<Key, BTreeMap<String, Arc<K>>>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self::indexed_by(|_| Vec::new())
    }
}

impl<K> Cache<K> {
    /// A cache whose objects are found by these values too, without a walk over all of them.
    pub fn indexed_by(index: Index<K>) -> Self {
        Self { objects: Table::default(), index, indexed: BTreeMap::new() }
    }

    /// The cache of a kind that is not watched: empty and complete.
    pub fn unwatched() -> Self {
        Self { objects: Table::unwatched(), ..Self::default() }
    }

    /// Whether a whole list has been seen.
    pub fn has_synced(&self) -> bool {
        self.objects.has_synced()
    }

    /// The object of a key.
    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.entries.get(key)
    }

    /// The object of a namespace and name.
    pub fn find(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// All objects.
    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.entries.values()
    }

    /// The objects of a namespace.
    pub fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        let from = (namespace.to_owned(), String::new());
        self.objects.entries.range(from..).take_while(move |(key, _)| key.0 == namespace).map(|(_, object)| object)
    }

    /// The objects of a namespace that the index has under a value.
    pub fn by_index(&self, namespace: &str, value: &str) -> impl Iterator<Item = &Arc<K>> + use<'_, K> {
        let objects = self.indexed.get(&(namespace.to_owned(), value.to_owned()));
        objects.into_iter().flat_map(BTreeMap::values)
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
        let (object, gone) = self.objects.apply(event, key_of);
        let mut changes: Vec<_> = object.map(|object| self.put(object)).into_iter().collect();
        changes.extend(gone.iter().map(|key| Change { old: self.remove(key), new: None }));
        changes
    }

    /// Applies an event to a cache of only the objects that `keep` accepts: another object is not kept, and one that
    /// was accepted before is gone.
    pub fn apply_filtered(&mut self, event: Delta<K>, keep: impl Fn(&K) -> bool) -> Vec<Change<K>> {
        match event {
            Delta::Listed(object) if !keep(&object) => Vec::new(),
            Delta::Applied(object) if !keep(&object) => {
                let old = self.remove(&key_of(&object));
                old.map(|old| Change { old: Some(old), new: None }).into_iter().collect()
            }
            event => self.apply(event),
        }
    }

    fn put(&mut self, object: K) -> Change<K> {
        let new = Arc::new(object);
        let key = key_of(&*new);
        let old = self.remove(&key);
        for value in (self.index)(&new) {
            self.indexed.entry((key.0.clone(), value)).or_default().insert(key.1.clone(), Arc::clone(&new));
        }
        self.objects.entries.insert(key, Arc::clone(&new));
        Change { old, new: Some(new) }
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.objects.entries.remove(key)?;
        for value in (self.index)(&old) {
            let place = (key.0.clone(), value);
            let Some(objects) = self.indexed.get_mut(&place) else { continue };
            objects.remove(&key.1);
            if objects.is_empty() {
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
        assert!(cache.find("n", "a").is_none() && cache.find("n", "b").is_some());
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
    fn only_the_objects_of_the_namespace_are_returned() {
        let mut cache = Cache::default();
        for namespace in ["m", "n", "o"] {
            cache.apply(Delta::Applied(object("a", namespace)).modify(|object| {
                object.metadata.namespace = Some(namespace.to_owned());
            }));
        }
        assert_eq!(cache.in_namespace("n").flat_map(|object| by_app(object)).collect::<Vec<_>>(), ["n"]);
        assert_eq!((cache.all().count(), cache.in_namespace("l").count()), (3, 0));
    }

    #[test]
    fn an_object_that_the_filter_no_longer_accepts_is_gone() {
        let mut cache = Cache::default();
        let mut apply = |event| cache.apply_filtered(event, |object| by_app(object) == ["x"]).len();
        assert_eq!(
            [object("a", "x"), object("b", "y"), object("c", "x")].map(|one| apply(Delta::Listed(one))),
            [1, 0, 1]
        );
        assert_eq!(apply(Delta::Applied(object("a", "y"))), 1);
        assert_eq!(apply(Delta::Applied(object("a", "z"))), 0, "it was gone before");
        apply(Delta::ListStarted);
        assert_eq!((apply(Delta::Listed(object("c", "y"))), apply(Delta::ListDone)), (0, 1));
        assert_eq!(cache.all().count(), 0);
    }

    #[test]
    fn a_kind_that_is_no_longer_served_has_no_objects() {
        let mut cache = Cache::default();
        cache.apply(Delta::Applied(object("a", "x")));
        assert_eq!(cache.apply(Delta::NotServed).len(), 1);
        assert!(cache.has_synced() && cache.find("n", "a").is_none());
        assert!(Cache::<ConfigMap>::unwatched().has_synced());
    }
}
