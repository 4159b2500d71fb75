//! Reads a JSON value as a typed kind and prints it again: wrong types are refused, unknown fields fall out.
//!
//! The typed form is k8s-openapi's. It lives only for the moment of reading.

use std::fmt::Write as _;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why a value cannot be read as its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub(crate) struct Unreadable {
    pub(crate) field: String,
    pub(crate) why: String,
}

/// Reads and prints.
pub(crate) fn retype<T: DeserializeOwned + Serialize>(value: Value) -> Result<Value, Unreadable> {
    let typed: T = serde_path_to_error::deserialize(value)
        .map_err(|error| Unreadable { field: error.path().to_string(), why: error.inner().to_string() })?;
    serde_json::to_value(typed).map_err(|error| Unreadable { field: ".".to_owned(), why: error.to_string() })
}

/// The paths of fields in `written` that are not in `read`. A null was never anything.
pub(crate) fn dropped(written: &Value, read: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    note_dropped(written, read, &mut String::new(), &mut paths);
    paths
}

fn note_dropped(written: &Value, read: &Value, path: &mut String, paths: &mut Vec<String>) {
    let length = path.len();
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (key, value) in written.iter().filter(|(_, value)| !value.is_null()) {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                match read.get(key) {
                    Some(kept) => note_dropped(value, kept, path, paths),
                    None => paths.push(path.clone()),
                }
                path.truncate(length);
            }
        }
        (Value::Array(written), Value::Array(read)) => {
            for (index, (value, kept)) in written.iter().zip(read).enumerate() {
                // Writing into a string cannot fail.
                let _ = write!(path, "[{index}]");
                note_dropped(value, kept, path, paths);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
