//! Lengths of time as people write them: `500ms`, `10s`, `5m`, `1h`, or several parts, `1m30s`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// About ten years; longer times would be mistakes.
const MS_MAX: u64 = 10 * 366 * 24 * 3600 * 1000;
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// Reads a length of time, or says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no length of time: write whole numbers with ms, s, m or h, such as 10s");
        let mut rest = text;
        let mut total_ms: u64 = 0;
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
            let (number, after) = rest.split_at(digits);
            let end = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
            let (unit, after) = after.split_at(end);
            let unit_ms = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
            let part_ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms));
            total_ms = part_ms.and_then(|part_ms| total_ms.checked_add(part_ms)).ok_or_else(wrong)?;
            rest = after;
        }
        if total_ms > MS_MAX {
            return Err(format!("{text:?} is too long: at most ten years"));
        }
        Ok(Self(Duration::from_millis(total_ms)))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A length of time for people.
pub(crate) fn shown(time: Duration) -> String {
    let ms = time.as_millis();
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..120_000 => format!("{:.1}s", time.as_secs_f64()),
        _ => format!("{}m{}s", ms / 60_000, ms / 1000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_exactly() {
        for (text, ms) in [("10s", 10_000), ("500ms", 500), ("5m", 300_000), ("1m30s", 90_000), ("2h", 7_200_000)] {
            assert_eq!(Span::parse(text), Ok(Span(Duration::from_millis(ms))), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_its_value() {
        for text in ["", "10", "s", "-1s", "1.5s", "10 s", "10sec", "1d", "99999999999999999999s", "1s "] {
            assert!(Span::parse(text).unwrap_err().contains(&format!("{text:?}")), "{text}");
        }
        assert!(Span::parse("999999h").unwrap_err().contains("too long"));
    }
}
