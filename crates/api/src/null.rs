//! Serde helpers: a JSON `null` is the same as a missing field, as everywhere in Kubernetes, and defaults are not
//! serialized.
//!
//! Must not depend on any deserialized type.

use serde::{Deserialize, Deserializer};

/// For `#[serde(default, deserialize_with = "...")]`: reads `null` as the default.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// For `#[serde(skip_serializing_if = "...")]`: whether a value is the default.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
