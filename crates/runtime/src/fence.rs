//! The fence: until when this process may write.
//!
//! Whoever holds the lease moves the fence forward with every renewal. Every request asks it for a deadline and is
//! given up at that deadline, so that nothing is written once another process may have taken over.
//! It must not know how the lease is held.

use tokio::sync::watch;
use tokio::time::Instant;

/// Until when this process may write. Clones share it.
#[derive(Clone, Debug)]
pub struct Fence {
    until: watch::Receiver<Until>,
}

/// The hand that moves a fence; dropping it leaves the fence where it stands.
#[derive(Debug)]
pub struct FenceKeeper {
    until: watch::Sender<Until>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    Always,
    Moment(Instant),
    Never,
}

impl Fence {
    /// A fence that is never in the way: for one process alone, as in a playground.
    pub fn open() -> Self {
        let (_, until) = watch::channel(Until::Always);
        Self { until }
    }

    /// A closed fence and the hand that moves it.
    pub fn kept() -> (FenceKeeper, Self) {
        let (sender, until) = watch::channel(Until::Never);
        (FenceKeeper { until: sender }, Self { until })
    }

    /// Until when a request that begins now may last if it may last until `wanted`; `None` if nothing may be written.
    pub fn deadline(&self, wanted: Instant) -> Option<Instant> {
        match *self.until.borrow() {
            Until::Always => Some(wanted),
            Until::Moment(moment) if Instant::now() < moment => Some(wanted.min(moment)),
            Until::Moment(_) | Until::Never => None,
        }
    }
}

impl FenceKeeper {
    /// Writes are allowed until this moment.
    pub fn open_until(&self, moment: Instant) {
        self.until.send_replace(Until::Moment(moment));
    }

    /// Nothing may be written any more.
    pub fn close(&self) {
        self.until.send_replace(Until::Never);
    }
}
