//! The backoff of a watch that failed.

use std::time::Duration;

use tokio::time::Instant;

const PAUSE_MIN: Duration = Duration::from_millis(500);
/// A failure after so long without one starts at the shortest pause.
const QUIET: Duration = Duration::from_secs(60);

/// Pauses that double, without jitter: a cluster has few schedulers, and tests with a seed must replay.
#[derive(Debug)]
pub(crate) struct Pauses {
    max: Duration,
    next: Duration,
    last: Option<Instant>,
}

impl Pauses {
    /// Pauses that grow up to this one.
    pub(crate) fn up_to(max: Duration) -> Self {
        Self { max, next: PAUSE_MIN.min(max), last: None }
    }

    /// The pause after a failure now.
    pub(crate) fn next(&mut self) -> Duration {
        if self.last.is_some_and(|last| last.elapsed() > QUIET) {
            *self = Self::up_to(self.max);
        }
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        self.last = Some(Instant::now());
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_a_limit_and_start_over_after_a_quiet_time() {
        let mut pauses = Pauses::up_to(Duration::from_secs(30));
        let seconds: Vec<f64> = (0..8).map(|_| pauses.next().as_secs_f64()).collect();
        assert_eq!(seconds, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]);
        tokio::time::sleep(QUIET * 2).await;
        assert_eq!(pauses.next(), PAUSE_MIN);
        let short = Duration::from_millis(100);
        let mut pauses = Pauses::up_to(short);
        assert_eq!([pauses.next(), pauses.next()], [short, short]);
    }
}
