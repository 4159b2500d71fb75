//! Kubernetes quantities (`500m`, `1.5Gi`, `2e3`), parsed exactly.
//!
//! A quantity is stored as a whole number of nano units, so no value that Kubernetes can represent is rounded. Smaller
//! parts are rounded away from zero to a nano unit, as in Kubernetes: a nonzero amount never becomes zero.
//!
//! Invariant: the value rounded away from zero to a whole number fits `i64`. Kubernetes silently caps a larger value;
//! here it is refused, since a scheduler must not use another number than the one written. Two more differences are
//! intended: a text without digits (`"m"`, `"+"`) is refused although Kubernetes parses it as zero, and an exponent
//! that does not fit `i32` is refused, not wrapped. Negative values are always rounded away from zero; Kubernetes
//! documents the same, but its code for long fractions rounds them up. No resource may be negative, so this has no
//! effect.
//!
//! Must not depend on resource names and units (`resources`) or JSON (`written_quantity`).

use std::fmt;
use std::str::FromStr;

use crate::invalid::truncated;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
const MAX_NANOS: i128 = i64::MAX as i128 * NANOS_PER_UNIT;
/// The number of decimal digits of `MAX_NANOS`.
const MAX_DIGITS: i64 = 28;

/// An exact amount of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

/// Why a text or a number is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The number before the suffix is missing.
    #[error("must start with a number")]
    NoNumber,
    /// There is more than one decimal point.
    #[error("has more than one decimal point")]
    ManyPoints,
    /// The suffix is unknown to Kubernetes.
    #[error("suffix {0:?} is not known")]
    UnknownSuffix(String),
    /// The decimal exponent does not fit `i32`.
    #[error("exponent {0:?} is out of range")]
    ExponentOutOfRange(String),
    /// The magnitude exceeds `i64` in the requested unit.
    #[error("is larger than a 64 bit integer holds")]
    TooLarge,
    /// A JSON number with so many digits that parsing may have changed it.
    #[error("has too many digits to be exact as a number; write it as a string")]
    InexactNumber,
    /// Neither a JSON string nor a JSON number.
    #[error("must be a string or a number")]
    NotAQuantity,
}

impl Quantity {
    /// Zero.
    pub const ZERO: Quantity = Quantity { nanos: 0 };

    /// A whole number of units.
    pub fn from_units(units: i64) -> Result<Quantity, QuantityError> {
        Self::from_nanos(i128::from(units) * NANOS_PER_UNIT)
    }

    /// A whole number of thousandths.
    pub const fn from_millis(millis: i64) -> Quantity {
        Quantity { nanos: millis as i128 * NANOS_PER_MILLI }
    }

    /// The value in whole units, rounded away from zero.
    pub fn value(self) -> i64 {
        // Fits: this is the invariant of the type.
        divide_away_from_zero(self.nanos, NANOS_PER_UNIT) as i64
    }

    /// The value in thousandths, rounded away from zero, if that fits.
    pub fn milli_value(self) -> Result<i64, QuantityError> {
        i64::try_from(divide_away_from_zero(self.nanos, NANOS_PER_MILLI)).map_err(|_| QuantityError::TooLarge)
    }

    /// The exact value in billionths.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Whether the value has no fraction.
    pub fn is_whole(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// Whether the value is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the value is below zero.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The exact sum, if it is in range.
    pub fn checked_add(self, other: Quantity) -> Result<Quantity, QuantityError> {
        // Cannot overflow: both are far below the range of i128.
        Self::from_nanos(self.nanos + other.nanos)
    }

    fn from_nanos(nanos: i128) -> Result<Quantity, QuantityError> {
        if nanos.abs() > MAX_NANOS {
            return Err(QuantityError::TooLarge);
        }
        Ok(Quantity { nanos })
    }
}

fn divide_away_from_zero(nanos: i128, unit: i128) -> i128 {
    nanos / unit + (nanos % unit).signum()
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') {
            return Err(QuantityError::ManyPoints);
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(QuantityError::NoNumber);
        }
        let scale = Scale::from_suffix(suffix)?;
        let mut digits = Digits::new(whole, fraction);
        digits.multiply_1024(scale.power_of_1024);
        let shift = 9 + i64::from(scale.power_of_10) - fraction.len() as i64;
        let nanos = digits.shifted_rounding_up(shift)?;
        Self::from_nanos(if negative { -nanos } else { nanos })
    }
}

