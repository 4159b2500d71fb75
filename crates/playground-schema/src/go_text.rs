//! Formats values as Go does, since clients see them in error messages.
//!
//! Implements `%q`, `%v` of numbers and `json.Marshal`. Must not depend on what is formatted.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// A string in double quotes, as by `%q`.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_printed(c) => out.push(c),
            // Writing into a string cannot fail.
            c if (c as u32) < 0x80 => drop(write!(out, "\\x{:02x}", c as u32)),
            c if (c as u32) < 0x1_0000 => drop(write!(out, "\\u{:04x}", c as u32)),
            c => drop(write!(out, "\\U{:08x}", c as u32)),
        }
    }
    out.push('"');
    out
}

/// Whether `%q` prints a character unescaped.
pub fn is_printed(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    // Rust escapes exactly what it considers not printable, and also combining marks, which Go prints.
    let mut escaped = c.escape_debug();
    escaped.len() == 1
        || c.is_alphanumeric()
        || matches!(escaped.nth(1), Some('u')) && ('\u{300}'..='\u{36f}').contains(&c)
}

/// A number as by `%v`: an integer if it fits `int64`, otherwise a `float64`.
pub(super) fn number(number: &Number) -> String {
    match number.as_i64() {
        Some(integer) => integer.to_string(),
        None => float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

/// A `float64` as by `%v`: the shortest digits, with an exponent below -4 and from 21 on.
pub(super) fn float(value: f64) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".to_owned() } else { "0".to_owned() };
    }
    let (digits, exponent) = scientific(value);
    if (-4..21).contains(&exponent) { format!("{value}") } else { with_exponent(&digits, exponent) }
}

/// Splits a number into digits such as `-1.5` and a decimal exponent.
fn scientific(value: f64) -> (String, i32) {
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.to_owned(), exponent.parse().unwrap_or(0))
}

fn with_exponent(digits: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// A value as by `json.Marshal`: sorted keys, and `<`, `>` and `&` escaped.
pub(super) fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, &mut out);
    out
}

fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&json_number(number)),
        Value::String(text) => write_json_text(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| key.as_str());
            out.push('{');
            for (index, (key, item)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json_text(key, out);
                out.push(':');
                write_json(item, out);
            }
            out.push('}');
        }
    }
}

fn json_number(number: &Number) -> String {
    let Some(value) = number.as_f64().filter(|_| number.as_i64().is_none()) else {
        return number.to_string();
    };
    let (digits, exponent) = scientific(value);
    if value == 0.0 || (-6..21).contains(&exponent) {
        format!("{value}")
    } else if exponent < 0 {
        format!("{digits}e{exponent}")
    } else {
        with_exponent(&digits, exponent)
    }
}

fn write_json_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{0}'..='\u{1f}' | '\u{2028}' | '\u{2029}' => {
                // Writing into a string cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn strings_are_quoted_as_by_go() {
        for (text, expected) in [
            ("a", r#""a""#),
            ("it's \"é\"\\", r#""it's \"é\"\\""#),
            ("\n\t\u{7}\u{0}\u{7f}", r#""\n\t\a\x00\x7f""#),
            ("\u{200b}\u{1f600}", "\"\\u200b\u{1f600}\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn numbers_are_printed_as_by_go() {
        for (json, expected) in [
            (value!(5), "5"),
            (value!(-5), "-5"),
            (value!(5.0), "5"),
            (value!(0.5), "0.5"),
            (value!(1e20), "100000000000000000000"),
            (value!(1e21), "1e+21"),
            (value!(1.5e-7), "1.5e-07"),
            (value!(0.0001), "0.0001"),
            (value!(18_446_744_073_709_551_615_u64), "18446744073709552000"),
        ] {
            let Value::Number(written) = &json else { unreachable!() };
            assert_eq!(number(written), expected);
        }
    }

    #[test]
    fn json_is_written_as_by_go() {
        let written = json(&value!({"b": [1, 2.0, 1e-7, null], "a": "<x> & \u{1}\n", "c": {"d": true}}));
        assert_eq!(written, r#"{"a":"\u003cx\u003e \u0026 \u0001\n","b":[1,2,1e-7,null],"c":{"d":true}}"#);
    }
}
