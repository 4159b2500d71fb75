//! Human-readable durations in cells.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

const UNKNOWN: &str = "<unknown>";

/// The age of an object.
pub(super) fn of(object: &Value, now: Timestamp) -> Value {
    json!(since(&object["metadata"]["creationTimestamp"], now))
}

/// The time since a timestamp of an object.
pub(super) fn since(date: &Value, now: Timestamp) -> String {
    match read(date) {
        Some(then) => between(then, now),
        None => UNKNOWN.to_owned(),
    }
}

/// A timestamp of an object.
pub(super) fn read(date: &Value) -> Option<Timestamp> {
    date.as_str()?.parse().ok()
}

/// The duration between two times. Clocks differ: up to a second in the future counts as now, more is invalid.
pub(super) fn between(from: Timestamp, to: Timestamp) -> String {
    let passed = to.duration_since(from);
    match Duration::try_from(passed) {
        Ok(passed) => short(passed.as_secs()),
        Err(_) if passed.as_secs() >= -1 => "0s".to_owned(),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// The longer the duration, the coarser the unit (`duration.HumanDuration`).
fn short(seconds: u64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const YEAR: u64 = 365 * DAY;
    let whole = |unit: u64, sign: char| format!("{}{sign}", seconds / unit);
    let with_rest = |unit: u64, sign: char, part: u64, part_sign: char| match seconds % unit / part {
        0 => whole(unit, sign),
        rest => format!("{}{sign}{rest}{part_sign}", seconds / unit),
    };
    match seconds {
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => with_rest(MINUTE, 'm', 1, 's'),
        _ if seconds < 3 * HOUR => whole(MINUTE, 'm'),
        _ if seconds < 8 * HOUR => with_rest(HOUR, 'h', MINUTE, 'm'),
        _ if seconds < 2 * DAY => whole(HOUR, 'h'),
        _ if seconds < 8 * DAY => with_rest(DAY, 'd', HOUR, 'h'),
        _ if seconds < 2 * YEAR => whole(DAY, 'd'),
        _ if seconds < 8 * YEAR => with_rest(YEAR, 'y', DAY, 'd'),
        _ => whole(YEAR, 'y'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_formatted_as_in_kubectl() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (3600, "60m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_799, "7h59m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_199, "7d23h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_287_999, "7y364d"),
            (252_288_000, "8y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(short(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn clock_skew_of_a_second_is_tolerated() {
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        assert_eq!(since(&json!("2026-01-01T00:00:11Z"), now), "0s");
        assert_eq!(since(&json!("2026-01-01T00:00:12Z"), now), "<invalid>");
        assert_eq!(since(&Value::Null, now), "<unknown>");
        assert_eq!(since(&json!("2026-01-01T00:00:03.500000Z"), now), "6s");
    }
}
