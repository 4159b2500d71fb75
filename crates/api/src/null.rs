//! A JSON `null` means "left out", as everywhere in Kubernetes, and what is left out is not written.
//!
//! It must not know any type that is read.

use serde::{Deserialize, Deserializer};

/// For `#[serde(default, deserialize_with = "...")]`: reads `null` as the default.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// For `#[serde(skip_serializing_if = "...")]`: a value that reads the same if it is left out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
