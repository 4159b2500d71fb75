//! Regular expressions with the semantics of Go's `regexp`.
//!
//! Both engines run in linear time and share nearly all of their syntax. Differences are rewritten here; what cannot be
//! rewritten is rejected by the compiler. Must not depend on schemas.

use regex::Regex;

/// A compiled regular expression.
#[derive(Debug)]
pub(super) struct Pattern {
    written: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern; the error describes the first mistake.
    pub(super) fn parse(written: &str) -> Result<Pattern, regex::Error> {
        Ok(Pattern { written: written.to_owned(), regex: Regex::new(&in_rust(written))? })
    }

    /// Whether a part of the string matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The pattern as written in the schema.
    pub(super) fn written(&self) -> &str {
        &self.written
    }
}

/// In Go, `\d`, `\w`, `\s` and `\b` are ASCII only, and `[` inside a class is a literal.
fn in_rust(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    let mut class_is_empty = false;
    while let Some(c) = chars.next() {
        let first_in_class = in_class && class_is_empty;
        if in_class {
            class_is_empty = false;
        }
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
                Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
                Some('b') => out.push_str("(?-u:\\b)"),
                Some('B') => out.push_str("(?-u:\\B)"),
                Some(escaped) => out.extend(['\\', escaped]),
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                class_is_empty = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
            }
            // A bracket in the first position is a member of the class in both languages.
            ']' if in_class && !first_in_class => {
                in_class = false;
                out.push(']');
            }
            // `[:alpha:]` contains a bracket of its own.
            '[' if chars.peek() == Some(&':') => {
                out.push('[');
                for member in chars.by_ref() {
                    out.push(member);
                    if member == ']' {
                        break;
                    }
                }
            }
            '[' | '&' | '~' if in_class => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, text, expected) in [
            ("^[a-z]+$", "abc", true),
            ("^[a-z]+$", "aBc", false),
            ("b", "abc", true),
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{664}\u{662}", false),
            (r"^\w$", "é", false),
            (r"^[\w.]+$", "a.b", true),
            (r"^[^\D]+$", "12", true),
            (r"^\s$", "\u{a0}", false),
            (r"a\b", "a é", true),
            (r"a\b", "aé", true),
            ("^[[]$", "[", true),
            ("^[]a]+$", "]a", true),
            ("^[^]]$", "]", false),
            ("^[a&&b]+$", "a&b", true),
            ("^[[:alpha:]_]+$", "a_", true),
            (r"^[\[\]]+$", "[]", true),
            (r"^\/$", "/", true),
            ("(?i)^a$", "A", true),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().matches(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for pattern in ["(", "[", "a(?=b)", r"(a)\1", "*", "\\"] {
            assert!(Pattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
