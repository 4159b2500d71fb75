//! The backoff of failed writes.

const BACKOFF_MS_MIN: u64 = 200;
const BACKOFF_MS_MAX: u64 = 30_000;

/// The pause after this many consecutive failures.
pub(crate) fn backoff_ms(failures: u32) -> u64 {
    let doubled = BACKOFF_MS_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(BACKOFF_MS_MAX)
}
