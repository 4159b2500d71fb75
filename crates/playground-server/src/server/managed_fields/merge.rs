//! Merges an applied configuration into an object.
//!
//! Nothing is removed: maps and lists are merged, and applied values take precedence. List elements keep the order of
//! the object, except that applied elements are in the applied order.

use std::collections::{BTreeMap, BTreeSet};

use muster_playground_schema::types::{Form, List, Map, Relation, Shape, TypeId, Types};
use serde_json::{Map as Object, Value};

use super::path_element::{self, NoPathElement};

/// The object with the applied configuration.
pub(crate) fn merge(shape: Shape<'_>, live: &Value, applied: &Value) -> Result<Value, NoPathElement> {
    walk(shape.types, shape.root, Some(live), Some(applied)).map(Option::unwrap_or_default)
}

/// `None` is an absent value, as opposed to null.
fn walk(
    types: &Types,
    id: TypeId,
    live: Option<&Value>,
    applied: Option<&Value>,
) -> Result<Option<Value>, NoPathElement> {
    let form = types.form(id, applied.or(live));
    // Null takes the form of the other value.
    let form = match (live, applied) {
        (Some(live), Some(Value::Null)) if !live.is_null() => types.form(id, Some(live)),
        _ => form,
    };
    let leaf = || Ok(applied.or(live).cloned());
    match form {
        Form::Scalar(_) => leaf(),
        Form::List(list) => {
            let (old, new) = (path_element::entries(live), path_element::entries(applied));
            if list.relation == Relation::Atomic || (old.is_empty() && new.is_empty()) {
                return leaf();
            }
            merge_entries(types, list, old, new)
        }
        Form::Map(map) => {
            let (old, new) = (live.and_then(Value::as_object), applied.and_then(Value::as_object));
            let is_empty = |fields: Option<&Object<String, Value>>| fields.is_none_or(Object::is_empty);
            if map.atomic || (is_empty(old) && is_empty(new)) {
                return leaf();
            }
            merge_fields(types, map, old, new)
        }
    }
}

fn merge_fields(
    types: &Types,
    map: &Map,
    live: Option<&Object<String, Value>>,
    applied: Option<&Object<String, Value>>,
) -> Result<Option<Value>, NoPathElement> {
    let names: BTreeSet<&String> = live.into_iter().chain(applied).flat_map(Object::keys).collect();
    let mut merged = Object::new();
    for name in names {
        let (old, new) = (live.and_then(|live| live.get(name)), applied.and_then(|applied| applied.get(name)));
        let value = match map.field(name) {
            Some(type_) => walk(types, type_, old, new)?,
            None => new.or(old).cloned(),
        };
        if let Some(value) = value {
            merged.insert(name.clone(), value);
        }
    }
    Ok((!merged.is_empty()).then_some(Value::Object(merged)))
}

/// List elements by path element, in order.
struct ElementsByPath<'a> {
    order: Vec<String>,
    /// `None` for duplicates: they are not merged.
    entries: BTreeMap<String, Option<&'a Value>>,
}

impl<'a> ElementsByPath<'a> {
    fn of(types: &Types, list: &List, entries: &'a [Value]) -> Result<Self, NoPathElement> {
        let mut path_elements = ElementsByPath { order: Vec::new(), entries: BTreeMap::new() };
        for entry in entries {
            let path_element = path_element::of_entry(types, list, entry)?;
            let known = path_elements.entries.contains_key(&path_element);
            path_elements.entries.insert(path_element.clone(), (!known).then_some(entry));
            path_elements.order.push(path_element);
        }
        Ok(path_elements)
    }

    fn has(&self, path_element: &str) -> bool {
        self.entries.contains_key(path_element)
    }

    fn get(&self, path_element: &str) -> Option<&'a Value> {
        self.entries.get(path_element).copied().flatten()
    }
}

fn merge_entries(types: &Types, list: &List, old: &[Value], new: &[Value]) -> Result<Option<Value>, NoPathElement> {
    let (live, applied) = (ElementsByPath::of(types, list, old)?, ElementsByPath::of(types, list, new)?);
    let mut shared = applied.order.iter().filter(|path_element| live.has(path_element));
    let mut next_shared = shared.next();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut merged = Vec::new();
    let (mut left, mut right) = (0, 0);
    let both = |path_element: &str| walk(types, list.item, live.get(path_element), applied.get(path_element));
    while left < live.order.len() || right < applied.order.len() {
        if let (Some(path_element), Some(applied_element)) = (live.order.get(left), applied.order.get(right)) {
            if path_element == applied_element {
                done.insert(path_element);
                merged.extend(both(path_element)?);
                (left, right) = (left + 1, right + 1);
                next_shared = shared.next();
                continue;
            }
            if applied.has(path_element) && next_shared.is_some_and(|next| next != path_element) {
                // Its position is determined by the applied order.
                left += 1;
                continue;
            }
        }
        if let Some(path_element) = live.order.get(left) {
            if !applied.has(path_element) {
                merged.extend(walk(types, list.item, Some(&old[left]), None)?);
                left += 1;
                continue;
            } else if done.contains(path_element.as_str()) {
                left += 1;
            }
        }
        if let Some(path_element) = applied.order.get(right) {
            done.insert(path_element);
            merged.extend(both(path_element)?);
            right += 1;
            if next_shared == Some(path_element) {
                next_shared = shared.next();
            }
        }
    }
    Ok((!merged.is_empty()).then_some(Value::Array(merged)))
}

#[cfg(test)]
mod tests {
    use muster_playground_schema::types::builtin_type;
    use serde_json::json;

    use super::*;

    fn env(live: &[&str], applied: &[&str]) -> Vec<String> {
        let pod = |names: &[&str]| {
            let env: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            json!({"spec": {"containers": [{"name": "c", "env": env}]}})
        };
        let merged = merge(builtin_type("v1/Pod").unwrap(), &pod(live), &pod(applied)).unwrap();
        let env = merged["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
        env.iter().map(|entry| entry["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn applied_elements_are_in_applied_order() {
        assert_eq!(env(&["a", "b", "c"], &["b"]), ["a", "b", "c"]);
        assert_eq!(env(&["a", "b", "c"], &["c", "a"]), ["b", "c", "a"]);
        assert_eq!(env(&["a", "b"], &["x", "b"]), ["a", "x", "b"]);
        assert_eq!(env(&["a", "b"], &["b", "x"]), ["a", "b", "x"]);
        assert_eq!(env(&[], &["x", "y"]), ["x", "y"]);
        assert_eq!(env(&["a"], &[]), ["a"]);
    }

    #[test]
    fn atomic_lists_are_replaced() {
        let pod = |args: Value| json!({"spec": {"containers": [{"name": "c", "args": args}]}});
        let merged = merge(builtin_type("v1/Pod").unwrap(), &pod(json!(["a", "b"])), &pod(json!(["c"]))).unwrap();
        assert_eq!(merged, pod(json!(["c"])));
    }
}
