//! How long a write that failed waits before it is tried again.

const PAUSE_MS_MIN: u64 = 200;
const PAUSE_MS_MAX: u64 = 30_000;

/// The pause after so many failures in a row.
pub(crate) fn pause_ms(failures: u32) -> u64 {
    let doubled = PAUSE_MS_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(PAUSE_MS_MAX)
}
