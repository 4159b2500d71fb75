//! A queue of keys by due time; each key is in it once.

use std::collections::{BTreeMap, BTreeSet};

/// Keys and the times at which they are due.
#[derive(Debug)]
pub(crate) struct WorkQueue<K> {
    due: BTreeMap<K, u64>,
    order: BTreeSet<(u64, K)>,
}

impl<K: Ord> Default for WorkQueue<K> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> WorkQueue<K> {
    /// Adds a key, or moves it forward if it is due later.
    pub(crate) fn put(&mut self, key: &K, due_ms: u64) {
        if self.due.get(key).is_some_and(|old| *old <= due_ms) {
            return;
        }
        if let Some(old) = self.due.insert(key.clone(), due_ms) {
            self.order.remove(&(old, key.clone()));
        }
        self.order.insert((due_ms, key.clone()));
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(due_ms) = self.due.remove(key) {
            self.order.remove(&(due_ms, key.clone()));
        }
    }

    /// The time at which the next key is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.order.first().map(|(due_ms, _)| *due_ms)
    }

    /// Removes and returns the next key that is due.
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
    fn a_key_is_queued_once_at_its_earliest_due_time() {
        let mut work_queue = WorkQueue::default();
        work_queue.put(&"b", 20);
        work_queue.put(&"a", 30);
        work_queue.put(&"a", 10);
        work_queue.put(&"a", 40);
        work_queue.put(&"c", 15);
        work_queue.remove(&"c");
        assert_eq!(work_queue.next_due(), Some(10));
        assert_eq!(work_queue.pop_due(9), None);
        assert_eq!(
            (work_queue.pop_due(100), work_queue.pop_due(100), work_queue.pop_due(100)),
            (Some("a"), Some("b"), None)
        );
        assert_eq!(work_queue.next_due(), None);
    }
}
