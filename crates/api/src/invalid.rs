//! What is wrong with an object, said so that its author can mend it.
//!
//! Every error names the object, the path of the field, the value as written and the reason.
//! Checks inside know only the path ([`InvalidField`]); whoever knows the object adds it with
//! [`InvalidField::on`].
//!
//! Invariant: what is shown of a value is bounded, since errors travel into events and
//! conditions and a hostile value may be megabytes long.
//! This file must not know any kind of object or any rule.

use std::fmt;

use serde::Serialize;

/// The most characters of a value that an error shows.
const SHOWN_CHARS: usize = 120;

/// A path to a field, such as `spec.containers[0].resources.requests[cpu]`.
///
/// The steps borrow each other, so that a path costs nothing until an error prints it.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub enum FieldPath<'a> {
    /// The field at the top.
    Root(&'a str),
    /// A named field inside another.
    Child(&'a FieldPath<'a>, &'a str),
    /// An entry of a list.
    Index(&'a FieldPath<'a>, usize),
    /// An entry of a map.
    Key(&'a FieldPath<'a>, &'a str),
}

impl<'a> FieldPath<'a> {
    /// The path of the field `name` inside this one.
    pub fn child(&'a self, name: &'a str) -> FieldPath<'a> {
        FieldPath::Child(self, name)
    }

    /// The path of the list entry `index`.
    pub fn index(&'a self, index: usize) -> FieldPath<'a> {
        FieldPath::Index(self, index)
    }

    /// The path of the map entry `key`.
    pub fn key(&'a self, key: &'a str) -> FieldPath<'a> {
        FieldPath::Key(self, key)
    }

    /// An error about this field.
    pub fn invalid<V: Serialize + ?Sized>(&self, value: &V, reason: impl fmt::Display) -> InvalidField {
        InvalidField {
            field: self.to_string(),
            value: shown(&serde_json::to_string(value).unwrap_or_default()),
            reason: reason.to_string(),
        }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldPath::Root(name) => f.write_str(name),
            FieldPath::Child(parent, name) => write!(f, "{parent}.{}", shown(name)),
            FieldPath::Index(parent, index) => write!(f, "{parent}[{index}]"),
            FieldPath::Key(parent, key) => write!(f, "{parent}[{}]", shown(key)),
        }
    }
}

/// A wrong field of an object that is not named yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value}: {reason}")]
pub struct InvalidField {
    /// The path of the field.
    pub field: String,
    /// The value as JSON, cut short if it is long.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
}

impl InvalidField {
    /// Names the object, e.g. `Pod default/a-0`.
    pub fn on(self, object: impl fmt::Display) -> Invalid {
        Invalid { object: object.to_string(), field: self.field, value: self.value, reason: self.reason }
    }
}

/// A wrong field of a named object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {value}: {reason}")]
pub struct Invalid {
    /// Kind, namespace and name.
    pub object: String,
    /// The path of the field.
    pub field: String,
    /// The value as JSON, cut short if it is long.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The text, or as much of it as an error may carry.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_object_field_value_and_reason() {
        let spec = FieldPath::Root("spec");
        let containers = spec.child("containers");
        let container = containers.index(0);
        let requests = container.child("requests");
        let error = requests.key("cpu").invalid("1x", "no such suffix").on("Pod default/a-0");
        assert_eq!(error.to_string(), r#"Pod default/a-0: spec.containers[0].requests[cpu]: "1x": no such suffix"#);
    }

    #[test]
    fn numbers_and_lists_are_shown_as_written() {
        let path = FieldPath::Root("minCount");
        assert_eq!(path.invalid(&0, "too small").to_string(), "minCount: 0: too small");
        assert_eq!(path.invalid(&["a", "b"], "no").to_string(), r#"minCount: ["a","b"]: no"#);
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let path = FieldPath::Root("x");
        let error = path.invalid(&"é".repeat(100_000), "long");
        assert_eq!(error.value.chars().count(), SHOWN_CHARS + 1);
        let keyed = path.key(&"k".repeat(100_000)).invalid("", "long");
        assert!(keyed.field.len() < 200);
    }
}
