//! A JSON `null` means "left out", as everywhere in Kubernetes.
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
