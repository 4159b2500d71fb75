//! Watchers and their counts: each must be told every event once, so that a fast wrong answer is an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;

const SETTLE_MAX: Duration = Duration::from_secs(60);

/// A watcher's count, and what it must come to.
pub(super) struct Watcher {
    pub(super) path: String,
    pub(super) events: Arc<AtomicU64>,
    pub(super) wanted: u64,
}

/// Waits until every watcher has seen what it must, and not more.
pub(super) async fn settle(watchers: &[Watcher]) -> anyhow::Result<u64> {
    let ends = Instant::now() + SETTLE_MAX;
    let seen = |watcher: &Watcher| watcher.events.load(Ordering::Relaxed);
    while watchers.iter().any(|watcher| seen(watcher) < watcher.wanted) && Instant::now() < ends {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for watcher in watchers {
        if seen(watcher) != watcher.wanted {
            bail!("{}: {} events told, {} happened", watcher.path, seen(watcher), watcher.wanted);
        }
    }
    Ok(watchers.iter().map(seen).sum())
}