/// What a suffix multiplies by.
struct Scale {
    power_of_10: i32,
    power_of_1024: u32,
}

impl Scale {
    fn from_suffix(suffix: &str) -> Result<Scale, QuantityError> {
        let (power_of_10, power_of_1024) = match suffix {
            "n" => (-9, 0),
            "u" => (-6, 0),
            "m" => (-3, 0),
            "" => (0, 0),
            "k" => (3, 0),
            "M" => (6, 0),
            "G" => (9, 0),
            "T" => (12, 0),
            "P" => (15, 0),
            "E" => (18, 0),
            "Ki" => (0, 1),
            "Mi" => (0, 2),
            "Gi" => (0, 3),
            "Ti" => (0, 4),
            "Pi" => (0, 5),
            "Ei" => (0, 6),
            other => (exponent(other)?, 0),
        };
        Ok(Scale { power_of_10, power_of_1024 })
    }
}

/// Reads a decimal exponent: `e` or `E` and a whole number with an optional sign.
fn exponent(suffix: &str) -> Result<i32, QuantityError> {
    let unknown = || QuantityError::UnknownSuffix(truncated(suffix));
    let number = suffix.strip_prefix(['e', 'E']).ok_or_else(unknown)?;
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(unknown());
    }
    number.parse().map_err(|_| QuantityError::ExponentOutOfRange(truncated(number)))
}

/// A whole number of any length, as decimal digits, least significant first.
///
/// Long fractions times 1024^6 do not fit any machine integer, and truncating them first could round the wrong way.
struct Digits(Vec<u8>);

impl Digits {
    /// The digits of `whole` and `fraction` as one number, both ASCII digits only.
    fn new(whole: &str, fraction: &str) -> Digits {
        let written = whole.bytes().chain(fraction.bytes());
        let mut digits: Vec<u8> = written.skip_while(|&byte| byte == b'0').map(|byte| byte - b'0').collect();
        digits.reverse();
        Digits(digits)
    }

    fn multiply_1024(&mut self, times: u32) {
        for _ in 0..times {
            let mut carry: u32 = 0;
            for digit in &mut self.0 {
                carry += u32::from(*digit) * 1024;
                *digit = (carry % 10) as u8;
                carry /= 10;
            }
            while carry > 0 {
                self.0.push((carry % 10) as u8);
                carry /= 10;
            }
        }
    }

    /// The number times ten to the power of `shift`, rounded up.
    fn shifted_rounding_up(&self, shift: i64) -> Result<i128, QuantityError> {
        let length = self.0.len() as i64;
        if length == 0 {
            return Ok(0);
        }
        if length + shift > MAX_DIGITS {
            return Err(QuantityError::TooLarge);
        }
        let dropped = usize::try_from((-shift).clamp(0, length)).unwrap_or(0);
        let kept = self.0[dropped..].iter().rev().fold(0_i128, |number, &digit| number * 10 + i128::from(digit));
        let zeros = u32::try_from(shift).unwrap_or(0);
        let lost = self.0[..dropped].iter().any(|&digit| digit != 0);
        Ok(kept * 10_i128.pow(zeros) + i128::from(lost))
    }
}

