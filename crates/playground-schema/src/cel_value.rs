//! Converts JSON values to CEL values according to their schema.
//!
//! Numbers are doubles where the schema has `number`, strings are timestamps, durations or bytes according to their
//! format, and field names are escaped so that CEL can select them.
//! Must not depend on rules.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, IdedExpr, Value as Cel};
use serde_json::{Number, Value};

use super::cel_functions::add_missing;
use super::cel_parse::compile;
use super::format::FormatKind;
use super::node::{Additional, Node, Type};

/// Reserved words of CEL.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

thread_local! {
    /// All functions available to rules. A context cannot be shared between threads.
    static FUNCTIONS: Context<'static> = add_missing(Context::default().with_all());
    // CEL itself parses strings of these formats, because the crates that it uses for that are not dependencies here.
    static TIMESTAMP: Option<IdedExpr> = compile("timestamp(text)").ok();
    static DURATION: Option<IdedExpr> = compile("duration(text)").ok();
    static BYTES: Option<IdedExpr> = compile("base64.decode(text)").ok();
}

/// Runs `work` with a scope that has all functions and no variables.
pub(super) fn with_functions<T>(work: impl FnOnce(Context<'_>) -> T) -> T {
    FUNCTIONS.with(|functions| work(functions.new_inner_scope()))
}

/// Converts a value to CEL.
pub(super) fn to_cel(value: &Value, node: &Node) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) if node.type_ == Some(Type::Number) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        Value::Number(number) => number_to_cel(number),
        Value::String(text) => text_to_cel(text, node),
        Value::Array(items) => match node.items.as_deref() {
            Some(each) => list(items.iter().map(|item| to_cel(item, each))),
            None => plain_to_cel(value),
        },
        Value::Object(fields) => {
            // A named field that is null counts as absent.
            let is_present =
                |(name, value): &(&String, &Value)| !value.is_null() || !node.properties.contains_key(*name);
            let entries = fields.iter().filter(is_present).map(|(name, value)| {
                match (node.properties.get(name), &node.additional) {
                    (Some(property), _) => (escape(name).unwrap_or_else(|| name.clone()), to_cel(value, property)),
                    (None, Some(Additional::Of(each))) => (name.clone(), to_cel(value, each)),
                    // Rules cannot select fields that are not in the schema, but `==` compares them.
                    _ => (name.clone(), plain_to_cel(value)),
                }
            });
            map(entries)
        }
    }
}

fn plain_to_cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => number_to_cel(number),
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => list(items.iter().map(plain_to_cel)),
        Value::Object(fields) => map(fields.iter().map(|(name, value)| (name.clone(), plain_to_cel(value)))),
    }
}

fn list(items: impl Iterator<Item = Cel>) -> Cel {
    Cel::List(Arc::new(items.collect()))
}

fn map(entries: impl Iterator<Item = (String, Cel)>) -> Cel {
    let map: HashMap<Key, Cel> = entries.map(|(name, value)| (Key::String(Arc::new(name)), value)).collect();
    Cel::Map(Map { map: Arc::new(map) })
}

fn number_to_cel(number: &Number) -> Cel {
    match number.as_i64() {
        Some(integer) => Cel::Int(integer),
        None => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

fn text_to_cel(text: &str, node: &Node) -> Cel {
    let format = node.checks.format.as_ref().filter(|_| node.type_ == Some(Type::String));
    let parsed = match format.map(|format| format.kind) {
        Some(FormatKind::DateTime) => parse(&TIMESTAMP, text.to_uppercase()),
        Some(FormatKind::Date) => parse(&TIMESTAMP, format!("{text}T00:00:00Z")),
        Some(FormatKind::Duration) => parse(&DURATION, text.to_owned()),
        Some(FormatKind::Byte) => parse(&BYTES, text.to_owned()),
        _ => None,
    };
    parsed.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

fn parse(program: &'static std::thread::LocalKey<Option<IdedExpr>>, text: String) -> Option<Cel> {
    program.with(|program| {
        with_functions(|mut scope| {
            scope.add_variable_from_value("text", Cel::String(Arc::new(text)));
            scope.resolve(program.as_ref()?).ok()
        })
    })
}

/// The escaped name of a field; `None` if CEL cannot select it.
pub(super) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c)) {
        return None;
    }
    let escaped = name.replace("__", "__underscores__").replace('.', "__dot__");
    Some(escaped.replace('-', "__dash__").replace('/', "__slash__"))
}

/// The size of the largest list or map in a value, and the length of its longest string.
pub(super) fn extent(value: &Value) -> Extent {
    match value {
        Value::Array(items) => items.iter().map(extent).fold(Extent { entries: items.len(), text: 0 }, Extent::or),
        Value::Object(map) => map.values().map(extent).fold(Extent { entries: map.len(), text: 0 }, Extent::or),
        Value::String(text) => Extent { entries: 0, text: text.len() },
        _ => Extent::default(),
    }
}

/// The sizes of the largest parts of a value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    /// The number of entries of the largest list or map.
    pub(super) entries: usize,
    /// The bytes of the longest string.
    pub(super) text: usize,
}

impl Extent {
    /// The larger of both.
    pub(super) fn or(self, other: Extent) -> Extent {
        Extent { entries: self.entries.max(other.entries), text: self.text.max(other.text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_in_kubernetes() {
        for (name, expected) in [
            ("a", Some("a")),
            ("a_b", Some("a_b")),
            ("a__b", Some("a__underscores__b")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("namespace", Some("__namespace__")),
            ("a b", None),
            ("", None),
            ("1a", None),
            ("é", None),
        ] {
            assert_eq!(escape(name).as_deref(), expected);
        }
    }
}
