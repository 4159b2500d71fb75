//! What is kept of the objects of a watch, by key. Mark and sweep over lists: an object that a later list does not
//! contain is gone.

use std::collections::{BTreeMap, BTreeSet};

use crate::delta::Delta;

/// What is kept of the objects of a watch, by key.
#[derive(Debug)]
pub struct Table<Key, Value> {
    /// What is kept, for its user to read and change.
    pub entries: BTreeMap<Key, Value>,
    /// The keys that the list in progress has contained so far.
    listed: Option<BTreeSet<Key>>,
    complete: bool,
    served: Option<bool>,
}

impl<Key, Value> Default for Table<Key, Value> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), listed: None, complete: false, served: None }
    }
}

impl<Key: Ord + Clone, Value> Table<Key, Value> {
    /// The table of a kind that is not watched: empty and complete.
    pub fn unwatched() -> Self {
        Self { complete: true, ..Self::default() }
    }

    /// Whether a whole list has been seen.
    pub fn has_synced(&self) -> bool {
        self.complete
    }

    /// Whether the cluster serves the kind; nothing if that is not known yet.
    pub fn is_served(&self) -> Option<bool> {
        self.served
    }

    /// Applies an event: the object that exists now, and the keys of those that are gone. The caller updates
    /// the entries, in the order of its own side effects.
    pub fn apply<T>(&mut self, event: Delta<T>, key: impl Fn(&T) -> Key) -> (Option<T>, Vec<Key>) {
        match event {
            Delta::NotServed => (self.served, self.listed) = (Some(false), None),
            Delta::Listed(_) | Delta::ListDone | Delta::Applied(_) => self.served = Some(true),
            Delta::ListStarted | Delta::Deleted(_) => {}
        }
        match event {
            Delta::ListStarted => {
                self.listed = Some(BTreeSet::new());
                (None, Vec::new())
            }
            Delta::Listed(object) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(key(&object));
                }
                (Some(object), Vec::new())
            }
            Delta::ListDone | Delta::NotServed => {
                let listed = self.listed.take().unwrap_or_default();
                self.complete = true;
                (None, self.entries.keys().filter(|key| !listed.contains(key)).cloned().collect())
            }
            Delta::Applied(object) => (Some(object), Vec::new()),
            Delta::Deleted(object) => (None, vec![key(&object)]),
        }
    }
}

impl<Key: Ord + Clone, Value: PartialEq> Table<Key, Value> {
    /// Applies an event and keeps what `read` makes of the object: the keys whose value has changed, and why the object
    /// cannot be read, in which case its old value stays.
    pub fn update<T, E>(
        &mut self,
        event: Delta<T>,
        key: impl Fn(&T) -> Key,
        read: impl FnOnce(T) -> Result<Value, E>,
    ) -> (Vec<Key>, Option<E>) {
        let (object, gone) = self.apply(event, &key);
        let mut changed: Vec<Key> = gone.into_iter().filter(|key| self.entries.remove(key).is_some()).collect();
        let Some(object) = object else { return (changed, None) };
        let key = key(&object);
        match read(object) {
            Ok(value) if self.entries.get(&key) == Some(&value) => (changed, None),
            Ok(value) => {
                self.entries.insert(key.clone(), value);
                changed.push(key);
                (changed, None)
            }
            Err(error) => (changed, Some(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies an event about an object that is its own key.
    fn apply(table: &mut Table<u32, ()>, event: Delta<u32>) -> (Option<u32>, Vec<u32>) {
        table.apply(event, |key| *key)
    }

    fn table() -> Table<u32, ()> {
        Table { entries: [1, 2, 3].map(|key| (key, ())).into(), ..Table::default() }
    }

    #[test]
    fn an_object_that_a_new_list_does_not_contain_is_gone() {
        let mut table = table();
        assert_eq!(apply(&mut table, Delta::ListStarted), (None, vec![]));
        assert_eq!(apply(&mut table, Delta::Listed(2)), (Some(2), vec![]));
        assert!(!table.has_synced());
        assert_eq!(apply(&mut table, Delta::ListDone), (None, vec![1, 3]));
        assert_eq!(apply(&mut table, Delta::Deleted(3)), (None, vec![3]));
        assert!(table.has_synced());
    }

    #[test]
    fn a_list_that_was_cut_short_removes_nothing() {
        let mut table = table();
        for event in [Delta::ListStarted, Delta::Listed(1), Delta::ListStarted, Delta::Listed(2), Delta::Listed(3)] {
            assert!(apply(&mut table, event).1.is_empty());
        }
        assert_eq!(apply(&mut table, Delta::ListDone), (None, vec![1]));
    }

    #[test]
    fn a_kind_that_is_not_served_has_no_objects() {
        let mut table = table();
        apply(&mut table, Delta::ListStarted);
        assert_eq!(table.is_served(), None);
        apply(&mut table, Delta::Listed(1));
        assert_eq!(table.is_served(), Some(true));
        assert_eq!(apply(&mut table, Delta::NotServed), (None, vec![1, 2, 3]));
        assert_eq!((table.is_served(), table.has_synced()), (Some(false), true));
    }

    #[test]
    fn an_update_returns_what_has_changed_and_an_error_keeps_the_old_value() {
        let mut table = Table::default();
        let mut update = |event| table.update(event, |(key, _): &(u32, i32)| *key, |(_, value)| u8::try_from(value));
        let unchanged = (vec![], None);
        assert_eq!(update(Delta::Applied((1, 5))), (vec![1], None));
        assert_eq!(update(Delta::Applied((1, 5))), unchanged);
        let (changed, error) = update(Delta::Applied((1, -1)));
        assert!(changed.is_empty() && error.is_some());
        assert_eq!(update(Delta::Applied((1, 5))), unchanged, "the old value is still there");
        assert_eq!(update(Delta::Deleted((2, 0))), unchanged, "it was not known");
        assert_eq!(update(Delta::ListStarted), unchanged);
        assert_eq!(update(Delta::Listed((2, 6))), (vec![2], None));
        assert_eq!(update(Delta::ListDone), (vec![1], None));
        assert_eq!(table.entries, [(2, 6)].into());
    }
}
