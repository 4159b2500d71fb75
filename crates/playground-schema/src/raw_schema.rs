//! Reads the keywords of a schema.
//!
//! An unknown keyword is an error, never ignored. Must not depend on what keywords mean.

use serde_json::{Map, Value};

use super::field_error::FieldError;

/// Keywords of JSON schema that Kubernetes rejects.
const REFUSED: [&str; 7] =
    ["id", "$ref", "$schema", "additionalItems", "patternProperties", "definitions", "dependencies"];

/// Keywords without effect on validation.
const DOCUMENTATION_KEYWORDS: [&str; 4] = ["description", "title", "example", "externalDocs"];

/// All other keywords.
const KNOWN: [&str; 33] = [
    "type",
    "default",
    "nullable",
    "format",
    "enum",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "multipleOf",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];

/// A schema, or a part of one, as JSON.
pub(super) struct RawSchema<'a> {
    map: &'a Map<String, Value>,
    /// Its path.
    pub(super) path: String,
}

impl<'a> RawSchema<'a> {
    /// A schema with known keywords only.
    pub(super) fn schema(value: &'a Value, path: String) -> Result<RawSchema<'a>, FieldError> {
        let written = RawSchema::object(value, path)?;
        for (keyword, value) in written.map.iter().filter(|(_, value)| !value.is_null()) {
            let at = written.at(keyword);
            if REFUSED.contains(&keyword.as_str()) {
                return Err(FieldError::forbidden(at, format!("{keyword} is not supported")));
            }
            if keyword == "uniqueItems" && value != &Value::Bool(false) {
                let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
                return Err(FieldError::forbidden(at, detail));
            }
            if !KNOWN.contains(&keyword.as_str()) && !DOCUMENTATION_KEYWORDS.contains(&keyword.as_str()) {
                return Err(FieldError::forbidden(at, "the keyword is not known"));
            }
        }
        Ok(written)
    }

    /// Any object.
    pub(super) fn object(value: &'a Value, path: String) -> Result<RawSchema<'a>, FieldError> {
        match value {
            Value::Object(map) => Ok(RawSchema { map, path }),
            other => Err(FieldError::invalid(path, other.clone(), "must be an object")),
        }
    }

    /// The path of a keyword.
    pub(super) fn at(&self, keyword: &str) -> String {
        format!("{}.{keyword}", self.path)
    }

    /// The value of a keyword. Null counts as absent.
    pub(super) fn get(&self, keyword: &str) -> Option<&'a Value> {
        self.map.get(keyword).filter(|value| !value.is_null())
    }

    /// The names of all keywords.
    pub(super) fn keywords(&self) -> impl Iterator<Item = &'a str> {
        self.map.iter().filter(|(_, value)| !value.is_null()).map(|(keyword, _)| keyword.as_str())
    }

    fn typed<T>(
        &self,
        keyword: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
        what: &str,
    ) -> Result<Option<T>, FieldError> {
        let Some(value) = self.get(keyword) else { return Ok(None) };
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => Err(FieldError::invalid(self.at(keyword), value.clone(), format!("must be {what}"))),
        }
    }

    /// A string.
    pub(super) fn text(&self, keyword: &str) -> Result<Option<&'a str>, FieldError> {
        self.typed(keyword, Value::as_str, "a string")
    }

    /// A boolean; false if absent.
    pub(super) fn flag(&self, keyword: &str) -> Result<bool, FieldError> {
        Ok(self.typed(keyword, Value::as_bool, "a boolean")?.unwrap_or(false))
    }

    /// An integer.
    pub(super) fn integer(&self, keyword: &str) -> Result<Option<i64>, FieldError> {
        self.typed(keyword, Value::as_i64, "an integer")
    }

    /// A number.
    pub(super) fn number(&self, keyword: &str) -> Result<Option<f64>, FieldError> {
        self.typed(keyword, Value::as_f64, "a number")
    }

    /// A list; empty if absent.
    pub(super) fn list(&self, keyword: &str) -> Result<&'a [Value], FieldError> {
        Ok(self.typed(keyword, Value::as_array, "a list")?.map_or(&[], Vec::as_slice))
    }

    /// A list of strings.
    pub(super) fn strings(&self, keyword: &str) -> Result<Vec<String>, FieldError> {
        let read = |one: &Value| match one {
            Value::String(text) => Ok(text.clone()),
            other => Err(FieldError::invalid(self.at(keyword), other.clone(), "must be a list of strings")),
        };
        self.list(keyword)?.iter().map(read).collect()
    }

    /// The entries of an object.
    pub(super) fn map(&self, keyword: &str) -> Result<Vec<(&'a String, &'a Value)>, FieldError> {
        Ok(self.typed(keyword, Value::as_object, "an object")?.map(|map| map.iter().collect()).unwrap_or_default())
    }
}
