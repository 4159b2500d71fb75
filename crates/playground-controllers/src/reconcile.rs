//! The loop of a small controller: watch events make keys dirty, and one worker looks after one key at a time.
//!
//! Invariant: all events that have come in are seen before a key is looked after, and none before every first list.
//! It must not know any kind.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use futures::{Stream, StreamExt};
use muster_playground_client::mirror::Key;
use tokio::time::Instant;

const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Keys that are to be looked after, and when.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    due: BTreeMap<Key, Instant>,
    order: BTreeSet<(Instant, Key)>,
    failures: BTreeMap<Key, u32>,
}

impl Queue {
    /// As soon as possible.
    pub(crate) fn soon(&mut self, key: Key) {
        self.at(key, Instant::now());
    }

    /// At the time given, or earlier if somebody has said so.
    pub(crate) fn at(&mut self, key: Key, time: Instant) {
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

    /// Tries again, later and later.
    fn retry(&mut self, key: Key) {
        let failures = self.failures.entry(key.clone()).or_default();
        let wait = RETRY_MIN.saturating_mul(1 << (*failures).min(16)).min(RETRY_MAX);
        *failures += 1;
        self.at(key, Instant::now() + wait);
    }
}

/// What is done with events and dirty keys.
pub(crate) trait Controller {
    /// What its watches tell.
    type Event;

    /// Takes in an event and says which keys it concerns.
    fn observe(&mut self, event: Self::Event, queue: &mut Queue);

    /// Whether every watch has shown its first list.
    fn is_ready(&self) -> bool;

    /// Looks after a key. Answers in how long it wants to do so again even if nothing happens.
    fn reconcile(&mut self, key: &Key) -> impl Future<Output = Result<Option<Duration>, kube::Error>> + Send;
}

/// Runs a controller for as long as its watches go on.
pub(crate) async fn run<C: Controller>(mut controller: C, mut events: impl Stream<Item = C::Event> + Unpin) {
    let mut queue = Queue::default();
    loop {
        let due = queue.next_due().filter(|_| controller.is_ready());
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
                    Ok(again) => {
                        queue.failures.remove(&key);
                        if let Some(wait) = again {
                            queue.at(key, Instant::now() + wait);
                        }
                    }
                    Err(_) => queue.retry(key),
                }
            }
        }
    }
}
