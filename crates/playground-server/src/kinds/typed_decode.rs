//! Decodes a JSON value as a typed kind and encodes it again: rejects wrong types, drops unknown fields.
//!
//! The types are those of k8s-openapi, used only while decoding.

use std::fmt::Write as _;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why a value cannot be decoded as its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub(crate) struct DecodeError {
    pub(crate) field: String,
    pub(crate) why: String,
}

/// Decodes and encodes a value.
pub(crate) fn decode_as<T: DeserializeOwned + Serialize>(value: Value) -> Result<Value, DecodeError> {
    let typed: T = serde_path_to_error::deserialize(value)
        .map_err(|error| DecodeError { field: error.path().to_string(), why: error.inner().to_string() })?;
    serde_json::to_value(typed).map_err(|error| DecodeError { field: ".".to_owned(), why: error.to_string() })
}

/// Rejects `MicroTime` values without exactly six fractional digits, which Go does not accept.
pub(crate) fn require_micro_times(value: &Value, pointers: &[&str]) -> Result<(), DecodeError> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    for pointer in pointers {
        let Some(text) = value.pointer(pointer).and_then(Value::as_str) else { continue };
        let rest = text.get("2006-01-02T15:04:05".len()..).unwrap_or_default();
        let digits = rest.strip_prefix('.').map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
        if digits != 6 {
            let why = format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {rest:?} as \".000000\"");
            return Err(DecodeError { field: pointer.trim_start_matches('/').replace('/', "."), why });
        }
    }
    Ok(())
}

/// Lists that are kept even if empty: two are always encoded, and `managedFields` is a request to reset it.
const KEPT_EMPTY: [&str; 3] = ["containers", "items", "managedFields"];
/// Maps that are omitted if empty; an empty object such as `emptyDir` has a meaning.
const OMITTED_EMPTY: [&str; 9] =
    ["allocatable", "annotations", "capacity", "data", "labels", "limits", "matchLabels", "nodeSelector", "requests"];

/// Omits empty values as kube-apiserver does.
pub(crate) fn omit_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| match value {
                Value::Array(list) => !list.is_empty() || KEPT_EMPTY.contains(&key.as_str()),
                Value::Object(map) => !map.is_empty() || !OMITTED_EMPTY.contains(&key.as_str()),
                _ => true,
            });
            // The keys in `managedFields` are not fields of the object.
            fields.iter_mut().filter(|(key, _)| *key != "managedFields").for_each(|(_, value)| omit_empty(value));
        }
        Value::Array(entries) => entries.iter_mut().for_each(omit_empty),
        _ => {}
    }
}

/// The paths of fields in `written` that are not in `decoded`. Null counts as absent.
pub(crate) fn dropped(written: &Value, decoded: &Value) -> Vec<String> {
    let mut paths = BoundedPaths::default();
    collect_dropped(written, decoded, &mut String::new(), &mut paths);
    paths.into_vec()
}

/// Paths that are reported to clients. Below a very long name every path is long, so their total size is bounded.
#[derive(Debug, Default)]
pub(crate) struct BoundedPaths {
    noted: Vec<String>,
    size: usize,
}

impl BoundedPaths {
    /// The most bytes of all paths; a body without such names stays below it.
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

fn collect_dropped(written: &Value, decoded: &Value, path: &mut String, paths: &mut BoundedPaths) {
    let length = path.len();
    match (written, decoded) {
        (Value::Object(written), Value::Object(decoded)) => {
            for (key, value) in written.iter().filter(|(_, value)| !value.is_null()) {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                match decoded.get(key) {
                    Some(kept) => collect_dropped(value, kept, path, paths),
                    None => paths.note(path),
                }
                path.truncate(length);
            }
        }
        (Value::Array(written), Value::Array(decoded)) => {
            for (index, (value, kept)) in written.iter().zip(decoded).enumerate() {
                // Writing into a string cannot fail.
                let _ = write!(path, "[{index}]");
                collect_dropped(value, kept, path, paths);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_names_of_parents_are_not_repeated() {
        let fields: serde_json::Map<_, _> = (0..10_000).map(|number| (format!("f{number}"), json!(1))).collect();
        let (mut written, mut decoded) = (json!({}), json!({}));
        written["y".repeat(1_000_000)] = Value::Object(fields);
        decoded["y".repeat(1_000_000)] = json!({});
        let paths = dropped(&written, &decoded);
        assert!((1..100).contains(&paths.len()), "{} paths of a million bytes", paths.len());
    }
}
