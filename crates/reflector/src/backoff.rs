//! The backoff of a watch that failed.

use std::time::Duration;

use kube::runtime::utils::Backoff;
use tokio::time::Instant;

const PAUSE_MIN: Duration = Duration::from_millis(500);
/// A failure after so long without one starts at the shortest pause.
const QUIET: Duration = Duration::from_secs(60);

/// Pauses that double, without jitter: a cluster has few schedulers, and tests with a seed must replay.
///
/// The watcher calls `reset` whenever an attempt starts, even if it then fails. So the pauses start over only after a
/// quiet time; else a kind that the cluster does not serve would be listed twice a second for ever.
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
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        self.last = Some(Instant::now());
        Some(pause)
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() > QUIET) {
            *self = Self::up_to(self.max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_a_limit_and_start_over_after_a_quiet_time() {
        let mut pauses = Pauses::up_to(Duration::from_secs(30));
        let mut seconds = Vec::new();
        for _ in 0..8 {
            pauses.reset();
            seconds.push(pauses.next().expect("there is always a next pause").as_secs_f64());
        }
        assert_eq!(seconds, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]);
        tokio::time::sleep(QUIET * 2).await;
        pauses.reset();
        assert_eq!(pauses.next(), Some(PAUSE_MIN));
        let short = Duration::from_millis(100);
        assert_eq!(Pauses::up_to(short).take(2).collect::<Vec<_>>(), [short, short]);
    }
}
