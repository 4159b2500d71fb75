//! An invalid field of a scenario or a manifest.

/// The field and what is wrong with its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub(super) struct FieldError {
    /// The path of the field; a dot or nothing is the whole document.
    pub(super) field: String,
    /// What is wrong, with the value.
    pub(super) reason: String,
}

impl FieldError {
    pub(super) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }

    /// The error of a field inside another one.
    pub(super) fn below(self, parent: &str) -> Self {
        Self { field: format!("{parent}.{}", self.field), ..self }
    }
}
