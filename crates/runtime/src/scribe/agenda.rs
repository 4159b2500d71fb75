//! What is to be looked at when: each thing once, the soonest first.

use std::collections::{BTreeMap, BTreeSet};

/// Things and the times at which they are due.
#[derive(Debug)]
pub(crate) struct Agenda<K> {
    due: BTreeMap<K, u64>,
    order: BTreeSet<(u64, K)>,
}

impl<K: Ord> Default for Agenda<K> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Agenda<K> {
    /// The thing is due then, unless it is due sooner.
    pub(crate) fn put(&mut self, key: &K, due_ms: u64) {
        if self.due.get(key).is_some_and(|old| *old <= due_ms) {
            return;
        }
        if let Some(old) = self.due.insert(key.clone(), due_ms) {
            self.order.remove(&(old, key.clone()));
        }
        self.order.insert((due_ms, key.clone()));
    }

    /// The thing is off the agenda.
    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(due_ms) = self.due.remove(key) {
            self.order.remove(&(due_ms, key.clone()));
        }
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.order.first().map(|(due_ms, _)| *due_ms)
    }

    /// Takes the next thing that is due.
    pub(crate) fn pop_due(&mut self, now_ms: u64) -> Option<K> {
        if self.next_due()? > now_ms {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.due.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_due_once_and_as_soon_as_anybody_said() {
        let mut agenda = Agenda::default();
        agenda.put(&"b", 20);
        agenda.put(&"a", 30);
        agenda.put(&"a", 10);
        agenda.put(&"a", 40);
        agenda.put(&"c", 15);
        agenda.remove(&"c");
        assert_eq!(agenda.next_due(), Some(10));
        assert_eq!(agenda.pop_due(9), None);
        assert_eq!((agenda.pop_due(100), agenda.pop_due(100), agenda.pop_due(100)), (Some("a"), Some("b"), None));
        assert_eq!(agenda.next_due(), None);
    }
}
