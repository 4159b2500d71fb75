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

/// Refuses times that must have six digits of a second and have not; Go reads no others there.
pub(crate) fn require_micro_times(value: &Value, pointers: &[&str]) -> Result<(), Unreadable> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    for pointer in pointers {
        let Some(text) = value.pointer(pointer).and_then(Value::as_str) else { continue };
        let rest = text.get("2006-01-02T15:04:05".len()..).unwrap_or_default();
        let digits = rest.strip_prefix('.').map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
        if digits != 6 {
            let why = format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {rest:?} as \".000000\"");
            return Err(Unreadable { field: pointer.trim_start_matches('/').replace('/', "."), why });
        }
    }
    Ok(())
}

/// Lists that are kept even if they are empty: two are printed, and one says that nobody is to own anything.
const KEPT_EMPTY: [&str; 3] = ["containers", "items", "managedFields"];
/// Maps that are left out if they are empty; a type without fields, such as `emptyDir`, says something.
const OMITTED_EMPTY: [&str; 9] =
    ["allocatable", "annotations", "capacity", "data", "labels", "limits", "matchLabels", "nodeSelector", "requests"];

/// Leaves out what the real server leaves out when there is nothing in it.
pub(crate) fn omit_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| match value {
                Value::Array(list) => !list.is_empty() || KEPT_EMPTY.contains(&key.as_str()),
                Value::Object(map) => !map.is_empty() || !OMITTED_EMPTY.contains(&key.as_str()),
                _ => true,
            });
            // The names of fields that somebody owns are no fields.
            fields.iter_mut().filter(|(key, _)| *key != "managedFields").for_each(|(_, value)| omit_empty(value));
        }
        Value::Array(entries) => entries.iter_mut().for_each(omit_empty),
        _ => {}
    }
}

/// The paths of fields in `written` that are not in `read`. A null was never anything.
pub(crate) fn dropped(written: &Value, read: &Value) -> Vec<String> {
    let mut paths = Paths::default();
    note_dropped(written, read, &mut String::new(), &mut paths);
    paths.into_vec()
}

/// Paths that are told to clients. Below a very long name every path is long: beyond a bound no more are noted.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    noted: Vec<String>,
    size: usize,
}

impl Paths {
    /// The most bytes of all paths; those of a body that has no such names are fewer.
    const SIZE_MAX: usize = 16 * 1024 * 1024;

    pub(crate) fn note(&mut self, path: &str) {
        if self.size <= Self::SIZE_MAX {
            self.size += path.len();
            self.noted.push(path.to_owned());
        }
    }

    pub(crate) fn into_vec(self) -> Vec<String> {
        self.noted
    }
}

fn note_dropped(written: &Value, read: &Value, path: &mut String, paths: &mut Paths) {
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
                    None => paths.note(path),
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
