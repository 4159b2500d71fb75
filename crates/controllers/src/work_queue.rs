//! A work queue with delays and exponential retry. An item is never processed twice at the same time.
//!
//! Must not depend on what is done with an item.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The items to process, by due time.
#[derive(Debug)]
pub(crate) struct WorkQueue<S> {
    due: BTreeMap<S, Instant>,
    order: BTreeSet<(Instant, S)>,
    /// The items in progress, and when each is due again.
    busy: BTreeMap<S, Option<Instant>>,
    failures: BTreeMap<S, u32>,
}

impl<S: Ord + Clone> Default for WorkQueue<S> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), order: BTreeSet::new(), busy: BTreeMap::new(), failures: BTreeMap::new() }
    }
}

impl<S: Ord + Clone> WorkQueue<S> {
    /// Adds an item for this time. An earlier due time of the same item stays.
    pub(crate) fn add_at(&mut self, item: S, time: Instant) {
        if let Some(again) = self.busy.get_mut(&item) {
            *again = Some(again.map_or(time, |known| known.min(time)));
            return;
        }
        match self.due.get(&item) {
            Some(due) if *due <= time => return,
            Some(due) => drop(self.order.remove(&(*due, item.clone()))),
            None => {}
        }
        self.order.insert((time, item.clone()));
        self.due.insert(item, time);
    }

    /// When the next item is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.order.first().map(|(time, _)| *time)
    }

    /// Takes an item that is due and marks it as in progress.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<S> {
        if self.next_due()? > now {
            return None;
        }
        let (_, item) = self.order.pop_first()?;
        self.due.remove(&item);
        self.busy.insert(item.clone(), None);
        Some(item)
    }

    /// Finishes an item: on success it may be requeued after a delay, on failure it is retried with backoff.
    pub(crate) fn done(&mut self, item: S, outcome: Result<Option<Duration>, ()>) {
        let again = self.busy.remove(&item).flatten();
        let now = Instant::now();
        let Ok(requeue_after) = outcome else {
            let failures = self.failures.entry(item.clone()).or_default();
            let delay = RETRY_MIN.saturating_mul(1 << (*failures).min(16)).min(RETRY_MAX);
            *failures += 1;
            // An event during processing does not shorten the backoff.
            return self.add_at(item, now + delay);
        };
        self.failures.remove(&item);
        if let Some(time) = [again, requeue_after.map(|delay| now + delay)].into_iter().flatten().min() {
            self.add_at(item, time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn item_is_processed_once_at_a_time_and_failures_back_off() {
        let mut queue = WorkQueue::default();
        let now = Instant::now();
        queue.add_at("a", now);
        queue.add_at("a", now + RETRY_MAX);
        assert_eq!(queue.pop(now), Some("a"));
        queue.add_at("a", now);
        assert_eq!(queue.pop(now), None, "it is in progress");
        queue.done("a", Err(()));
        assert_eq!(queue.next_due(), Some(now + RETRY_MIN));
        assert_eq!(queue.pop(now + RETRY_MIN), Some("a"));
        queue.done("a", Err(()));
        assert_eq!(queue.next_due(), Some(now + RETRY_MIN * 2));
        assert_eq!(queue.pop(now + RETRY_MIN * 2), Some("a"));
        queue.add_at("a", now);
        queue.done("a", Ok(None));
        assert_eq!(queue.pop(now), Some("a"), "an event during processing requeues the item");
        queue.done("a", Ok(None));
        assert_eq!(queue.next_due(), None);
    }
}
