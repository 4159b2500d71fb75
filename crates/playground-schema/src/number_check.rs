//! Validates numbers.
//!
//! Limits in schemas are floats; an integer is compared as an integer if the limit is one.
//! Must not depend on other types.

use serde_json::{Number, Value};

use super::format::FormatKind;
use super::go_text;
use super::node::{Node, Type};
use super::value_check::{Failure, Outcome};

/// A number as Go represents it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Num {
    /// An `int64`.
    Int(i64),
    /// A `float64`.
    Float(f64),
}

impl From<&Number> for Num {
    fn from(number: &Number) -> Num {
        match number.as_i64() {
            Some(integer) => Num::Int(integer),
            None => Num::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }
}

impl Num {
    /// The number as a float.
    pub(super) fn as_f64(self) -> f64 {
        match self {
            Num::Int(integer) => integer as f64,
            Num::Float(float) => float,
        }
    }

    fn printed(self) -> String {
        match self {
            Num::Int(integer) => integer.to_string(),
            Num::Float(float) => go_text::float(float),
        }
    }

    fn value(self) -> Value {
        match self {
            Num::Int(integer) => integer.into(),
            Num::Float(float) => float.into(),
        }
    }
}

/// Whether a float is an integer, or nearly so.
pub(super) fn is_json_integer(value: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    const CLOSE: f64 = 1e-9;
    if value.is_nan() || value.abs() > LARGEST {
        return false;
    }
    let rounded = value.round();
    let difference = (value - rounded).abs();
    difference == 0.0 || rounded != 0.0 && difference < CLOSE * rounded.abs()
}

/// Validates a number against its type and limits.
pub(super) fn check_number(node: &Node, number: Num, path: &str, outcome: &mut Outcome) {
    outcome.matches += 1;
    let checks = &node.checks;
    let range = Range::of(node);
    let fail = |outcome: &mut Outcome, number: Num, rest: String| {
        outcome.failures.push(Failure::invalid(path, number.value(), format!("{path} in body should be {rest}")));
    };
    if !range.holds(number) {
        outcome.failures.push(range.failure("Checked", path));
    }
    if let Some(factor) = checks.multiple_of {
        let (number, factor) = native(number, factor, &range, "MultipleOf", path, outcome);
        // A fraction is truncated to zero for integers.
        if factor == Num::Int(0) {
            let message = format!("factor MultipleOf declared for {path} must be positive: 0");
            outcome.failures.push(Failure::invalid(path, 0, message));
        } else if !is_multiple(number, factor) {
            fail(outcome, number, format!("a multiple of {}", factor.printed()));
        }
    }
    if let Some(minimum) = checks.minimum {
        let (number, minimum) = native(number, minimum, &range, "Minimum boundary", path, outcome);
        if is_less(number, minimum) || checks.exclusive_minimum && !is_less(minimum, number) {
            let than = if checks.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            fail(outcome, number, format!("{than} {}", minimum.printed()));
        }
    }
    if let Some(maximum) = checks.maximum {
        let (number, maximum) = native(number, maximum, &range, "Maximum boundary", path, outcome);
        if is_less(maximum, number) || checks.exclusive_maximum && !is_less(number, maximum) {
            let than = if checks.exclusive_maximum { "less than" } else { "less than or equal to" };
            fail(outcome, number, format!("{than} {}", maximum.printed()));
        }
    }
}

/// Both numbers in the type in which they are compared. A limit outside of the range of the type is reported, and the
/// numbers are then compared as floats.
fn native(number: Num, limit: f64, range: &Range, what: &str, path: &str, outcome: &mut Outcome) -> (Num, Num) {
    if !range.holds(Num::Float(limit)) {
        outcome.failures.push(range.failure(what, path));
        return (Num::Float(number.as_f64()), Num::Float(limit));
    }
    match number {
        Num::Int(_) => (number, Num::Int(limit as i64)),
        Num::Float(_) => (number, Num::Float(limit)),
    }
}

fn is_less(one: Num, other: Num) -> bool {
    match (one, other) {
        (Num::Int(one), Num::Int(other)) => one < other,
        _ => one.as_f64() < other.as_f64(),
    }
}

fn is_multiple(number: Num, factor: Num) -> bool {
    if let (Num::Int(number), Num::Int(factor)) = (number, factor) {
        return number.checked_rem(factor) == Some(0);
    }
    let (number, factor) = (number.as_f64(), factor.as_f64());
    is_json_integer(if factor < 1.0 { 1.0 / factor * number } else { number / factor })
}

/// The range of a numeric type.
struct Range {
    type_: Option<Type>,
    format: Option<FormatKind>,
    written: String,
}

impl Range {
    fn of(node: &Node) -> Range {
        let type_ = node.type_.filter(|type_| matches!(type_, Type::Integer | Type::Number));
        let format = node.checks.format.as_ref().filter(|_| type_.is_some());
        Range {
            type_,
            format: format.map(|format| format.kind),
            written: format.map(|format| format.written.clone()).unwrap_or_default(),
        }
    }

    fn holds(&self, number: Num) -> bool {
        match (self.type_, self.format) {
            (Some(Type::Integer), format) => {
                let integer = match number {
                    Num::Int(integer) => Some(integer),
                    // 2^63 is the first float that is too large.
                    Num::Float(float) if float.fract() == 0.0 && (-(2f64.powi(63))..2f64.powi(63)).contains(&float) => {
                        Some(float as i64)
                    }
                    Num::Float(_) => None,
                };
                integer.is_some_and(|integer| format != Some(FormatKind::Int32) || i32::try_from(integer).is_ok())
            }
            (_, Some(FormatKind::Float)) => (number.as_f64() as f32).is_finite(),
            _ => true,
        }
    }

    fn failure(&self, what: &str, path: &str) -> Failure {
        let type_ = self.type_.map_or("", Type::name);
        Failure::of_object(if self.written.is_empty() {
            format!("{what} value must be of type {type_} (default format) in {path}")
        } else {
            format!("{what} value must be of type {type_} with format {} in {path}", self.written)
        })
    }
}
