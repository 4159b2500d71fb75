//! Validates `x-kubernetes-list-type`: sets have no duplicate values, lists of type map no duplicate keys.
//!
//! Must not depend on other validation of lists.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::field_error::FieldError;
use super::go_text;
use super::node::{Additional, ListType, Node};

/// The errors of all duplicate elements.
pub(super) fn check(object: &Value, root: &Node) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(object, root, "", &mut errors);
    errors
}

fn walk(value: &Value, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if let Some(Additional::Of(each)) = &node.additional {
                map.iter().for_each(|(key, value)| walk(value, each, &format!("{path}[{key}]"), errors));
            }
            for (name, value) in map {
                if let Some(property) = node.properties.get(name) {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    walk(value, property, &path, errors);
                }
            }
        }
        Value::Array(items) => {
            match &node.list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    for index in repeated(items.iter().map(go_text::json)) {
                        errors.push(FieldError::duplicate(format!("{path}[{index}]"), items[index].clone()));
                    }
                }
                ListType::Map(keys) => check_map(items, keys, path, errors),
            }
            if let Some(each) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    walk(item, each, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_map(items: &[Value], keys: &[String], path: &str, errors: &mut Vec<FieldError>) {
    if let Some(index) = items.iter().position(|item| !item.is_null() && !item.is_object()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(format!("{path}[{index}]"), items[index].clone(), detail));
        return;
    }
    let key_of = |item: &Value| -> Value {
        let fields = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(fields.collect::<Map<_, _>>())
    };
    for index in repeated(items.iter().map(|item| go_text::json(&key_of(item)))) {
        errors.push(FieldError::duplicate(format!("{path}[{index}]"), key_of(&items[index])));
    }
}

/// The second position of each duplicate value. The values are JSON.
fn repeated(values: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut second = Vec::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value).or_default();
        *times += 1;
        if *times == 2 {
            second.push(index);
        }
    }
    second
}
