//! Tracks one watch: after a relist, objects that the new list does not contain are gone.

use std::collections::BTreeSet;

/// A change delivered by a watch.
#[derive(Debug)]
pub(crate) enum Delta<T> {
    /// A relist begins.
    ListStarted,
    /// One object of the list.
    Listed(T),
    /// The list is complete.
    ListDone,
    /// The cluster does not serve the kind: there are no such objects.
    NotServed,
    /// An object was added or changed.
    Applied(T),
    /// An object was deleted.
    Deleted(T),
}

/// The state of one watch.
#[derive(Debug)]
pub(crate) struct Relist<Key> {
    listed: Option<BTreeSet<Key>>,
    synced: bool,
}

impl<Key> Default for Relist<Key> {
    fn default() -> Self {
        Self { listed: None, synced: false }
    }
}

impl<Key: Ord + Clone> Relist<Key> {
    /// Whether a complete list was delivered.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Applies a delta; returns the object that exists and the keys of those that are gone.
    pub(crate) fn apply<T>(
        &mut self,
        delta: Delta<T>,
        key: impl Fn(&T) -> Key,
        known: impl Fn() -> Vec<Key>,
    ) -> (Option<T>, Vec<Key>) {
        match delta {
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
            Delta::NotServed => {
                self.listed = None;
                self.synced = true;
                (None, known())
            }
            Delta::ListDone => {
                let listed = self.listed.take().unwrap_or_default();
                self.synced = true;
                (None, known().into_iter().filter(|key| !listed.contains(key)).collect())
            }
            Delta::Applied(object) => (Some(object), Vec::new()),
            Delta::Deleted(object) => (None, vec![key(&object)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_missing_in_a_new_list_are_gone() {
        let mut relist = Relist::default();
        let mut take = |delta| relist.apply(delta, |key: &u32| *key, || vec![1, 2, 3]);
        assert_eq!(take(Delta::ListStarted), (None, vec![]));
        assert_eq!(take(Delta::Listed(2)), (Some(2), vec![]));
        assert_eq!(take(Delta::ListDone), (None, vec![1, 3]));
        assert_eq!(take(Delta::Deleted(3)), (None, vec![3]));
        assert!(relist.is_synced());
    }

    #[test]
    fn an_interrupted_list_deletes_nothing() {
        let mut relist = Relist::default();
        let mut take = |delta| relist.apply(delta, |key: &u32| *key, || vec![1, 2]);
        take(Delta::ListStarted);
        take(Delta::Listed(1));
        take(Delta::ListStarted);
        take(Delta::Listed(2));
        assert_eq!(take(Delta::ListDone), (None, vec![1]));
    }
}