/// Prints the exact value in the largest of the units 1, m, u and n that leaves no fraction.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, suffix) = [(NANOS_PER_UNIT, ""), (NANOS_PER_MILLI, "m"), (1000, "u"), (1, "n")]
            .into_iter()
            .find(|(unit, _)| self.nanos % unit == 0)
            .unwrap_or((1, "n"));
        write!(f, "{}{suffix}", self.nanos / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: i128 = NANOS_PER_UNIT;

    fn nanos(text: &str) -> i128 {
        text.parse::<Quantity>().unwrap_or_else(|error| panic!("{text}: {error}")).nanos
    }

    #[test]
    fn every_suffix() {
        for (text, expected) in [
            ("1n", 1),
            ("1u", 1000),
            ("1m", 1_000_000),
            ("1", UNIT),
            ("1k", 1000 * UNIT),
            ("1M", 1_000_000 * UNIT),
            ("1G", UNIT * UNIT),
            ("1T", 1000 * UNIT * UNIT),
            ("1P", 1_000_000 * UNIT * UNIT),
            ("1E", UNIT * UNIT * UNIT),
            ("1Ki", (1 << 10) * UNIT),
            ("1Mi", (1 << 20) * UNIT),
            ("1Gi", (1 << 30) * UNIT),
            ("1Ti", (1 << 40) * UNIT),
            ("1Pi", (1 << 50) * UNIT),
            ("1Ei", (1 << 60) * UNIT),
            ("1e3", 1000 * UNIT),
            ("1E3", 1000 * UNIT),
            ("1e+3", 1000 * UNIT),
            ("1E-3", 1_000_000),
            ("1e0", UNIT),
            ("1e-9", 1),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    #[test]
    fn every_form_of_number() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("+0.0", 0),
            ("000", 0),
            ("1.", UNIT),
            (".5", UNIT / 2),
            ("1.5", 3 * UNIT / 2),
            ("+1.5", 3 * UNIT / 2),
            ("-1.5", -3 * UNIT / 2),
            ("007", 7 * UNIT),
            ("1.Gi", (1 << 30) * UNIT),
            (".5Gi", (1 << 29) * UNIT),
            ("1.5Gi", 3 * (1 << 29) * UNIT),
            ("0.1Ei", 115_292_150_460_684_697_600_000_000),
            ("123456789.123456789", 123_456_789_123_456_789),
            ("9223372036854775807", MAX_NANOS),
            ("-9223372036854775807", -MAX_NANOS),
            ("9223372036854775806.999999999", MAX_NANOS - 1),
            ("7.999999999Ei", 9_223_372_035_701_854_303_393_153_024),
            ("0e2147483647", 0),
            ("0e-2147483648", 0),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    #[test]
    fn below_a_nano_rounds_away_from_zero() {
        for (text, expected) in [
            ("0.1n", 1),
            ("-0.1n", -1),
            ("1.0000000000", UNIT),
            ("1.0000000001", UNIT + 1),
            ("-1.0000000001", -UNIT - 1),
            ("1e-2147483648", 1),
            ("-1e-2147483648", -1),
            ("0.00000000000000000000000000001Ki", 1),
            // 2^-10 of a Ki is exactly one: intermediate results must not be rounded.
            ("0.0009765625Ki", UNIT),
            ("0.00097656250000000000000001Ki", UNIT + 1),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
        let tiny = format!("0.{}1Ei", "0".repeat(5000));
        assert_eq!(nanos(&tiny), 1);
    }

    #[test]
    fn values_round_away_from_zero() {
        for (text, value, milli) in [
            ("0", 0, 0),
            ("1n", 1, 1),
            ("-1n", -1, -1),
            ("1m", 1, 1),
            ("999m", 1, 999),
            ("1001m", 2, 1001),
            ("-1001m", -2, -1001),
            ("1.0001", 2, 1001),
            ("2", 2, 2000),
            ("0.5Ki", 512, 512_000),
        ] {
            let quantity: Quantity = text.parse().unwrap();
            assert_eq!(quantity.value(), value, "{text}");
            assert_eq!(quantity.milli_value(), Ok(milli), "{text}");
        }
        let huge: Quantity = "9223372036854775807".parse().unwrap();
        assert_eq!(huge.value(), i64::MAX);
        assert_eq!(huge.milli_value(), Err(QuantityError::TooLarge));
    }

    #[test]
    fn invalid_texts_are_refused_with_the_reason() {
        use QuantityError as Bad;
        let unknown = |suffix: &str| Bad::UnknownSuffix(suffix.to_owned());
        for (text, error) in [
            ("", Bad::NoNumber),
            ("+", Bad::NoNumber),
            ("-", Bad::NoNumber),
            (".", Bad::NoNumber),
            ("m", Bad::NoNumber),
            ("Ki", Bad::NoNumber),
            ("e3", Bad::NoNumber),
            (" 1", Bad::NoNumber),
            ("--1", Bad::NoNumber),
            ("+-1", Bad::NoNumber),
            ("1.2.3", Bad::ManyPoints),
            ("1..", Bad::ManyPoints),
            ("1x", unknown("x")),
            ("1 ", unknown(" ")),
            ("1K", unknown("K")),
            ("1ki", unknown("ki")),
            ("1mi", unknown("mi")),
            ("1g", unknown("g")),
            ("1e", unknown("e")),
            ("1e+", unknown("e+")),
            ("1e1.5", unknown("e1.5")),
            ("1e3m", unknown("e3m")),
            ("1e+-3", unknown("e+-3")),
            ("1EE", unknown("EE")),
            ("1MiB", unknown("MiB")),
            ("0x10", unknown("x10")),
            ("1,5", unknown(",5")),
            ("1_000", unknown("_000")),
            ("1é", unknown("é")),
            ("1١", unknown("١")),
            ("1e2147483648", Bad::ExponentOutOfRange("2147483648".to_owned())),
            ("0e-99999999999999999999", Bad::ExponentOutOfRange("-99999999999999999999".to_owned())),
            ("9223372036854775808", Bad::TooLarge),
            ("-9223372036854775808", Bad::TooLarge),
            ("9223372036854775807.1", Bad::TooLarge),
            ("8Ei", Bad::TooLarge),
            ("10E", Bad::TooLarge),
            ("1e19", Bad::TooLarge),
            ("1e2147483647", Bad::TooLarge),
        ] {
            assert_eq!(text.parse::<Quantity>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn sums_are_exact_and_bounded() {
        let [a, b]: [Quantity; 2] = ["0.1", "0.2"].map(|text| text.parse().unwrap());
        assert_eq!(a.checked_add(b), Ok(Quantity::from_millis(300)));
        let most = Quantity::from_units(i64::MAX).unwrap();
        let nano: Quantity = "1n".parse().unwrap();
        assert_eq!(most.checked_add(nano), Err(QuantityError::TooLarge));
        assert_eq!(Quantity::from_units(i64::MIN), Err(QuantityError::TooLarge));
    }

    /// The parts of a text and, computed another way, its value as a fraction of two integers.
    fn written() -> impl Strategy<Value = (String, i128, i128)> {
        let suffixes = prop::sample::select(vec![
            ("n", 1, UNIT),
            ("u", 1, 1_000_000),
            ("m", 1, 1000),
            ("", 1, 1),
            ("k", 1000, 1),
            ("G", UNIT, 1),
            ("e-4", 1, 10_000),
            ("E2", 100, 1),
            ("Ki", 1 << 10, 1),
            ("Gi", 1 << 30, 1),
            ("Ti", 1 << 40, 1),
        ]);
        (any::<bool>(), 0..8000_i128, 0..10_000_i128, suffixes).prop_map(
            |(minus, whole, fraction, (suffix, times, over))| {
                let sign = if minus { "-" } else { "" };
                let text = format!("{sign}{whole}.{fraction:04}{suffix}");
                let numerator = (whole * 10_000 + fraction) * times;
                (text, if minus { -numerator } else { numerator }, 10_000 * over)
            },
        )
    }

    proptest! {
        #[test]
        fn value_is_the_fraction_rounded_away_from_zero((text, over, under) in written()) {
            let rounded = |scale: i128| {
                let (over, under) = ((over * scale).unsigned_abs(), under.unsigned_abs());
                i64::try_from(over.div_ceil(under)).unwrap()
            };
            let sign = over.signum() as i64;
            let quantity: Quantity = text.parse().unwrap();
            prop_assert_eq!(quantity.value(), sign * rounded(1));
            prop_assert_eq!(quantity.milli_value().unwrap(), sign * rounded(1000));
        }

        #[test]
        fn order_is_that_of_the_fractions((a, a_over, a_under) in written(), (b, b_over, b_under) in written()) {
            let by_fraction = (a_over * b_under).cmp(&(b_over * a_under));
            let by_quantity = a.parse::<Quantity>().unwrap().cmp(&b.parse().unwrap());
            // Below a nano two fractions may become one quantity, but the order must not be reversed.
            prop_assert!(by_quantity == by_fraction || by_quantity.is_eq());
            if UNIT % a_under == 0 && UNIT % b_under == 0 {
                prop_assert_eq!(by_quantity, by_fraction);
            }
        }

        #[test]
        fn printed_text_parses_to_the_same_value(nanos in -MAX_NANOS..=MAX_NANOS) {
            let quantity = Quantity { nanos };
            prop_assert_eq!(quantity.to_string().parse(), Ok(quantity));
        }

        #[test]
        fn binary_suffix_equals_plain_number(units in 0..9_000_000_i64) {
            let plain: Quantity = (units * 1024 * 1024).to_string().parse().unwrap();
            prop_assert_eq!(format!("{units}Mi").parse(), Ok(plain));
        }
    }
}
