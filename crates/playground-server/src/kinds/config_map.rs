//! ConfigMaps: valid keys, a bounded size, and immutability.

use muster_playground_schema::FieldError;
use serde_json::{Map, Value};

/// The most bytes of all values together.
const SIZE_MAX: usize = 1024 * 1024;
const KEY_LENGTH_MAX: usize = 253;
const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

fn entries<'a>(map: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    map[field].as_object().into_iter().flat_map(Map::iter)
}

pub(super) fn validate(map: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in entries(map, "data") {
        errors.extend(key_errors("data", key));
        if !map["binaryData"][key].is_null() {
            let path = format!("data[{key}]");
            errors.push(FieldError::invalid(path, key.as_str(), "duplicate of key present in binaryData"));
        }
        size += value.as_str().unwrap_or_default().len();
    }
    for (key, value) in entries(map, "binaryData") {
        errors.extend(key_errors("binaryData", key));
        // Base64 encodes three bytes as four characters.
        size += value.as_str().unwrap_or_default().trim_end_matches('=').len() * 3 / 4;
    }
    if size > SIZE_MAX {
        // Go prints the path of the whole object like this.
        errors.push(FieldError::too_long("[]", SIZE_MAX as i64));
    }
    errors
}

fn key_errors(field: &str, key: &str) -> Vec<FieldError> {
    let mut why = Vec::new();
    if key.len() > KEY_LENGTH_MAX {
        why.push(format!("must be no more than {KEY_LENGTH_MAX} characters"));
    }
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        why.push(KEY.to_owned());
    }
    match key {
        "." => why.push("must not be '.'".to_owned()),
        ".." => why.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => why.push("must not start with '..'".to_owned()),
        _ => {}
    }
    why.into_iter().map(|why| FieldError::invalid(format!("{field}[{key}]"), key, why)).collect()
}

pub(super) fn validate_update(map: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old["immutable"] == true {
        let lifted = map["immutable"] != true;
        let changed = |field: &str| map[field] != old[field];
        for (field, wrong) in [("immutable", lifted), ("data", changed("data")), ("binaryData", changed("binaryData"))]
        {
            if wrong {
                errors.push(FieldError::forbidden(field, "field is immutable when `immutable` is set"));
            }
        }
    }
    errors.extend(validate(map));
    errors
}
