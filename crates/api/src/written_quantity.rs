//! A quantity as written in an object: a JSON string or number.
//!
//! Deserializing a [`WrittenQuantity`] never fails, so that the error about an invalid one can name its field.
//!
//! Invariant: a JSON number is either parsed exactly or refused. JSON parsers represent fractions as `f64`, which keeps
//! 15 digits; a number that needs more must be a string. (A number with so many digits that it is parsed as a short one
//! cannot be detected; the API server never stores numbers.) Must not depend on the syntax of quantities.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::quantity::{Quantity, QuantityError};

/// A decimal number of at most this many digits is represented exactly enough as `f64`.
const EXACT_FLOAT_DIGITS: usize = 15;

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        let written = WrittenQuantity::deserialize(deserializer)?;
        written.parse().map_err(|error| serde::de::Error::custom(format!("{}: {error}", written.0)))
    }
}

/// A quantity as written in an object, not validated yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WrittenQuantity(pub Value);

impl WrittenQuantity {
    /// Parses the value. Kubernetes accepts strings (with surrounding blanks), numbers, and `null` as zero.
    pub fn parse(&self) -> Result<Quantity, QuantityError> {
        match &self.0 {
            Value::Null => Ok(Quantity::ZERO),
            Value::String(text) => text.trim().parse(),
            Value::Number(number) => {
                let text = number.to_string();
                if number.is_f64() && significant_digits(&text) > EXACT_FLOAT_DIGITS {
                    return Err(QuantityError::InexactNumber);
                }
                text.parse()
            }
            _ => Err(QuantityError::NotAQuantity),
        }
    }
}

impl From<&str> for WrittenQuantity {
    fn from(text: &str) -> WrittenQuantity {
        WrittenQuantity(Value::from(text))
    }
}

impl From<i64> for WrittenQuantity {
    fn from(number: i64) -> WrittenQuantity {
        WrittenQuantity(Value::from(number))
    }
}

fn significant_digits(number: &str) -> usize {
    let mantissa = number.split(['e', 'E']).next().unwrap_or(number);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings_and_numbers() {
        let read = |json: &str| {
            let written: WrittenQuantity = serde_json::from_str(json).unwrap();
            written.parse().map(|quantity| quantity.to_string())
        };
        for (json, expected) in [
            ("2", "2"),
            ("0.5", "500m"),
            ("0.1", "100m"),
            ("-3", "-3"),
            ("1e3", "1000"),
            ("1.5E-3", "1500u"),
            ("1e-15", "1n"),
            ("9223372036854775807", "9223372036854775807"),
            ("\"250m\"", "250m"),
            ("\" 1Ki \"", "1024"),
            ("null", "0"),
        ] {
            assert_eq!(read(json).as_deref(), Ok(expected), "{json}");
        }
        for (json, error) in [
            ("18446744073709551615", QuantityError::TooLarge),
            ("1e300", QuantityError::TooLarge),
            ("0.1234567890123456", QuantityError::InexactNumber),
            ("true", QuantityError::NotAQuantity),
            ("[1]", QuantityError::NotAQuantity),
            ("{}", QuantityError::NotAQuantity),
        ] {
            assert_eq!(read(json), Err(error), "{json}");
        }
        let error = serde_json::from_str::<Quantity>("\"1x\"").unwrap_err();
        assert!(error.to_string().starts_with("\"1x\": suffix \"x\""), "{error}");
    }
}
