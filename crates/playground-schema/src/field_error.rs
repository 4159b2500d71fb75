//! Field errors as kube-apiserver reports them.
//!
//! The printed form and the reason are those of apimachinery's `field.Error`; clients read both.
//! Must not depend on kinds or validation rules.

use std::fmt;

use serde_json::Value;

use super::go_text;

/// How kube-apiserver prints the path of the whole object.
pub const NO_FIELD: &str = "<nil>";

/// The type of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// The value is invalid.
    Invalid,
    /// The value has the wrong type.
    TypeInvalid,
    /// The field is required.
    Required,
    /// The value is not one of the supported ones.
    NotSupported,
    /// The value is a duplicate.
    Duplicate,
    /// A referenced object or value does not exist.
    NotFound,
    /// The field must not be set, or not in this state.
    Forbidden,
    /// The string is too long.
    TooLong,
    /// The list or map has too many elements.
    TooMany,
    /// The error is internal, not caused by the client.
    Internal,
}

/// One invalid field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The type of the error.
    pub kind: FieldErrorKind,
    /// The path of the field, such as `spec.items[0].name`; [`NO_FIELD`] is the whole object.
    pub field: String,
    /// The invalid value; `None` if it is not printed.
    pub value: Option<Value>,
    /// What is wrong; may be empty.
    pub detail: String,
}

impl FieldError {
    fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError { kind, field: field.into(), value, detail: detail.into() }
    }

    /// The value is invalid.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorKind::Invalid, field, Some(value.into()), detail)
    }

    /// The value is invalid, and too large to be printed.
    pub fn invalid_unshown(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorKind::Invalid, field, None, detail)
    }

    /// The value has the wrong type.
    pub fn type_invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorKind::TypeInvalid, field, Some(value.into()), detail)
    }

    /// The field is required.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorKind::Required, field, None, detail)
    }

    /// The value is none of the supported ones.
    pub fn not_supported<T: AsRef<str>>(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[T],
    ) -> FieldError {
        let names: Vec<String> = supported.iter().map(|name| go_text::quoted(name.as_ref())).collect();
        let detail = if names.is_empty() { String::new() } else { format!("supported values: {}", names.join(", ")) };
        FieldError::new(FieldErrorKind::NotSupported, field, Some(value.into()), detail)
    }

    /// The value is a duplicate.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> FieldError {
        FieldError::new(FieldErrorKind::Duplicate, field, Some(value.into()), "")
    }

    /// A referenced object or value does not exist.
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> FieldError {
        FieldError::new(FieldErrorKind::NotFound, field, Some(value.into()), "")
    }

    /// The field must not be set, or not in this state.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    /// The string has more than `max` bytes.
    pub fn too_long(field: impl Into<String>, max: i64) -> FieldError {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let detail =
            if max < 0 { "value is too long".to_owned() } else { format!("may not be more than {max} {unit}") };
        FieldError::new(FieldErrorKind::TooLong, field, None, detail)
    }

    /// There are `actual` elements, more than `max`.
    pub fn too_many(field: impl Into<String>, actual: usize, max: i64) -> FieldError {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = if max < 0 { "has too many items".to_owned() } else { format!("must have at most {max} {unit}") };
        FieldError::new(FieldErrorKind::TooMany, field, Some(actual.into()), detail)
    }

    /// The error is internal, not caused by the client.
    pub fn internal(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorKind::Internal, field, None, detail)
    }

    /// The reason in the causes of a Status.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            FieldErrorKind::Invalid => "FieldValueInvalid",
            FieldErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::NotSupported => "FieldValueNotSupported",
            FieldErrorKind::Duplicate => "FieldValueDuplicate",
            FieldErrorKind::NotFound => "FieldValueNotFound",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::TooLong => "FieldValueTooLong",
            FieldErrorKind::TooMany => "FieldValueTooMany",
            FieldErrorKind::Internal => "InternalError",
        }
    }

    /// The message without the field, as in the causes of a Status.
    pub fn body(&self) -> String {
        let title = match self.kind {
            FieldErrorKind::Invalid | FieldErrorKind::TypeInvalid => "Invalid value",
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::NotFound => "Not found",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::Internal => "Internal error",
        };
        let mut body = title.to_owned();
        if let Some(value) = &self.value {
            body.push_str(": ");
            body.push_str(&shown(value));
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_text::quoted(text),
        Value::Number(number) => go_text::number(number),
        other => go_text::json(other),
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_print_as_those_of_the_api_server() {
        for (error, reason, printed) in [
            (FieldError::required("spec.x", ""), "FieldValueRequired", "spec.x: Required value"),
            (FieldError::required("spec.x", "say it"), "FieldValueRequired", "spec.x: Required value: say it"),
            (FieldError::invalid("x", "y", "no"), "FieldValueInvalid", r#"x: Invalid value: "y": no"#),
            (
                FieldError::invalid("x", json!({"a": "<"}), "no"),
                "FieldValueInvalid",
                r#"x: Invalid value: {"a":"\u003c"}: no"#,
            ),
            (FieldError::invalid("x", 1.0, "no"), "FieldValueInvalid", "x: Invalid value: 1: no"),
            (FieldError::invalid_unshown("x", "no"), "FieldValueInvalid", "x: Invalid value: no"),
            (FieldError::type_invalid("x", "y", "no"), "FieldValueTypeInvalid", r#"x: Invalid value: "y": no"#),
            (
                FieldError::not_supported("x", "c", &["a", "b"]),
                "FieldValueNotSupported",
                r#"x: Unsupported value: "c": supported values: "a", "b""#,
            ),
            (
                FieldError::duplicate("x[1]", json!({"k": 1})),
                "FieldValueDuplicate",
                r#"x[1]: Duplicate value: {"k":1}"#,
            ),
            (FieldError::not_found("x", "a"), "FieldValueNotFound", r#"x: Not found: "a""#),
            (FieldError::forbidden("x", "may not change"), "FieldValueForbidden", "x: Forbidden: may not change"),
            (FieldError::too_long("x", 1), "FieldValueTooLong", "x: Too long: may not be more than 1 byte"),
            (FieldError::too_many("x", 9, 8), "FieldValueTooMany", "x: Too many: 9: must have at most 8 items"),
            (FieldError::internal("x", "oh"), "InternalError", "x: Internal error: oh"),
        ] {
            assert_eq!(error.to_string(), printed);
            assert_eq!(error.reason(), reason);
        }
    }
}
