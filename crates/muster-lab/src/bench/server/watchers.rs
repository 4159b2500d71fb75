//! Watches and their event counts: each must receive every event once, so that a fast wrong response is an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;

const SETTLE_MAX: Duration = Duration::from_secs(60);

/// The event count of a watch, and the expected count.
pub(super) struct Watcher {
    pub(super) path: String,
    pub(super) events: Arc<AtomicU64>,
    pub(super) expected: u64,
}

/// Waits until every watch has received exactly what it must.
pub(super) async fn await_counts(watchers: &[Watcher]) -> anyhow::Result<u64> {
    let ends = Instant::now() + SETTLE_MAX;
    let seen = |watcher: &Watcher| watcher.events.load(Ordering::Relaxed);
    while watchers.iter().any(|watcher| seen(watcher) < watcher.expected) && Instant::now() < ends {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for watcher in watchers {
        if seen(watcher) != watcher.expected {
            bail!("{}: {} events received, {} expected", watcher.path, seen(watcher), watcher.expected);
        }
    }
    Ok(watchers.iter().map(seen).sum())
}
