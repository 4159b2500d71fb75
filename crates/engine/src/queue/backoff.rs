//! Backoff after failed attempts.

use crate::model::Millis;

/// The longest backoff, regardless of the size of a group.
pub(crate) const PAUSE_MS_MAX: Millis = 300_000;

/// The backoff after a number of consecutive failures: doubles up to a limit that grows with the square root of the
/// size, because attempts of larger groups cost more.
pub(crate) fn pause_ms(initial: Millis, max: Millis, failures: u32, size: usize) -> Millis {
    let limit = max.saturating_mul(size.max(1).isqrt() as Millis).min(PAUSE_MS_MAX).max(initial);
    doubled(initial, failures).min(limit)
}

/// The n-th term of a doubling sequence.
pub(crate) fn doubled(initial: Millis, number: u32) -> Millis {
    let doublings = number.saturating_sub(1).min(40);
    initial.saturating_mul(1 << doublings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_a_limit_that_grows_with_size() {
        let pauses: Vec<Millis> = (1..=6).map(|failures| pause_ms(1000, 10_000, failures, 1)).collect();
        assert_eq!(pauses, [1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(pause_ms(1000, 10_000, 20, 100), 100_000);
        assert_eq!(pause_ms(1000, 10_000, u32::MAX, 1_000_000), PAUSE_MS_MAX);
        assert_eq!(pause_ms(1000, 10_000, 0, 0), 1000);
    }
}
