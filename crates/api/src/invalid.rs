//! Validation errors with enough context to fix the object.
//!
//! Every error names the object, the path of the field, the value as written and the reason. Nested checks know only
//! the path ([`InvalidField`]); the caller that knows the object adds it with [`InvalidField::on`].
//!
//! Invariant: the value in an error is bounded, since errors end up in events and conditions and a hostile value may be
//! megabytes long. Must not depend on any kind of object or any rule.

use std::fmt;

use serde::Serialize;

/// The maximum number of characters of a value in an error.
const VALUE_CHARS_MAX: usize = 120;

/// A path to a field, such as `spec.containers[0].resources.requests[cpu]`.
///
/// The steps borrow each other, so that a path allocates nothing until an error prints it.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub enum FieldPath<'a> {
    /// The root field.
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
            value: truncated(&serde_json::to_string(value).unwrap_or_default()),
            reason: reason.to_string(),
        }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldPath::Root(name) => f.write_str(name),
            FieldPath::Child(parent, name) => write!(f, "{parent}.{}", truncated(name)),
            FieldPath::Index(parent, index) => write!(f, "{parent}[{index}]"),
            FieldPath::Key(parent, key) => write!(f, "{parent}[{}]", truncated(key)),
        }
    }
}

/// An invalid field; the object is not named yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value}: {reason}")]
pub struct InvalidField {
    /// The path of the field.
    pub field: String,
    /// The value as JSON, truncated if it is long.
    pub value: String,
    /// The reason.
    pub reason: String,
}

impl InvalidField {
    /// Names the object, e.g. `Pod default/a-0`.
    pub fn on(self, object: impl fmt::Display) -> Invalid {
        Invalid { object: object.to_string(), field: self.field, value: self.value, reason: self.reason }
    }
}

/// An invalid field of a named object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {value}: {reason}")]
pub struct Invalid {
    /// Kind, namespace and name.
    pub object: String,
    /// The path of the field.
    pub field: String,
    /// The value as JSON, truncated if it is long.
    pub value: String,
    /// The reason.
    pub reason: String,
}

/// The text, truncated to the length that an error may have.
pub(crate) fn truncated(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
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
    fn numbers_and_lists_are_printed_as_written() {
        let path = FieldPath::Root("minCount");
        assert_eq!(path.invalid(&0, "too small").to_string(), "minCount: 0: too small");
        assert_eq!(path.invalid(&["a", "b"], "no").to_string(), r#"minCount: ["a","b"]: no"#);
    }

    #[test]
    fn long_value_is_truncated_between_characters() {
        let path = FieldPath::Root("x");
        let error = path.invalid(&"é".repeat(100_000), "long");
        assert_eq!(error.value.chars().count(), VALUE_CHARS_MAX + 1);
        let keyed = path.key(&"k".repeat(100_000)).invalid("", "long");
        assert!(keyed.field.len() < 200);
    }
}
