//! The reconcile loop: watch events add keys to a work queue, and one worker reconciles one key at a time.
//!
//! Invariant: all received events are observed before a key is reconciled, and no key is reconciled before the caches
//! have synced.
//! Must not depend on any kind.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use futures::{Stream, StreamExt};
use muster_reflector::Key;
use tokio::time::Instant;

const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The keys to reconcile, and when.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    due: BTreeMap<Key, Instant>,
    order: BTreeSet<(Instant, Key)>,
    failures: BTreeMap<Key, u32>,
}

impl WorkQueue {
    /// Adds a key for immediate processing.
    pub(crate) fn add(&mut self, key: Key) {
        self.add_at(key, Instant::now());
    }

    /// Adds a key for the given time; an earlier time that is already set stays.
    pub(crate) fn add_at(&mut self, key: Key, time: Instant) {
        match self.due.get(&key) {
            Some(due) if *due <= time => return,
            Some(due) => drop(self.order.remove(&(*due, key.clone()))),
            None => {}
        }
        self.order.insert((time, key.clone()));
        self.due.insert(key, time);
    }

    fn next_due(&self) -> Option<Instant> {
        self.order.first().map(|(time, _)| *time)
    }

    fn pop(&mut self) -> Option<Key> {
        let (_, key) = self.order.pop_first()?;
        self.due.remove(&key);
        Some(key)
    }

    /// Adds a key with exponential backoff.
    fn add_rate_limited(&mut self, key: Key) {
        let failures = self.failures.entry(key.clone()).or_default();
        let wait = RETRY_MIN.saturating_mul(1 << (*failures).min(16)).min(RETRY_MAX);
        *failures += 1;
        self.add_at(key, Instant::now() + wait);
    }
}

/// A controller that `run` drives.
pub(crate) trait Controller {
    /// An event of its watches.
    type Event;

    /// Applies an event to the caches and enqueues the keys it concerns.
    fn observe(&mut self, event: Self::Event, queue: &mut WorkQueue);

    /// Whether every watch has completed its initial list.
    fn has_synced(&self) -> bool;

    /// Reconciles a key. Returns the delay after which to do so again without an event.
    fn reconcile(&mut self, key: &Key) -> impl Future<Output = Result<Option<Duration>, kube::Error>> + Send;
}

/// Runs a controller until its watches end.
pub(crate) async fn run<C: Controller>(mut controller: C, mut events: impl Stream<Item = C::Event> + Unpin) {
    let mut queue = WorkQueue::default();
    loop {
        let due = queue.next_due().filter(|_| controller.has_synced());
        let turn = async {
            match due {
                Some(time) => tokio::time::sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = events.next() => match event {
                Some(event) => controller.observe(event, &mut queue),
                None => return,
            },
            () = turn => {
                let Some(key) = queue.pop() else { continue };
                match controller.reconcile(&key).await {
                    Ok(requeue_after) => {
                        queue.failures.remove(&key);
                        if let Some(wait) = requeue_after {
                            queue.add_at(key, Instant::now() + wait);
                        }
                    }
                    Err(_) => queue.add_rate_limited(key),
                }
            }
        }
    }
}
