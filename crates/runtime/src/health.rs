//! The health state of a process, read by probes.
//!
//! Live: the scheduling loop has sent a heartbeat lately, or this process is on standby. Ready: all watches are in
//! sync, or this process is on standby.
//! Must not depend on how probes are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// A loop without a heartbeat for this long hangs.
const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(30);

/// The health state of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    origin: Instant,
    /// The last heartbeat of the scheduling loop, in milliseconds since `origin`.
    heartbeat_ms: AtomicU64,
    synced: AtomicBool,
    standby: AtomicBool,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// Why it failed, if it did.
    pub(crate) failure: Option<String>,
}

impl Default for Health {
    fn default() -> Self {
        let inner = Inner {
            origin: Instant::now(),
            heartbeat_ms: AtomicU64::new(0),
            synced: AtomicBool::new(false),
            standby: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }
}

impl Health {
    /// A heartbeat of the scheduling loop: to be called at least every ten seconds, busy or not.
    pub fn heartbeat(&self) {
        let passed = u64::try_from(self.inner.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.inner.heartbeat_ms.store(passed, Ordering::Relaxed);
    }

    /// Whether all watches have delivered their first list.
    pub fn set_synced(&self, synced: bool) {
        self.inner.synced.store(synced, Ordering::Relaxed);
    }

    /// Whether this process waits for the lease and decides nothing.
    pub fn set_standby(&self, standby: bool) {
        // A loop that starts now has the full time for its first heartbeat.
        self.heartbeat();
        self.inner.standby.store(standby, Ordering::Relaxed);
    }

    pub(crate) fn alive(&self) -> Check {
        let heartbeat = self.inner.origin + Duration::from_millis(self.inner.heartbeat_ms.load(Ordering::Relaxed));
        let age = heartbeat.elapsed();
        let hangs = age > HEARTBEAT_AGE_MAX && !self.inner.standby.load(Ordering::Relaxed);
        let failure = hangs.then(|| {
            format!(
                "no heartbeat of the scheduling loop for {} s (the limit is {} s)",
                age.as_secs(),
                HEARTBEAT_AGE_MAX.as_secs()
            )
        });
        Check { name: "decisions", failure }
    }

    pub(crate) fn synced(&self) -> Check {
        let ready = self.inner.synced.load(Ordering::Relaxed) || self.inner.standby.load(Ordering::Relaxed);
        let failure = (!ready).then(|| "not all watches have delivered their first list".to_owned());
        Check { name: "sync", failure }
    }
}
