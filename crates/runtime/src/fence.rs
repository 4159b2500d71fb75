//! The fence: the time until which this process may write.
//!
//! The lease holder moves the fence forward with every renewal. Every request gets its deadline from the fence and is
//! cancelled at that deadline, so that nothing is written once another process may have taken over.
//! Must not depend on how the lease is held.

use tokio::sync::watch;
use tokio::time::Instant;

/// The time until which this process may write. Clones share it.
#[derive(Clone, Debug)]
pub struct Fence {
    until: watch::Receiver<Until>,
}

/// Moves a fence; dropping it leaves the fence where it is.
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
    /// A fence that is always open: for a single process, as in a playground.
    pub fn open() -> Self {
        let (_, until) = watch::channel(Until::Always);
        Self { until }
    }

    /// A closed fence and its keeper.
    pub fn kept() -> (FenceKeeper, Self) {
        let (sender, until) = watch::channel(Until::Never);
        (FenceKeeper { until: sender }, Self { until })
    }

    /// The deadline of a request that begins now and may last until `wanted`; `None` if nothing may be written.
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
