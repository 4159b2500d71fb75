//! Reads typed objects out of JSON values.
//!
//! The text of a value is read, by the code that reads what watches show: a second reader of every type takes long to
//! compile and makes the program larger.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads an object. The API server has checked its types; what cannot be read all the same is none of our business.
pub(crate) fn read<T: DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_str(&object.to_string()).ok()
}
