//! A limit on log lines that clients can cause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const LINES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

/// Counts log lines: a few in each window are written, the others are only counted.
#[derive(Debug, Default)]
pub struct ThrottledLog {
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl ThrottledLog {
    /// Whether a line may be written; if so, how many were suppressed before it.
    pub fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.began.is_none_or(|began| now >= began + WINDOW) {
            (window.began, window.lines) = (Some(now), 0);
        }
        if window.lines >= LINES_MAX {
            window.suppressed += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn few_lines_are_written_in_a_window_and_the_others_counted() {
        let log = ThrottledLog::default();
        let written = (0..1000).filter(|_| log.admit() == Some(0)).count();
        assert_eq!(written, LINES_MAX as usize);
        advance(WINDOW).await;
        assert_eq!(log.admit(), Some(1000 - u64::from(LINES_MAX)));
        assert_eq!(log.admit(), Some(0));
    }
}
