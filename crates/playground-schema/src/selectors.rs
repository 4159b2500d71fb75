//! Parses and prints `labelSelector` and `fieldSelector` query parameters.
//!
//! The accepted syntax and the error messages are those of apimachinery's `labels` and `fields`. Invariant: printing a
//! parsed selector and parsing it again gives the same selector.
//! Must not depend on which fields of a kind are selectable, nor on requests.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

use muster_api::names::check_dns_subdomain;
use muster_api::selector::{Labels, Operator, Requirement};
use regex::Regex;
use serde_json::{Map, Value};

use super::{FieldError, NO_FIELD};

/// Why a selector is invalid, with the message of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// A parsed label selector. All requirements must match; without any, everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Parses a selector such as `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>5,j<3`.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        let mut requirements = Parser { tokens: scan(text), position: 0 }.selector()?;
        requirements.sort_unstable();
        Ok(LabelSelector { requirements })
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object with these labels matches.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|one| one.matches(labels))
    }

    /// Whether an object with this `metadata.labels` matches.
    pub fn matches_json(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.requirements.iter().all(|one| {
            let value = labels.and_then(|labels| labels.get(&one.key)).and_then(Value::as_str);
            one.matches(&value.map(|value| (one.key.clone(), value.to_owned())).into_iter().collect())
        })
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, operator }) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            let (single, several, values) = match operator {
                Operator::Exists => {
                    f.write_str(key)?;
                    continue;
                }
                Operator::DoesNotExist => {
                    write!(f, "!{key}")?;
                    continue;
                }
                Operator::Gt(bound) => {
                    write!(f, "{key}>{bound}")?;
                    continue;
                }
                Operator::Lt(bound) => {
                    write!(f, "{key}<{bound}")?;
                    continue;
                }
                Operator::In(values) => ("=", "in", values),
                Operator::NotIn(values) => ("!=", "notin", values),
            };
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            match values.as_slice() {
                [value] => write!(f, "{key}{single}{value}")?,
                values => write!(f, "{key} {several} ({})", values.join(","))?,
            }
        }
        Ok(())
    }
}

/// A token of a label selector. `in` and `notin` are words: they are also valid keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'a str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::Word(text) | Token::Symbol(text) => text,
            Token::End => "",
        }
    }

    /// The error that this token is not what must follow.
    fn instead_of(self, expected: &str) -> SelectorError {
        SelectorError(format!("found '{}', expected: {expected}", self.text()))
    }
}

