//! Mark and sweep over lists: an object that a later list does not contain is gone.

use std::collections::BTreeSet;

use crate::delta::Delta;

/// The keys that the list in progress has contained so far.
#[derive(Debug)]
pub struct Relist<Key> {
    listed: Option<BTreeSet<Key>>,
    complete: bool,
}

impl<Key> Default for Relist<Key> {
    fn default() -> Self {
        Self { listed: None, complete: false }
    }
}

impl<Key: Ord + Clone> Relist<Key> {
    /// A kind that is not watched: its list is complete from the start.
    pub fn unwatched() -> Self {
        Self { listed: None, complete: true }
    }

    /// Whether a whole list has been seen.
    pub fn has_synced(&self) -> bool {
        self.complete
    }

    /// Applies an event: the object that exists now, and the keys of those that are gone. `known` are all keys so far.
    pub fn apply<T>(
        &mut self,
        event: Delta<T>,
        key: impl Fn(&T) -> Key,
        known: impl Fn() -> Vec<Key>,
    ) -> (Option<T>, Vec<Key>) {
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
            Delta::NotServed => {
                self.listed = None;
                self.complete = true;
                (None, known())
            }
            Delta::ListDone => {
                let listed = self.listed.take().unwrap_or_default();
                self.complete = true;
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
    fn an_object_that_a_new_list_does_not_contain_is_gone() {
        let mut relist = Relist::default();
        let mut apply = |event| relist.apply(event, |key: &u32| *key, || vec![1, 2, 3]);
        assert_eq!(apply(Delta::ListStarted), (None, vec![]));
        assert_eq!(apply(Delta::Listed(2)), (Some(2), vec![]));
        assert_eq!(apply(Delta::ListDone), (None, vec![1, 3]));
        assert_eq!(apply(Delta::Deleted(3)), (None, vec![3]));
        assert!(relist.has_synced());
    }

    #[test]
    fn a_list_that_was_cut_short_removes_nothing() {
        let mut relist = Relist::default();
        let mut apply = |event| relist.apply(event, |key: &u32| *key, || vec![1, 2]);
        apply(Delta::ListStarted);
        apply(Delta::Listed(1));
        apply(Delta::ListStarted);
        apply(Delta::Listed(2));
        assert_eq!(apply(Delta::ListDone), (None, vec![1]));
    }
}
