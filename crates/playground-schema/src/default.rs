//! Applies defaults, and drops nulls that are not allowed.
//!
//! Invariant: idempotent. Must not depend on where an object comes from.

use serde_json::Value;

use super::node::{Additional, Node};

/// Drops nulls that are neither allowed nor have a default, then applies all defaults.
pub(super) fn fill(value: &mut Value, node: &Node) {
    drop_nulls(value, Some(node));
    fill_defaults(value, node);
}

fn drop_nulls(value: &mut Value, node: Option<&Node>) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let field = node.and_then(|node| node.field(name));
            if value.is_null() && field.is_some_and(|field| !field.nullable && field.default.is_none()) {
                return false;
            }
            drop_nulls(value, field);
            true
        }),
        Value::Array(items) => {
            let entry = node.and_then(|node| node.items.as_deref());
            for item in items {
                drop_nulls(item, entry);
            }
        }
        _ => {}
    }
}

fn fill_defaults(value: &mut Value, node: &Node) {
    match value {
        Value::Object(map) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else { continue };
                if map.get(name).is_none_or(|value| value.is_null() && !property.nullable) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(property) = node.properties.get(name) {
                    fill_defaults(value, property);
                } else if let Some(Additional::Of(each)) = &node.additional {
                    fill_entry(value, each);
                }
            }
        }
        Value::Array(items) => {
            if let Some(each) = &node.items {
                for item in items {
                    fill_entry(item, each);
                }
            }
        }
        _ => {}
    }
}

/// An element of a map or list exists already: only a null can be replaced.
fn fill_entry(value: &mut Value, node: &Node) {
    if let Some(default) = &node.default
        && value.is_null()
        && !node.nullable
    {
        *value = default.clone();
    }
    fill_defaults(value, node);
}
