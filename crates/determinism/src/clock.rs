//! The server's clock: a start date plus the time that tokio has counted since.
//!
//! Under paused tokio time it moves only when the test does, so that an hour costs nothing.
//! It must not be asked by anything that decides in the store; the time is handed in.

use jiff::{Span, Timestamp};
use tokio::time::Instant;

/// Tells the date.
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
}

/// A date as objects carry it: whole seconds, UTC.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A date with microseconds, as leases and events carry it.
pub fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The date without the fraction of its second, as objects can carry it.
pub fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A date so many seconds later, or earlier.
pub fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(Span::new().seconds(seconds.clamp(-SPAN_SECONDS_MAX, SPAN_SECONDS_MAX))).unwrap_or(Timestamp::MAX)
}

/// Longer spans end at the last date there is.
const SPAN_SECONDS_MAX: i64 = 100_000_000_000;
