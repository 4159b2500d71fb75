//! Why the groups of an object cannot be used.

use muster_api::field_error::FieldError;
use muster_api::invalid::{FieldPath, InvalidField};

/// Why the groups of an object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupError {
    /// Whether the object is invalid or unsupported.
    pub(crate) kind: GroupErrorKind,
    /// The message, with field and value.
    pub(crate) message: String,
}

/// The kind of a group error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupErrorKind {
    /// The object is invalid.
    Invalid,
    /// The object is valid and not supported yet.
    Unsupported,
}

impl GroupError {
    /// The object is invalid.
    pub(crate) fn invalid(message: String) -> Self {
        Self { kind: GroupErrorKind::Invalid, message }
    }

    /// A field is valid and not supported yet.
    pub(crate) fn unsupported(field: &str, value: &impl serde::Serialize) -> Self {
        Self::unsupported_because(&FieldPath::Root(field).invalid(value, "is not supported yet"))
    }

    /// A field is valid and not supported yet, for this reason.
    pub(crate) fn unsupported_because(error: &InvalidField) -> Self {
        Self { kind: GroupErrorKind::Unsupported, message: error.to_string() }
    }
}

impl From<InvalidField> for GroupError {
    fn from(error: InvalidField) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<FieldError> for GroupError {
    fn from(error: FieldError) -> Self {
        Self::invalid(error.to_string())
    }
}
