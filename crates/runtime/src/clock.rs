//! The runtime's clock: a start date plus the time elapsed on tokio's clock.
//!
//! It never runs backwards, even if the machine's date changes, and it stops under paused time.

use std::time::Duration;

use jiff::{Span, Timestamp};
use tokio::time::Instant;

/// Provides the current date.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Timestamp,
    started: Instant,
}

impl Clock {
    /// A clock that shows `start` now.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, started: Instant::now() }
    }

    /// A clock that shows the machine's date.
    pub fn real() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// The date.
    pub fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.start.checked_add(Span::new().microseconds(passed)).unwrap_or(Timestamp::MAX)
    }

    /// The date in milliseconds since 1970: the engine's time.
    pub fn now_ms(&self) -> u64 {
        millis(self.now())
    }

    /// The moment at which the clock will show this time, or now if it has passed.
    pub fn instant_of(&self, at_ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(at_ms.saturating_sub(self.now_ms()))
    }
}

/// A date in milliseconds since 1970; dates before that are 0.
pub(crate) fn millis(date: Timestamp) -> u64 {
    u64::try_from(date.as_millisecond()).unwrap_or(0)
}
