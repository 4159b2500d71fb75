//! Durations as users write them: `500ms`, `10s`, `1m30s`, `2h`. Whole milliseconds, largest unit first.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The units, largest first, with their milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const MS_MAX: u64 = 30 * 24 * 3_600_000;

/// A duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

impl Span {
    /// A duration in milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// In milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// As a [`Duration`].
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, ms) in UNITS {
            if rest >= ms {
                write!(f, "{}{unit}", rest / ms)?;
                rest %= ms;
            }
        }
        Ok(())
    }
}

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: {reason} (write it as 500ms, 10s, 1m30s or 2h)")]
pub struct SpanError {
    text: String,
    reason: &'static str,
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let refuse = |reason| SpanError { text: text.to_owned(), reason };
        let (mut rest, mut total, mut units) = (text, 0_u64, UNITS.iter());
        if text.is_empty() {
            return Err(refuse("it is empty"));
        }
        while !rest.is_empty() {
            let digits =
                rest.find(|character: char| !character.is_ascii_digit()).ok_or_else(|| refuse("a unit is missing"))?;
            if digits == 0 {
                return Err(refuse("a number is missing"));
            }
            let (number, behind) = rest.split_at(digits);
            let end = behind.find(|character: char| character.is_ascii_digit()).unwrap_or(behind.len());
            let (unit, behind) = behind.split_at(end);
            let number: u64 = number.parse().map_err(|_| refuse("the number is too large"))?;
            if !UNITS.iter().any(|(known, _)| *known == unit) {
                return Err(refuse("the units are h, m, s and ms, with whole numbers"));
            }
            // The next unit must be smaller.
            let (_, ms) = units.find(|(known, _)| *known == unit).ok_or_else(|| refuse("larger units come first"))?;
            total = number
                .checked_mul(*ms)
                .and_then(|part| total.checked_add(part))
                .filter(|total| *total <= MS_MAX)
                .ok_or_else(|| refuse("the longest is 720h"))?;
            rest = behind;
        }
        Ok(Self(total))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_printed() {
        for (text, ms) in [("0s", 0), ("500ms", 500), ("10s", 10_000), ("1m30s", 90_000), ("2h", 7_200_000)] {
            assert_eq!(text.parse(), Ok(Span(ms)), "{text}");
            assert_eq!(Span(ms).to_string(), text);
        }
        assert_eq!("90s".parse::<Span>().unwrap().to_string(), "1m30s");
        assert_eq!("1h1m1s1ms".parse::<Span>().unwrap(), Span(3_661_001));
    }

    #[test]
    fn invalid_durations_are_rejected_with_the_reason() {
        for (text, reason) in [
            ("", "it is empty"),
            ("10", "a unit is missing"),
            ("s", "a number is missing"),
            ("-5s", "a number is missing"),
            ("1.5s", "whole numbers"),
            ("5 s", "whole numbers"),
            ("5d", "the units are"),
            ("5us", "the units are"),
            ("5s1m", "larger units come first"),
            ("5s5s", "larger units come first"),
            ("721h", "the longest is 720h"),
            ("99999999999999999999s", "too large"),
        ] {
            let error = text.parse::<Span>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(error.starts_with(&format!("{text:?}")), "{error}");
        }
    }
}
