//! Signs of life: what the parts of a process say of themselves, for probes to read.
//!
//! Alive: the decision loop has given a sign lately, or there is none because this process stands by. Ready: all watches
//! are in sync, or this process stands by. It must not know how probes ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// A loop that has not given a sign for so long hangs.
const BEAT_AGE_MAX: Duration = Duration::from_secs(30);

/// What a process says of itself. Clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    origin: Instant,
    /// The last sign of the decision loop, in milliseconds since `origin`.
    beat_ms: AtomicU64,
    synced: AtomicBool,
    standby: AtomicBool,
}

/// One thing that is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// What is wrong, if it is.
    pub(crate) failure: Option<String>,
}

impl Default for Health {
    fn default() -> Self {
        let inner = Inner {
            origin: Instant::now(),
            beat_ms: AtomicU64::new(0),
            synced: AtomicBool::new(false),
            standby: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }
}

impl Health {
    /// The decision loop is alive: to be said at least every ten seconds, busy or not.
    pub fn beat(&self) {
        let passed = u64::try_from(self.inner.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.inner.beat_ms.store(passed, Ordering::Relaxed);
    }

    /// Whether all watches have delivered their first list.
    pub fn set_synced(&self, synced: bool) {
        self.inner.synced.store(synced, Ordering::Relaxed);
    }

    /// Whether this process waits for the lease and decides nothing.
    pub fn set_standby(&self, standby: bool) {
        // A loop that begins now has the full time for its first sign.
        self.beat();
        self.inner.standby.store(standby, Ordering::Relaxed);
    }

    pub(crate) fn alive(&self) -> Check {
        let beat = self.inner.origin + Duration::from_millis(self.inner.beat_ms.load(Ordering::Relaxed));
        let age = beat.elapsed();
        let hangs = age > BEAT_AGE_MAX && !self.inner.standby.load(Ordering::Relaxed);
        let failure = hangs.then(|| {
            format!("no sign of the decision loop for {} s (the limit is {} s)", age.as_secs(), BEAT_AGE_MAX.as_secs())
        });
        Check { name: "decisions", failure }
    }

    pub(crate) fn synced(&self) -> Check {
        let ready = self.inner.synced.load(Ordering::Relaxed) || self.inner.standby.load(Ordering::Relaxed);
        let failure = (!ready).then(|| "not all watches have delivered their first list".to_owned());
        Check { name: "sync", failure }
    }
}
