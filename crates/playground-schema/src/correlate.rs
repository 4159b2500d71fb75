//! Correlates new values with old ones, as ratcheting and transition rules need.
//!
//! A field correlates with the field of the same name if the schema has it, an element of a list of type map with the
//! element that has the same keys, and nothing else does.
//! Must not depend on how changed values are treated.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::go_text;
use super::node::{ListType, Node, Type};

/// A new value and the old value that it correlates with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correlated<'a> {
    /// The schema of both.
    pub(super) node: &'a Node,
    /// The new value.
    pub(super) new: &'a Value,
    /// The old value.
    pub(super) old: &'a Value,
}

impl<'a> Correlated<'a> {
    /// The field of this name, if both sides have it.
    pub(super) fn field(&self, name: &str) -> Option<Correlated<'a>> {
        let (Value::Object(new), Value::Object(old)) = (self.new, self.old) else { return None };
        Some(Correlated { node: self.node.field(name)?, new: new.get(name)?, old: old.get(name)? })
    }

    /// The old elements that new elements of this list can correlate with.
    pub(super) fn entries(&self) -> Entries<'a> {
        match self.old {
            Value::Array(old) => Entries::new(self.node, old),
            _ => Entries::default(),
        }
    }

    /// Whether the value is unchanged.
    pub(super) fn is_unchanged(&self) -> bool {
        match (self.new, self.old) {
            (Value::Object(new), Value::Object(old)) => {
                // Fields that are not in the schema count as changed, as in kube-apiserver.
                new.len() == old.len()
                    && new.keys().all(|name| self.field(name).is_some_and(|field| field.is_unchanged()))
            }
            (Value::Array(new), Value::Array(old)) if matches!(self.node.list_type, ListType::Map(_)) => {
                let entries = self.entries();
                new.len() == old.len()
                    && new.iter().all(|item| {
                        let Some(node) = self.node.items.as_deref() else { return false };
                        let old = entries.find(item);
                        old.is_some_and(|old| Correlated { node, new: item, old }.is_unchanged())
                    })
            }
            (new, old) => new == old,
        }
    }
}

/// The elements of an old list of type map, by their keys. Empty for other lists.
#[derive(Debug, Default)]
pub(super) struct Entries<'a> {
    keys: &'a [String],
    by_key: HashMap<Vec<String>, &'a Value>,
}

impl<'a> Entries<'a> {
    /// The elements of a list.
    pub(super) fn new(node: &'a Node, old: &'a [Value]) -> Entries<'a> {
        let ListType::Map(keys) = &node.list_type else { return Entries::default() };
        if node.type_ != Some(Type::Array) {
            return Entries::default();
        }
        let mut by_key = HashMap::new();
        for item in old {
            if let Some(key) = key_of(item, keys) {
                by_key.entry(key).or_insert(item);
            }
        }
        Entries { keys, by_key }
    }

    /// The old element that correlates with a new one.
    pub(super) fn find(&self, new: &Value) -> Option<&'a Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&key_of(new, self.keys)?).copied()
    }
}

/// The keys as JSON, so that `1` and `"1"` differ; `None` if one is missing or not a scalar.
fn key_of(item: &Value, keys: &[String]) -> Option<Vec<String>> {
    let fields: &Map<String, Value> = item.as_object()?;
    keys.iter()
        .map(|key| match fields.get(key)? {
            Value::Null | Value::Array(_) | Value::Object(_) => None,
            scalar => Some(scalar.to_string()),
        })
        .collect()
}

/// The old value with the elements of sets and of lists of type map in the order of the new ones, if they are the same:
/// their order has no meaning and must not count as a change.
pub(super) fn aligned(node: &Node, new: &Value, old: &Value) -> Value {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            let field = |(name, old): (&String, &Value)| match (node.field(name), new.get(name)) {
                (Some(node), Some(new)) => (name.clone(), aligned(node, new, old)),
                _ => (name.clone(), old.clone()),
            };
            old.iter().map(field).collect()
        }
        (Value::Array(new), Value::Array(old)) if new.len() == old.len() => {
            aligned_lists(node, new, old).unwrap_or_else(|| old.clone()).into()
        }
        _ => old.clone(),
    }
}

fn aligned_lists(node: &Node, new: &[Value], old: &[Value]) -> Option<Vec<Value>> {
    let each = node.items.as_deref()?;
    match &node.list_type {
        ListType::Atomic => Some(new.iter().zip(old).map(|(new, old)| aligned(each, new, old)).collect()),
        ListType::Map(_) => {
            let entries = Entries::new(node, old);
            let is_unique = entries.by_key.len() == old.len();
            let found = new.iter().map(|new| Some(aligned(each, new, entries.find(new)?)));
            found.collect::<Option<Vec<Value>>>().filter(|_| is_unique)
        }
        ListType::Set => {
            let sorted = |items: &[Value]| {
                let mut strings: Vec<String> = items.iter().map(go_text::json).collect();
                strings.sort_unstable();
                strings
            };
            (sorted(new) == sorted(old)).then(|| new.to_vec())
        }
    }
}