/// Tokenizes a string; the last token is the end. A zero byte ends a word, or else the input.
fn scan(text: &str) -> Vec<Token<'_>> {
    const SYMBOLS: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];
    const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(SPACES);
        let length = match rest.chars().next() {
            None | Some('\0') => break,
            Some('=' | '!') if rest[1..].starts_with('=') => 2,
            Some(symbol) if SYMBOLS.contains(&symbol) => 1,
            Some(_) => {
                let ends = |c: char| c == '\0' || SYMBOLS.contains(&c) || SPACES.contains(&c);
                let (word, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
                tokens.push(Token::Word(word));
                rest = after.strip_prefix('\0').unwrap_or(after);
                continue;
            }
        };
        let (symbol, after) = rest.split_at(length);
        tokens.push(Token::Symbol(symbol));
        rest = after;
    }
    tokens.push(Token::End);
    tokens
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.position).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::End => return Ok(requirements),
                Token::Word(_) | Token::Symbol("!") => {}
                other @ Token::Symbol(_) => {
                    return Err(other.instead_of("!, identifier, or 'end of string'"));
                }
            }
            let requirement = self.requirement();
            requirements
                .push(requirement.map_err(|error| SelectorError(format!("unable to parse requirement: {error}")))?);
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") => match self.peek() {
                    Token::Word(_) | Token::Symbol("!") => {}
                    other => return Err(other.instead_of("identifier after ','")),
                },
                other => return Err(other.instead_of("',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let is_absent = self.peek() == Token::Symbol("!");
        if is_absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(other.instead_of("identifier")),
        };
        let wrong = label_key_errors(key);
        if !wrong.is_empty() {
            return Err(SelectorError(FieldError::invalid(NO_FIELD, key, wrong.join("; ")).to_string()));
        }
        let requirement = |operator| Ok(Requirement { key: key.to_owned(), operator });
        if is_absent {
            return requirement(Operator::DoesNotExist);
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return requirement(Operator::Exists);
        }
        let token = self.next();
        let operator = token.text();
        let values = match operator {
            "in" | "notin" => self.values()?,
            "=" | "==" | "!=" | ">" | "<" => [self.value()?].into(),
            _ => return Err(token.instead_of("in, notin, =, ==, !=, gt, lt")),
        };
        let integer = if matches!(operator, ">" | "<") { values.first().map(|one| one.parse::<i64>()) } else { None };
        let mut errors = Vec::new();
        if let (Some(Err(_)), Some(value)) = (&integer, values.first()) {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            errors.push(FieldError::invalid("values[0]", value.as_str(), detail).to_string());
        }
        for (index, value) in values.iter().enumerate() {
            let wrong = label_value_errors(value);
            if !wrong.is_empty() {
                let path = format!("values[{index}][{key}]");
                errors.push(FieldError::invalid(path, value.as_str(), wrong.join("; ")).to_string());
            }
        }
        match errors.as_slice() {
            [] => {}
            [error] => return Err(SelectorError(error.clone())),
            errors => return Err(SelectorError(format!("[{}]", errors.join(", ")))),
        }
        match (operator, integer) {
            (">", Some(Ok(bound))) => requirement(Operator::Gt(bound)),
            ("<", Some(Ok(bound))) => requirement(Operator::Lt(bound)),
            ("!=" | "notin", _) => requirement(Operator::NotIn(values)),
            _ => requirement(Operator::In(values)),
        }
    }

    /// A single value, possibly empty.
    fn value(&mut self) -> Result<String, SelectorError> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(value) => Ok(value.to_owned()),
            other => Err(other.instead_of("identifier")),
        }
    }

    /// Values in parentheses, each possibly empty.
    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(SelectorError(format!("found '{}' expected: '('", other.text()))),
        }
        match self.peek() {
            Token::Symbol(")") => {
                self.next();
                return Ok([String::new()].into());
            }
            Token::Word(_) | Token::Symbol(",") => {}
            other => return Err(other.instead_of("',', ')' or identifier")),
        }
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                Token::Word(value) => {
                    values.insert(value.to_owned());
                    match self.peek() {
                        Token::Symbol(",") => continue,
                        Token::Symbol(")") => {}
                        other => return Err(other.instead_of("',' or ')'")),
                    }
                }
                Token::Symbol(",") => {
                    let is_end = self.peek() == Token::Symbol(")");
                    if values.is_empty() || is_end || self.peek() == Token::Symbol(",") {
                        values.insert(String::new());
                    }
                    if !is_end {
                        continue;
                    }
                }
                other => return Err(other.instead_of("',', or identifier")),
            }
            self.next();
            return Ok(values);
        }
    }
}

const NAME_SHAPE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_SHAPE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PREFIX_SHAPE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

#[allow(clippy::unwrap_used)] // a constant pattern, used by every test
static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new("^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$").unwrap());

/// The errors of a label key, with the messages of kube-apiserver.
pub fn label_key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > 253 {
                    errors.push("prefix part must be no more than 253 bytes".to_owned());
                }
                // Only the characters matter here, so each part is checked separately.
                if !prefix.split('.').all(|part| part.len() > 253 || check_dns_subdomain(part).is_ok()) {
                    errors.push(format!("prefix part {PREFIX_SHAPE}"));
                }
            }
            *name
        }
        _ => {
            let prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {NAME_SHAPE} {prefix}")];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 bytes".to_owned());
    }
    if !NAME.is_match(name) {
        errors.push(format!("name part {NAME_SHAPE}"));
    }
    errors
}

/// The errors of a label value, with the messages of kube-apiserver.
pub fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !NAME.is_match(value) {
        errors.push(VALUE_SHAPE.to_owned());
    }
    errors
}

/// A parsed field selector. All terms must match; without any, everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// A requirement on one field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldTerm {
    /// The path of the field, such as `metadata.name`.
    pub path: String,
    /// How field and value are compared.
    pub operator: FieldOperator,
    /// The value.
    pub value: String,
}

/// How a field and the value of a selector are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldOperator {
    /// The field has the value.
    Equals,
    /// The field has another value.
    NotEquals,
}

impl FieldTerm {
    /// Whether a field with this value matches.
    pub fn matches(&self, actual: &str) -> bool {
        (actual == self.value) == (self.operator == FieldOperator::Equals)
    }
}

