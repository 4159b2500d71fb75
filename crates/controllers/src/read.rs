//! Deserializes typed objects from JSON values.
//!
//! The value is serialized to text first, so that the deserialization code of the watches is reused: a second instance
//! for every type would cost compile time and binary size.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Deserializes an object; `None` if it does not have the expected type. The API server has checked the types, so such
/// an object is ignored.
pub(crate) fn read<T: DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_str(&object.to_string()).ok()
}
