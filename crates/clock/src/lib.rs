//! Time as a value: a clock that shows a start time plus the time that tokio has counted since.
//!
//! It never runs backwards, even if the machine's date changes. Under paused tokio time it advances only with the test,
//! so that an hour costs nothing.
//! Must not depend on Kubernetes, I/O or any other crate of this repository.

use std::time::Duration;

use jiff::{Span, Timestamp};
use tokio::time::Instant;

/// A clock.
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

    /// A clock that shows the system time.
    pub fn real() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.start.checked_add(Span::new().microseconds(passed)).unwrap_or(Timestamp::MAX)
    }

    /// The current time in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        millis(self.now())
    }

    /// The moment at which the clock will show this time, or now if it has passed.
    pub fn instant_of(&self, at_ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(at_ms.saturating_sub(self.now_ms()))
    }
}

/// A time in milliseconds since 1970; times before that are 0.
pub fn millis(time: Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or(0)
}

/// A time as in the fields of objects: whole seconds, UTC.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time with microseconds, as in leases and events.
pub fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The time truncated to whole seconds.
pub fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The time this many seconds later, or earlier if negative.
pub fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(Span::new().seconds(seconds.clamp(-SPAN_SECONDS_MAX, SPAN_SECONDS_MAX))).unwrap_or(Timestamp::MAX)
}

/// Longer durations end at the maximum time.
const SPAN_SECONDS_MAX: i64 = 100_000_000_000;
