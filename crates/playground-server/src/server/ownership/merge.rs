//! Puts what a manager applies into the object that is there.
//!
//! Nothing goes by it: fields of maps and entries of lists come together, and where both have a value, the applied one
//! counts. Entries keep the order of the object, except that those which are applied stand in the applied order.

use std::collections::{BTreeMap, BTreeSet};

use muster_playground_schema::types::{Form, List, Map, Relation, Shape, TypeId, Types};
use serde_json::{Map as Object, Value};

use super::step;

/// The object with the applied configuration in it.
pub(crate) fn merge(shape: Shape<'_>, live: &Value, applied: &Value) -> Result<Value, String> {
    walk(shape.types, shape.root, Some(live), Some(applied)).map(Option::unwrap_or_default)
}

/// `None` is nothing at all, which is less than null.
fn walk(types: &Types, id: TypeId, live: Option<&Value>, applied: Option<&Value>) -> Result<Option<Value>, String> {
    let form = types.form(id, applied.or(live));
    // Null is whatever the other is.
    let form = match (live, applied) {
        (Some(live), Some(Value::Null)) if !live.is_null() => types.form(id, Some(live)),
        _ => form,
    };
    let leaf = || Ok(applied.or(live).cloned());
    match form {
        Form::Scalar(_) => leaf(),
        Form::List(list) => {
            let (old, new) = (step::entries(live), step::entries(applied));
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
) -> Result<Option<Value>, String> {
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

/// Entries with their steps, in order.
struct Steps<'a> {
    order: Vec<String>,
    /// `None` for steps that are there twice: they are not merged.
    entries: BTreeMap<String, Option<&'a Value>>,
}

impl<'a> Steps<'a> {
    fn of(types: &Types, list: &List, entries: &'a [Value]) -> Result<Self, String> {
        let mut steps = Steps { order: Vec::new(), entries: BTreeMap::new() };
        for entry in entries {
            let step = step::of_entry(types, list, entry)?;
            let known = steps.entries.contains_key(&step);
            steps.entries.insert(step.clone(), (!known).then_some(entry));
            steps.order.push(step);
        }
        Ok(steps)
    }

    fn has(&self, step: &str) -> bool {
        self.entries.contains_key(step)
    }

    fn get(&self, step: &str) -> Option<&'a Value> {
        self.entries.get(step).copied().flatten()
    }
}

fn merge_entries(types: &Types, list: &List, old: &[Value], new: &[Value]) -> Result<Option<Value>, String> {
    let (live, applied) = (Steps::of(types, list, old)?, Steps::of(types, list, new)?);
    let mut shared = applied.order.iter().filter(|step| live.has(step));
    let mut next_shared = shared.next();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut merged = Vec::new();
    let (mut left, mut right) = (0, 0);
    let both = |step: &str| walk(types, list.item, live.get(step), applied.get(step));
    while left < live.order.len() || right < applied.order.len() {
        if let (Some(step), Some(applied_step)) = (live.order.get(left), applied.order.get(right)) {
            if step == applied_step {
                done.insert(step);
                merged.extend(both(step)?);
                (left, right) = (left + 1, right + 1);
                next_shared = shared.next();
                continue;
            }
            if applied.has(step) && next_shared.is_some_and(|next| next != step) {
                // Its turn comes where the applied order has it.
                left += 1;
                continue;
            }
        }
        if let Some(step) = live.order.get(left) {
            if !applied.has(step) {
                merged.extend(walk(types, list.item, Some(&old[left]), None)?);
                left += 1;
                continue;
            } else if done.contains(step.as_str()) {
                left += 1;
            }
        }
        if let Some(step) = applied.order.get(right) {
            done.insert(step);
            merged.extend(both(step)?);
            right += 1;
            if next_shared == Some(step) {
                next_shared = shared.next();
            }
        }
    }
    Ok((!merged.is_empty()).then_some(Value::Array(merged)))
}

#[cfg(test)]
mod tests {
    use muster_playground_schema::types::of_builtin;
    use serde_json::json;

    use super::*;

    fn env(live: &[&str], applied: &[&str]) -> Vec<String> {
        let pod = |names: &[&str]| {
            let env: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            json!({"spec": {"containers": [{"name": "c", "env": env}]}})
        };
        let merged = merge(of_builtin("v1/Pod").unwrap(), &pod(live), &pod(applied)).unwrap();
        let env = merged["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
        env.iter().map(|entry| entry["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn the_applied_order_counts_for_applied_entries() {
        assert_eq!(env(&["a", "b", "c"], &["b"]), ["a", "b", "c"]);
        assert_eq!(env(&["a", "b", "c"], &["c", "a"]), ["b", "c", "a"]);
        assert_eq!(env(&["a", "b"], &["x", "b"]), ["a", "x", "b"]);
        assert_eq!(env(&["a", "b"], &["b", "x"]), ["a", "b", "x"]);
        assert_eq!(env(&[], &["x", "y"]), ["x", "y"]);
        assert_eq!(env(&["a"], &[]), ["a"]);
    }

    #[test]
    fn lists_that_are_one_thing_are_replaced() {
        let pod = |args: Value| json!({"spec": {"containers": [{"name": "c", "args": args}]}});
        let merged = merge(of_builtin("v1/Pod").unwrap(), &pod(json!(["a", "b"])), &pod(json!(["c"]))).unwrap();
        assert_eq!(merged, pod(json!(["c"])));
    }
}
