//! Input that makes no sense, said so that its author can find it.

use std::fmt::Display;

/// Why an observation was not taken, in whole or in the named part. Nothing else was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {value:?}: {reason}")]
pub struct Refusal {
    /// The object, as users know it.
    pub object: String,
    /// The field.
    pub field: String,
    /// The value that makes no sense.
    pub value: String,
    /// Why not.
    pub reason: String,
}

impl Refusal {
    pub(crate) fn new(
        object: impl Into<String>,
        field: impl Into<String>,
        value: impl Display,
        reason: impl Into<String>,
    ) -> Self {
        Self { object: object.into(), field: field.into(), value: format!("{value}"), reason: reason.into() }
    }
}
