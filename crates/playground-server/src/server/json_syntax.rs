//! The errors of Go's JSON decoder, which clients see.
//!
//! Invariant: there is no error exactly if the input is JSON and not too deep for this server.
//! Must not depend on what the input is for.

use std::borrow::Cow;

use muster_playground_schema::go_text::quoted;

/// How deep values may nest, since code that reads them recurses. kube-apiserver allows 10 000.
pub(crate) const DEPTH_MAX: usize = 127;

/// An error of Go's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SyntaxError {
    #[error("unexpected end of JSON input")]
    UnexpectedEnd,
    #[error("invalid character '{}' {place}", go_character(*.byte))]
    InvalidCharacter { byte: u8, place: Cow<'static, str> },
}

/// The next expected token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    /// After `[`: a value or the end.
    FirstEntry,
    /// After `{`: a key or the end.
    FirstKey,
    Key,
    Colon,
    /// After a value: a comma, the end of the enclosing value, or of the input.
    AfterValue,
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The open brackets.
    open: Vec<u8>,
}

/// The error of Go's decoder, if the input is not JSON.
pub(crate) fn syntax_error(bytes: &[u8]) -> Option<SyntaxError> {
    let mut scanner = Scanner { bytes, at: 0, open: Vec::new() };
    scanner.document().err()
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), SyntaxError> {
        let mut expected = Expected::Value;
        loop {
            while self.peek().is_some_and(|byte| b" \t\r\n".contains(&byte)) {
                self.at += 1;
            }
            let Some(byte) = self.peek() else {
                let done = expected == Expected::AfterValue && self.open.is_empty();
                return if done { Ok(()) } else { Err(SyntaxError::UnexpectedEnd) };
            };
            expected = match (expected, byte) {
                (Expected::AfterValue, _) => self.after_value(byte)?,
                (Expected::Colon, b':') => self.step(Expected::Value),
                (Expected::Colon, _) => return Err(invalid_character(byte, "after object key")),
                (Expected::FirstKey, b'}') | (Expected::FirstEntry, b']') => self.close(),
                (Expected::FirstKey | Expected::Key, b'"') => {
                    self.string()?;
                    Expected::Colon
                }
                (Expected::FirstKey | Expected::Key, _) => {
                    return Err(invalid_character(byte, "looking for beginning of object key string"));
                }
                (Expected::Value | Expected::FirstEntry, _) => self.value(byte)?,
            };
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn step(&mut self, expected: Expected) -> Expected {
        self.at += 1;
        expected
    }

    fn close(&mut self) -> Expected {
        self.open.pop();
        self.step(Expected::AfterValue)
    }

    fn after_value(&mut self, byte: u8) -> Result<Expected, SyntaxError> {
        match (self.open.last(), byte) {
            (Some(b'{'), b',') => Ok(self.step(Expected::Key)),
            (Some(b'['), b',') => Ok(self.step(Expected::Value)),
            (Some(b'{'), b'}') | (Some(b'['), b']') => Ok(self.close()),
            (Some(b'{'), _) => Err(invalid_character(byte, "after object key:value pair")),
            (Some(_), _) => Err(invalid_character(byte, "after array element")),
            (None, _) => Err(invalid_character(byte, "after top-level value")),
        }
    }

    fn value(&mut self, byte: u8) -> Result<Expected, SyntaxError> {
        match byte {
            b'{' | b'[' => {
                if self.open.len() >= DEPTH_MAX {
                    return Err(invalid_character(byte, "exceeded max depth"));
                }
                self.open.push(byte);
                return Ok(self.step(if byte == b'{' { Expected::FirstKey } else { Expected::FirstEntry }));
            }
            b'"' => self.string()?,
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            b'-' | b'0'..=b'9' => self.number()?,
            _ => return Err(invalid_character(byte, "looking for beginning of value")),
        }
        Ok(Expected::AfterValue)
    }

    /// The next byte; its absence is an error.
    fn take(&mut self) -> Result<u8, SyntaxError> {
        let byte = self.peek().ok_or(SyntaxError::UnexpectedEnd)?;
        self.at += 1;
        Ok(byte)
    }

    fn string(&mut self) -> Result<(), SyntaxError> {
        self.at += 1;
        loop {
            match self.take()? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                byte if byte < b' ' => return Err(invalid_character(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        match self.take()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => (0..4).try_for_each(|_| match self.take()? {
                byte if byte.is_ascii_hexdigit() => Ok(()),
                byte => Err(invalid_character(byte, "in \\u hexadecimal character escape")),
            }),
            byte => Err(invalid_character(byte, "in string escape code")),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), SyntaxError> {
        for wanted in word.bytes() {
            match self.take()? {
                byte if byte == wanted => {}
                byte => {
                    let why = format!("in literal {word} (expecting '{}')", char::from(wanted));
                    return Err(invalid_character(byte, why));
                }
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.take()? {
            // After a leading zero only a fraction or exponent may follow.
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            byte => return Err(invalid_character(byte, "in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.require_digits("after decimal point in numeric literal")?;
        }
        if self.peek().is_some_and(|byte| b"eE".contains(&byte)) {
            self.at += 1;
            if self.peek().is_some_and(|byte| b"+-".contains(&byte)) {
                self.at += 1;
            }
            self.require_digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn require_digits(&mut self, place: &'static str) -> Result<(), SyntaxError> {
        match self.take()? {
            byte if byte.is_ascii_digit() => self.digits(),
            byte => return Err(invalid_character(byte, place)),
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }
}

fn invalid_character(byte: u8, place: impl Into<Cow<'static, str>>) -> SyntaxError {
    SyntaxError::InvalidCharacter { byte, place: place.into() }
}

/// Go works on bytes, and prints each as the character with its number.
fn go_character(byte: u8) -> String {
    match byte {
        b'\'' => "\\'".to_owned(),
        b'"' => "\"".to_owned(),
        _ => quoted(&char::from(byte).to_string()).trim_matches('"').to_owned(),
    }
}

/// The input with lone surrogate escapes replaced, as Go does; `None` if there are none.
pub(crate) fn without_lone_surrogates(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut found = false;
    while let Some(start) = rest.find('\\') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let length = match (code_unit(rest), rest.get(6..).and_then(code_unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                found = true;
                out.push('\u{fffd}');
                rest = &rest[6..];
                continue;
            }
            (Some(_), _) => 6,
            // Any character may follow the backslash.
            (None, _) => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out.push_str(rest);
    found.then_some(out)
}

/// The code unit of an escape `\u1234` at the start of a string.
fn code_unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_replaced() {
        assert_eq!(without_lone_surrogates(r#""a\ud83d\ude00 \u00e9 \\ud800 \n""#), None);
        assert_eq!(without_lone_surrogates(r#""a\ud800b\udc00""#).unwrap(), "\"a\u{fffd}b\u{fffd}\"");
    }

    #[test]
    fn syntax_errors_are_those_of_go() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            ("  {\"a\": [1, 2.5e3, true, null, \"\\u00e9\\n\"]} ", ""),
            ("[]", ""),
            ("{", "unexpected end of JSON input"),
            ("}", "invalid character '}' looking for beginning of value"),
            ("{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
            ("{\"a\"}", "invalid character '}' after object key"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\":01}", "invalid character '1' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("1 x", "invalid character 'x' after top-level value"),
            ("nonsense", "invalid character 'o' in literal null (expecting 'u')"),
            ("\"a\tb\"", "invalid character '\\t' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u12g4\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ] {
            let error = syntax_error(text.as_bytes()).map(|error| error.to_string());
            assert_eq!(error.unwrap_or_default(), expected, "{text}");
        }
        let deep = "[".repeat(200);
        assert_eq!(syntax_error(deep.as_bytes()).unwrap().to_string(), "invalid character '[' exceeded max depth");
    }
}
