//! Field errors in the format of the Kubernetes API server.
//!
//! A server reports all errors at once, each with a machine-readable kind.
//! [`InvalidField`](crate::invalid::InvalidField) is our own format for events and conditions.
//!
//! Invariant: the value in an error is bounded. Must not depend on any kind of object or any rule.

use std::fmt;

use serde::Serialize;

use crate::invalid::{FieldPath, truncated};

/// The kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// A required value is missing.
    Required,
    /// A value is malformed or out of bounds.
    Invalid,
    /// A value is not allowed here.
    Forbidden,
    /// A value that must be unique is duplicated.
    Duplicate,
    /// A list is too long.
    TooMany,
    /// A text is too long.
    TooLong,
    /// A value is not one of the supported ones.
    NotSupported,
}

impl ErrorKind {
    /// The `reason` of a cause in a `Status`.
    pub fn cause(self) -> &'static str {
        match self {
            ErrorKind::Required => "FieldValueRequired",
            ErrorKind::Invalid => "FieldValueInvalid",
            ErrorKind::Forbidden => "FieldValueForbidden",
            ErrorKind::Duplicate => "FieldValueDuplicate",
            ErrorKind::TooMany => "FieldValueTooMany",
            ErrorKind::TooLong => "FieldValueTooLong",
            ErrorKind::NotSupported => "FieldValueNotSupported",
        }
    }

    fn text(self) -> &'static str {
        match self {
            ErrorKind::Required => "Required value",
            ErrorKind::Invalid => "Invalid value",
            ErrorKind::Forbidden => "Forbidden",
            ErrorKind::Duplicate => "Duplicate value",
            ErrorKind::TooMany => "Too many",
            ErrorKind::TooLong => "Too long",
            ErrorKind::NotSupported => "Unsupported value",
        }
    }
}

/// An error about a field. It prints as `spec.x: Invalid value: "y": reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The kind of error.
    pub kind: ErrorKind,
    /// The path of the field.
    pub field: String,
    /// The value as JSON, truncated if it is long; `None` if it is not reported.
    pub value: Option<String>,
    /// Details; may be empty.
    pub detail: String,
}

impl FieldError {
    /// A required value is missing.
    pub fn required(path: &FieldPath<'_>, detail: impl fmt::Display) -> FieldError {
        FieldError::new(ErrorKind::Required, path, None, detail)
    }

    /// A value is malformed or out of bounds.
    pub fn invalid<V: Serialize + ?Sized>(path: &FieldPath<'_>, value: &V, detail: impl fmt::Display) -> FieldError {
        FieldError::new(ErrorKind::Invalid, path, Some(as_json(value)), detail)
    }

    /// A value is not allowed here.
    pub fn forbidden(path: &FieldPath<'_>, detail: impl fmt::Display) -> FieldError {
        FieldError::new(ErrorKind::Forbidden, path, None, detail)
    }

    /// A value that must be unique is duplicated.
    pub fn duplicate<V: Serialize + ?Sized>(path: &FieldPath<'_>, value: &V) -> FieldError {
        FieldError::new(ErrorKind::Duplicate, path, Some(as_json(value)), "")
    }

    /// A list has more than `most` entries.
    pub fn too_many(path: &FieldPath<'_>, count: usize, most: usize) -> FieldError {
        let items = if most == 1 { "item" } else { "items" };
        let detail = format_args!("must have at most {most} {items}");
        FieldError::new(ErrorKind::TooMany, path, Some(count.to_string()), detail)
    }

    /// A text has more than `most` bytes.
    pub fn too_long(path: &FieldPath<'_>, most: usize) -> FieldError {
        FieldError::new(ErrorKind::TooLong, path, None, format_args!("may not be more than {most} bytes"))
    }

    /// A value is not one of the supported ones.
    pub fn not_supported(path: &FieldPath<'_>, value: &str, known: &[&str]) -> FieldError {
        let known: Vec<_> = known.iter().map(|one| format!("{one:?}")).collect();
        let detail = format_args!("supported values: {}", known.join(", "));
        FieldError::new(ErrorKind::NotSupported, path, Some(as_json(value)), detail)
    }

    fn new(kind: ErrorKind, path: &FieldPath<'_>, value: Option<String>, detail: impl fmt::Display) -> FieldError {
        FieldError { kind, field: path.to_string(), value, detail: detail.to_string() }
    }

    /// The error without the field: the `message` of a cause in a `Status`.
    pub fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        for part in self.value.iter().chain(Some(&self.detail).filter(|detail| !detail.is_empty())) {
            text.push_str(": ");
            text.push_str(part);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

fn as_json<V: Serialize + ?Sized>(value: &V) -> String {
    truncated(&serde_json::to_string(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_print_as_the_api_server_prints_them() {
        let path = FieldPath::Root("spec");
        let path = path.child("x");
        for (error, expected) in [
            (FieldError::required(&path, ""), "spec.x: Required value"),
            (FieldError::required(&path, "why"), "spec.x: Required value: why"),
            (FieldError::invalid(&path, "y", "bad"), "spec.x: Invalid value: \"y\": bad"),
            (FieldError::invalid(&path, &-1, "bad"), "spec.x: Invalid value: -1: bad"),
            (FieldError::invalid(&path, &(), "bad"), "spec.x: Invalid value: null: bad"),
            (FieldError::forbidden(&path, ""), "spec.x: Forbidden"),
            (FieldError::duplicate(&path, "y"), "spec.x: Duplicate value: \"y\""),
            (FieldError::too_many(&path, 9, 8), "spec.x: Too many: 9: must have at most 8 items"),
            (FieldError::too_many(&path, 2, 1), "spec.x: Too many: 2: must have at most 1 item"),
            (FieldError::too_long(&path, 5), "spec.x: Too long: may not be more than 5 bytes"),
            (
                FieldError::not_supported(&path, "y", &["A", "B"]),
                "spec.x: Unsupported value: \"y\": supported values: \"A\", \"B\"",
            ),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }
}
