//! Who is to be looked after, and when. Nobody is looked after twice at once.
//!
//! It must not know what is done for anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Those who are to be looked after.
#[derive(Debug)]
pub(crate) struct Queue<S> {
    due: BTreeMap<S, Instant>,
    order: BTreeSet<(Instant, S)>,
    /// Those who are being looked after, and when they are due again.
    busy: BTreeMap<S, Option<Instant>>,
    failures: BTreeMap<S, u32>,
}

impl<S: Ord + Clone> Default for Queue<S> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), order: BTreeSet::new(), busy: BTreeMap::new(), failures: BTreeMap::new() }
    }
}

impl<S: Ord + Clone> Queue<S> {
    /// At the time given, or earlier if somebody has said so.
    pub(crate) fn at(&mut self, subject: S, time: Instant) {
        if let Some(again) = self.busy.get_mut(&subject) {
            *again = Some(again.map_or(time, |known| known.min(time)));
            return;
        }
        match self.due.get(&subject) {
            Some(due) if *due <= time => return,
            Some(due) => drop(self.order.remove(&(*due, subject.clone()))),
            None => {}
        }
        self.order.insert((time, subject.clone()));
        self.due.insert(subject, time);
    }

    /// When somebody is due next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.order.first().map(|(time, _)| *time)
    }

    /// Somebody who is due, and busy from now on.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<S> {
        if self.next_due()? > now {
            return None;
        }
        let (_, subject) = self.order.pop_first()?;
        self.due.remove(&subject);
        self.busy.insert(subject.clone(), None);
        Some(subject)
    }

    /// Somebody was looked after: well, with a wish to be looked after again, or not at all.
    pub(crate) fn done(&mut self, subject: S, outcome: Result<Option<Duration>, ()>) {
        let again = self.busy.remove(&subject).flatten();
        let now = Instant::now();
        let Ok(wanted) = outcome else {
            let failures = self.failures.entry(subject.clone()).or_default();
            let pause = RETRY_MIN.saturating_mul(1 << (*failures).min(16)).min(RETRY_MAX);
            *failures += 1;
            // What came meanwhile does not make a failure shorter.
            return self.at(subject, now + pause);
        };
        self.failures.remove(&subject);
        if let Some(time) = [again, wanted.map(|pause| now + pause)].into_iter().flatten().min() {
            self.at(subject, time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nobody_is_looked_after_twice_at_once_and_failures_wait_longer() {
        let mut queue = Queue::default();
        let now = Instant::now();
        queue.at("a", now);
        queue.at("a", now + RETRY_MAX);
        assert_eq!(queue.pop(now), Some("a"));
        queue.at("a", now);
        assert_eq!(queue.pop(now), None, "it is busy");
        queue.done("a", Err(()));
        assert_eq!(queue.next_due(), Some(now + RETRY_MIN));
        assert_eq!(queue.pop(now + RETRY_MIN), Some("a"));
        queue.done("a", Err(()));
        assert_eq!(queue.next_due(), Some(now + RETRY_MIN * 2));
        assert_eq!(queue.pop(now + RETRY_MIN * 2), Some("a"));
        queue.at("a", now);
        queue.done("a", Ok(None));
        assert_eq!(queue.pop(now), Some("a"), "what came meanwhile is seen to");
        queue.done("a", Ok(None));
        assert_eq!(queue.next_due(), None);
    }
}
