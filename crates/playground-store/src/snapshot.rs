//! A table at one revision: the current objects, with the earlier versions of those that have changed since.
//!
//! Pages of a list are read at the revision of the first page, so a page must cost what it contains, not what the table
//! contains.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::object::{Key, Object};

/// A table at one revision.
#[derive(Debug)]
pub struct Snapshot<'a> {
    current: &'a BTreeMap<Key, Arc<Object>>,
    /// Objects that have changed since, as they were at the revision, if they existed.
    changed_since: BTreeMap<&'a Key, Option<&'a Arc<Object>>>,
}

impl<'a> Snapshot<'a> {
    pub(super) fn new(
        current: &'a BTreeMap<Key, Arc<Object>>,
        changed_since: BTreeMap<&'a Key, Option<&'a Arc<Object>>>,
    ) -> Self {
        Self { current, changed_since }
    }

    /// The objects from a key on, in the order of keys.
    pub fn iter_from(&self, start: &Key) -> impl Iterator<Item = &'a Arc<Object>> {
        let mut current =
            self.current.range(start.clone()..).filter(|(key, _)| !self.changed_since.contains_key(key)).peekable();
        let changed_since =
            self.changed_since.range::<Key, _>(start..).filter_map(|(key, object)| Some((*key, (*object)?)));
        let mut changed_since = changed_since.peekable();
        std::iter::from_fn(move || {
            let take_changed = match (current.peek(), changed_since.peek()) {
                (Some((now, _)), Some((before, _))) => before < now,
                (None, Some(_)) => true,
                (_, None) => false,
            };
            let next = if take_changed { changed_since.next() } else { current.next() };
            next.map(|(_, object)| object)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, revision: u64) -> Arc<Object> {
        let value = json!({"metadata": {"namespace": "n", "name": name, "uid": name}});
        Arc::new(Object::encode(value, revision, &[""; 0]))
    }

    #[test]
    fn changed_objects_appear_as_they_were_and_in_order() {
        let all: Vec<_> = ["a", "b", "d", "f"].map(|name| object(name, 9)).into();
        let current = all.iter().map(|object| (object.key.clone(), Arc::clone(object))).collect();
        let (deleted, changed) = (object("c", 2), object("f", 3));
        let new = Key::new("n", "b");
        let changed_since =
            BTreeMap::from([(&deleted.key, Some(&deleted)), (&changed.key, Some(&changed)), (&new, None)]);
        let snapshot = Snapshot::new(&current, changed_since);
        let iter_from = |name: &str| -> Vec<(String, u64)> {
            snapshot
                .iter_from(&Key::new("n", name))
                .map(|object| (object.key.name.to_string(), object.revision))
                .collect()
        };
        let all = [("a", 9), ("c", 2), ("d", 9), ("f", 3)].map(|(name, revision)| (name.to_owned(), revision));
        assert_eq!(iter_from(""), all);
        assert_eq!(iter_from("b"), all[1..]);
        assert_eq!(iter_from("e"), all[3..]);
        assert!(iter_from("g").is_empty());
    }
}
