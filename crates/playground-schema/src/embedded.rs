//! Validates embedded resources: they must have `apiVersion`, `kind` and valid metadata.
//!
//! Must not depend on which kinds exist.

use serde_json::{Map, Value};

use super::field_error::FieldError;
use super::node::{Additional, Node};

const KIND_SHAPE: &str = "may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case \
    alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character \
    (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// The errors of all embedded objects. The outer object is not checked.
pub(super) fn check(object: &Value, root: &Node) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(object, root, "", &mut errors);
    errors
}

fn walk(value: &Value, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if node.embedded {
                check_object(map, path, errors);
            }
            for (name, value) in map {
                if let Some(property) = node.properties.get(name) {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    walk(value, property, &path, errors);
                } else if let Some(Additional::Of(each)) = &node.additional {
                    walk(value, each, &format!("{path}[{name}]"), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(each) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    walk(item, each, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_object(map: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in ["apiVersion", "kind"] {
        let detail = match map.get(name) {
            None => {
                errors.push(FieldError::required(at(name), ""));
                continue;
            }
            Some(Value::String(text)) if text.is_empty() => "must not be empty".to_owned(),
            Some(Value::String(text)) if name == "kind" && !is_kind(text) => KIND_SHAPE.to_owned(),
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                format!("unexpected GroupVersion string: {text}")
            }
            Some(Value::String(_)) => continue,
            Some(_) => "must be a string".to_owned(),
        };
        errors.push(FieldError::invalid(at(name), map[name].clone(), detail));
    }
    match map.get("metadata") {
        None | Some(Value::Null) => {}
        Some(Value::Object(metadata)) => check_name(metadata, &at("metadata.name"), errors),
        Some(other) => errors.push(FieldError::invalid(at("metadata"), other.clone(), "must be an object")),
    }
}

fn is_kind(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// The name must be usable as a URL path segment.
fn check_name(metadata: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(name) = metadata.get("name") else { return };
    let Some(text) = name.as_str() else {
        errors.push(FieldError::invalid(path, name.clone(), "must be a string"));
        return;
    };
    if matches!(text, "." | "..") {
        errors.push(FieldError::invalid(path, text, format!("may not be '{text}'")));
        return;
    }
    for part in ["/", "%"] {
        if text.contains(part) {
            errors.push(FieldError::invalid(path, text, format!("may not contain '{part}'")));
        }
    }
}
