//! How old what each watch has shown is: the time since the API server last confirmed that nothing is missing.
//!
//! A watch without events is not old: bookmarks confirm it, and so does the API server by closing it in time. Its age
//! grows while lists fail, or while a connection is open on which nothing arrives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The ages of the watches of a process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct WatchAges {
    watches: Arc<Mutex<Watches>>,
}

#[derive(Debug, Default)]
struct Watches {
    next_id: u64,
    by_id: BTreeMap<u64, OneWatch>,
}

#[derive(Debug)]
struct OneWatch {
    kind: String,
    /// When the API server last confirmed what it has shown.
    confirmed: Instant,
    /// When the API server last answered, also if it refused.
    answered: Instant,
}

impl WatchAges {
    /// Adds a watch that starts now; it ends when the result is dropped.
    pub fn add(&self, kind: &str) -> Age {
        let mut watches = self.lock();
        let id = watches.next_id;
        watches.next_id += 1;
        let now = Instant::now();
        watches.by_id.insert(id, OneWatch { kind: kind.to_owned(), confirmed: now, answered: now });
        Age { ages: self.clone(), id }
    }

    /// The age of each kind's oldest watch.
    pub fn by_kind(&self) -> BTreeMap<String, Duration> {
        let mut ages: BTreeMap<String, Duration> = BTreeMap::new();
        for watch in self.lock().by_id.values() {
            let age = ages.entry(watch.kind.clone()).or_default();
            *age = watch.confirmed.elapsed().max(*age);
        }
        ages
    }

    /// Waits until a watch had no answer for longer than this, and returns its kind and for how long. A kind that the
    /// API server refuses is answered: no other process would be better off.
    pub async fn wait_until_silent_for(&self, age_max: Duration) -> (String, Duration) {
        loop {
            let silent = |watch: &OneWatch| (watch.answered.elapsed(), watch.kind.clone());
            let oldest = self.lock().by_id.values().map(silent).max().map(|(age, kind)| (kind, age));
            let left = match oldest {
                Some((kind, age)) if age > age_max => return (kind, age),
                Some((_, age)) => age_max.saturating_sub(age),
                None => age_max,
            };
            // A watch that is added meanwhile is younger.
            sleep_until(Instant::now() + left + Duration::from_millis(1)).await;
        }
    }

    /// A panic elsewhere leaves nothing half-written.
    fn lock(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The age of one watch.
#[derive(Debug)]
pub struct Age {
    ages: WatchAges,
    id: u64,
}

impl Age {
    /// The API server has just confirmed what the watch has shown.
    pub(crate) fn confirm(&self) {
        if let Some(watch) = self.ages.lock().by_id.get_mut(&self.id) {
            watch.confirmed = Instant::now();
            watch.answered = watch.confirmed;
        }
    }

    /// The API server has answered, but confirmed nothing.
    pub(crate) fn answer(&self) {
        if let Some(watch) = self.ages.lock().by_id.get_mut(&self.id) {
            watch.answered = Instant::now();
        }
    }
}

impl Drop for Age {
    fn drop(&mut self) {
        self.ages.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn the_oldest_watch_of_a_kind_counts_until_it_is_dropped() {
        let ages = WatchAges::default();
        let first = ages.add("pods");
        sleep(MINUTE).await;
        let second = ages.add("pods");
        let nodes = ages.add("nodes");
        sleep(MINUTE).await;
        nodes.confirm();
        assert_eq!(ages.by_kind(), [("nodes".to_owned(), Duration::ZERO), ("pods".to_owned(), 2 * MINUTE)].into());
        drop(first);
        assert_eq!(ages.by_kind()["pods"], MINUTE);
        drop((second, nodes));
        assert!(ages.by_kind().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_answer_becomes_too_old() {
        let ages = WatchAges::default();
        let (pods, refused, _nodes) = (ages.add("pods"), ages.add("refused"), ages.add("nodes"));
        let confirming = async {
            for _ in 0..100 {
                sleep(MINUTE).await;
                pods.confirm();
                refused.answer();
            }
        };
        let started = Instant::now();
        tokio::select! {
            () = confirming => panic!("nodes are never answered"),
            (kind, _) = ages.wait_until_silent_for(10 * MINUTE) => assert_eq!(kind, "nodes"),
        }
        assert!(started.elapsed() < 11 * MINUTE);
        assert!(ages.by_kind()["refused"] >= 10 * MINUTE, "it is old, but not silent");
    }
}
