//! Errors about invalid input, with the object, field and value.

use std::fmt::Display;

/// Why an observation was not applied, or the named part of it. Everything else was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {value:?}: {reason}")]
pub struct ValidationError {
    /// The object, as users know it.
    pub object: String,
    /// The field.
    pub field: String,
    /// The invalid value.
    pub value: String,
    /// Why it is invalid.
    pub reason: String,
}

impl ValidationError {
    pub(crate) fn new(
        object: impl Into<String>,
        field: impl Into<String>,
        value: impl Display,
        reason: impl Into<String>,
    ) -> Self {
        Self { object: object.into(), field: field.into(), value: format!("{value}"), reason: reason.into() }
    }
}
