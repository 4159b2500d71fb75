//! A work queue with delays and exponential retry. An item is never processed twice at the same time.
//!
//! An item that is written again and again has to pause too: another client undoes what is written, for example the garbage
//! collector, if the owner of an object is gone and the cache does not show that yet.
//!
//! Must not depend on what is done with an item.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// So many times in a row an item is written without a pause.
const WRITES_AT_ONCE: u32 = 8;
/// Writes that are further apart are not in a row.
const IN_A_ROW: Duration = Duration::from_secs(60);
/// With so many items, those that were not written for long are forgotten.
const WRITTEN_MIN: usize = 1024;

/// The items to process, by due time.
#[derive(Debug)]
pub(crate) struct WorkQueue<S> {
    due: BTreeMap<S, Instant>,
    order: BTreeSet<(Instant, S)>,
    /// The items in progress, and when each is due again.
    busy: BTreeMap<S, Option<Instant>>,
    failures: BTreeMap<S, u32>,
    written: BTreeMap<S, Written>,
    /// With so many entries in `written`, old ones are removed.
    sweep_at: usize,
}

/// How often an item was written in a row.
#[derive(Clone, Copy, Debug)]
struct Written {
    times: u32,
    last: Instant,
    not_before: Instant,
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is as desired, or was written. It may be requeued after a delay.
    Done { wrote: bool, requeue_after: Option<Duration> },
    /// It is retried with backoff.
    Failed,
}

impl<S: Ord + Clone> Default for WorkQueue<S> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            order: BTreeSet::new(),
            busy: BTreeMap::new(),
            failures: BTreeMap::new(),
            written: BTreeMap::new(),
            sweep_at: WRITTEN_MIN,
        }
    }
}

impl<S: Ord + Clone> WorkQueue<S> {
    /// Adds an item for this time. An earlier due time of the same item stays.
    pub(crate) fn add_at(&mut self, item: S, time: Instant) {
        if let Some(again) = self.busy.get_mut(&item) {
            *again = Some(again.map_or(time, |known| known.min(time)));
            return;
        }
        let time = self.written.get(&item).map_or(time, |written| written.not_before.max(time));
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

    /// Finishes an item.
    pub(crate) fn done(&mut self, item: S, outcome: Outcome) {
        let again = self.busy.remove(&item).flatten();
        let now = Instant::now();
        let Outcome::Done { wrote, requeue_after } = outcome else {
            let failures = self.failures.entry(item.clone()).or_default();
            let delay = RETRY_MIN.saturating_mul(1 << (*failures).min(16)).min(RETRY_MAX);
            *failures += 1;
            // An event during processing does not shorten the backoff.
            return self.add_at(item, now + delay);
        };
        self.failures.remove(&item);
        if wrote {
            self.count_write(&item, now);
        }
        if let Some(time) = [again, requeue_after.map(|delay| now + delay)].into_iter().flatten().min() {
            self.add_at(item, time);
        }
    }

    fn count_write(&mut self, item: &S, now: Instant) {
        if self.written.len() >= self.sweep_at {
            self.written.retain(|_, written| now.duration_since(written.last) < IN_A_ROW);
            self.sweep_at = WRITTEN_MIN.max(2 * self.written.len());
        }
        let before = self.written.get(item).filter(|written| now.duration_since(written.last) < IN_A_ROW);
        let times = before.map_or(1, |written| written.times.saturating_add(1));
        let pause = match times.checked_sub(WRITES_AT_ONCE + 1) {
            Some(over) => RETRY_MIN.saturating_mul(1 << over.min(16)).min(RETRY_MAX),
            None => Duration::ZERO,
        };
        self.written.insert(item.clone(), Written { times, last: now, not_before: now + pause });
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
        queue.done("a", Outcome::Failed);
        assert_eq!(queue.next_due(), Some(now + RETRY_MIN));
        assert_eq!(queue.pop(now + RETRY_MIN), Some("a"));
        queue.done("a", Outcome::Failed);
        assert_eq!(queue.next_due(), Some(now + RETRY_MIN * 2));
        assert_eq!(queue.pop(now + RETRY_MIN * 2), Some("a"));
        queue.add_at("a", now);
        let unchanged = Outcome::Done { wrote: false, requeue_after: None };
        queue.done("a", unchanged);
        assert_eq!(queue.pop(now), Some("a"), "an event during processing requeues the item");
        queue.done("a", unchanged);
        assert_eq!(queue.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn item_that_is_written_again_and_again_has_to_pause() {
        let mut queue = WorkQueue::default();
        let wrote = Outcome::Done { wrote: true, requeue_after: None };
        let write = |queue: &mut WorkQueue<&str>| {
            queue.add_at("a", Instant::now());
            let due = queue.next_due().expect("it is in the queue");
            assert_eq!(queue.pop(due), Some("a"));
            queue.done("a", wrote);
            due - Instant::now()
        };
        for _ in 0..=WRITES_AT_ONCE {
            assert_eq!(write(&mut queue), Duration::ZERO);
        }
        assert_eq!((write(&mut queue), write(&mut queue)), (RETRY_MIN, RETRY_MIN * 2));
        queue.add_at("b", Instant::now());
        assert_eq!(queue.pop(Instant::now()), Some("b"), "others do not");
        tokio::time::advance(IN_A_ROW).await;
        assert_eq!(write(&mut queue), Duration::ZERO, "after a while it counts from one again");
    }

    #[tokio::test(start_paused = true)]
    async fn items_that_were_written_long_ago_are_forgotten() {
        let mut queue = WorkQueue::default();
        for item in 0..10 * WRITTEN_MIN {
            queue.add_at(item, Instant::now());
            queue.pop(Instant::now());
            queue.done(item, Outcome::Done { wrote: true, requeue_after: None });
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(queue.written.len() <= WRITTEN_MIN, "{}", queue.written.len());
    }
}