impl FieldSelector {
    /// Parses a selector such as `metadata.name=x,spec.nodeName!=y`.
    ///
    /// In values, `\`, `,` and `=` are escaped with a backslash.
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable(); // so that the first reported error is that of kube-apiserver
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let mut terms: Vec<FieldTerm> = parts.map(|part| parse_term(text, part)).collect::<Result<_, _>>()?;
        terms.sort_unstable();
        Ok(FieldSelector { terms })
    }

    /// The terms, sorted by path.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if term.operator == FieldOperator::Equals { "=" } else { "!=" };
            let value = term.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{}{operator}{value}", term.path)?;
        }
        Ok(())
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut is_escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn parse_term(whole: &str, part: &str) -> Result<FieldTerm, SelectorError> {
    let found = part.char_indices().find_map(|(index, _)| {
        let rest = &part[index..];
        let (length, operator) = match rest {
            _ if rest.starts_with("!=") => (2, FieldOperator::NotEquals),
            _ if rest.starts_with("==") => (2, FieldOperator::Equals),
            _ if rest.starts_with('=') => (1, FieldOperator::Equals),
            _ => return None,
        };
        Some((&part[..index], operator, &rest[length..]))
    });
    let Some((path, operator, written)) = found else {
        return Err(SelectorError(format!("invalid selector: '{whole}'; can't understand '{part}'")));
    };
    let wrong = |reason: String| Err(SelectorError(format!("invalid field selector: {reason}")));
    let mut value = String::new();
    let mut chars = written.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                Some(other) => return wrong(format!("invalid escape sequence: \\{other}")),
                None => return wrong("invalid escape sequence: \\".to_owned()),
            },
            ',' | '=' => return wrong(format!("unescaped character in value: {}", c as u32)),
            c => value.push(c),
        }
    }
    Ok(FieldTerm { path: path.to_owned(), operator, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn label_selectors_match_labels() {
        let labels = json!({"a": "b", "n": "7", "empty": ""});
        let map: Labels = serde_json::from_value(labels.clone()).unwrap();
        for (selector, expected) in [
            ("", true),
            ("a", true),
            ("!a", false),
            ("!z", true),
            ("a=b", true),
            ("a=c", false),
            ("a!=c,a", true),
            ("z!=c", true),
            ("z=c", false),
            ("z=", false),
            ("empty=", true),
            ("a in (b,c)", true),
            ("a notin (b,c)", false),
            ("z notin (b,c)", true),
            ("n>6,n<8", true),
            ("n>7", false),
            ("a>1", false),
            ("z<1", false),
        ] {
            let query = LabelSelector::parse(selector).unwrap();
            assert_eq!(query.matches(&map), expected, "{selector}");
            assert_eq!(query.matches_json(labels.as_object()), expected, "{selector}");
        }
        assert!(!LabelSelector::parse("a").unwrap().matches_json(None));
    }

    #[test]
    fn field_selectors_match_fields() {
        let query = FieldSelector::parse("spec.nodeName!=y,metadata.name=a\\,b").unwrap();
        let [name, node] = query.terms() else { panic!("{query:?}") };
        assert_eq!((name.path.as_str(), node.path.as_str()), ("metadata.name", "spec.nodeName"));
        assert!(name.matches("a,b") && !name.matches("a"));
        assert!(node.matches("x") && node.matches("") && !node.matches("y"));
    }

    #[test]
    fn long_prefix_is_reported_by_its_length_alone() {
        let key = format!("{}/a", "a".repeat(254));
        assert_eq!(label_key_errors(&key), ["prefix part must be no more than 253 bytes"]);
    }

    proptest! {
        #[test]
        fn printed_label_selector_parses_to_the_same(text in "(([a-c=!<>(), ]|in|notin|[0-9]){0,9}|[a-z]( in |!=|=|>)[(]?[a-z0-9,]{0,4}[)]?(,[a-z])?)") {
            if let Ok(query) = LabelSelector::parse(&text) {
                prop_assert_eq!(LabelSelector::parse(&query.to_string()), Ok(query));
            }
        }

        #[test]
        fn printed_field_selector_parses_to_the_same(text in "[ab=!,\\\\é]{0,12}") {
            if let Ok(query) = FieldSelector::parse(&text) {
                prop_assert_eq!(FieldSelector::parse(&query.to_string()), Ok(query));
            }
        }

        #[test]
        fn parsing_never_panics(text in any::<String>()) {
            let _ = LabelSelector::parse(&text);
            let _ = FieldSelector::parse(&text);
        }
    }
}
