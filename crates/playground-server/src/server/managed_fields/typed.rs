//! Operations on typed objects: the set of fields, validation against the type, and removal of fields.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_playground_schema::go_text::quoted;
use muster_playground_schema::types::{Form, Map, Relation, Scalar, Shape, TypeId, Types};
use serde_json::{Map as Object, Value};

use super::field_set::FieldSet;
use super::path_element;

/// All fields of an object: what a manager that applies it owns.
pub(crate) fn fields_of(shape: Shape<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect_fields(shape.types, shape.root, value, &mut set);
    set
}

/// Adds what is below a value. Returns whether the value itself is a field.
fn collect_fields(types: &Types, id: TypeId, value: &Value, set: &mut FieldSet) -> bool {
    match types.form(id, Some(value)) {
        Form::Scalar(_) => true,
        Form::List(list) if list.relation == Relation::Atomic => true,
        Form::Map(map) if map.atomic => true,
        Form::List(list) => {
            let entries = path_element::entries(Some(value));
            let path_elements: Vec<String> =
                entries.iter().filter_map(|entry| path_element::of_entry(types, list, entry).ok()).collect();
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for path_element in &path_elements {
                *counts.entry(path_element).or_default() += 1;
            }
            for (path_element, entry) in path_elements.iter().zip(entries) {
                let mut below = FieldSet::default();
                // Duplicates are owned as a whole.
                if counts[&**path_element] == 1 {
                    collect_fields(types, list.item, entry, &mut below);
                }
                set.put(path_element.clone(), true, below);
            }
            false
        }
        Form::Map(map) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let mut below = FieldSet::default();
                let is_field = map.field(name).is_none_or(|type_| collect_fields(types, type_, value, &mut below));
                let is_empty = value.is_null() || value.as_object().is_some_and(Object::is_empty);
                let is_entry = !map.fields.contains_key(name.as_str());
                set.put(path_element::of_field(name), is_field || is_empty || is_entry, below);
            }
            false
        }
    }
}

/// A set in which named fields are members if anything below them is.
pub(crate) fn with_named_fields(shape: Shape<'_>, set: &FieldSet) -> FieldSet {
    set.with_named_fields(Some(shape.root), &|path_element, type_: Option<TypeId>| {
        let atom = type_.map(|type_| shape.types.get(type_));
        match path_element.split_at_checked(2) {
            Some(("f:", name)) => {
                let map = atom.and_then(|atom| atom.map.as_ref());
                (map.is_some_and(|map| map.fields.contains_key(name)), map.and_then(|map| map.field(name)))
            }
            Some(("k:", _)) => (false, atom.and_then(|atom| atom.list.as_ref()).map(|list| list.item)),
            _ => (false, None),
        }
    })
}

/// An object without some fields. What becomes empty is null, as in kube-apiserver.
pub(crate) fn without(shape: Shape<'_>, value: &Value, gone: &FieldSet) -> Value {
    remove(shape.types, shape.root, value, gone)
}

fn remove(types: &Types, id: TypeId, value: &Value, gone: &FieldSet) -> Value {
    match types.form(id, Some(value)) {
        Form::Scalar(_) => value.clone(),
        Form::List(list) => {
            let Some(entries) = value.as_array().filter(|_| list.relation != Relation::Atomic) else {
                return Value::Null;
            };
            let mut left = Vec::new();
            for entry in entries {
                let path_element = path_element::of_entry(types, list, entry).unwrap_or_default();
                match gone.below(&path_element) {
                    _ if gone.has(&path_element) => {}
                    Some(below) => left.push(remove(types, list.item, entry, below)),
                    None => left.push(entry.clone()),
                }
            }
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        Form::Map(map) => {
            let Some(fields) = value.as_object().filter(|_| !map.atomic) else { return Value::Null };
            let left = remove_fields(types, map, fields, gone);
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
    }
}

fn remove_fields(types: &Types, map: &Map, fields: &Object<String, Value>, gone: &FieldSet) -> Object<String, Value> {
    let mut left = Object::new();
    for (name, value) in fields {
        let path_element = path_element::of_field(name);
        let value = match (gone.below(&path_element), map.field(name)) {
            _ if gone.has(&path_element) => continue,
            (Some(below), Some(type_)) => remove(types, type_, value, below),
            _ => value.clone(),
        };
        left.insert(name.clone(), value);
    }
    left
}

/// Whether lists may have duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duplicates {
    Allowed,
    Rejected,
}

/// The fields of an object that do not fit its type, with the messages of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct TypeErrors(Vec<TypeError>);

/// A field that does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TypeError {
    /// Empty for the object itself.
    path: String,
    why: String,
}

impl TypeError {
    fn new(path: &str, why: impl Into<String>) -> Self {
        Self { path: path.to_owned(), why: why.into() }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, why } = self;
        if path.is_empty() { f.write_str(why) } else { write!(f, "{path}: {why}") }
    }
}

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = &*self.0 {
            return only.fmt(f);
        }
        f.write_str("errors:")?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

/// Validates an object against its type.
pub(crate) fn check(shape: Shape<'_>, value: &Value, duplicates: Duplicates) -> Result<(), TypeErrors> {
    let mut errors = Vec::new();
    Check { types: shape.types, duplicates }.walk(shape.root, value, &mut String::new(), &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(TypeErrors(errors)) }
}

struct Check<'a> {
    types: &'a Types,
    duplicates: Duplicates,
}

impl Check<'_> {
    fn walk(&self, id: TypeId, value: &Value, path: &mut String, errors: &mut Vec<TypeError>) {
        let mut mistake = |why: String| errors.push(TypeError::new(path, why));
        match (self.types.form(id, Some(value)), value) {
            (_, Value::Null) => {}
            (Form::Scalar(scalar), value) => {
                if let Some(why) = wrong_scalar(scalar, value) {
                    mistake(why);
                }
            }
            (Form::List(list), Value::Array(entries)) => {
                let mut seen = BTreeSet::new();
                for (index, entry) in entries.iter().enumerate() {
                    let path_element = if list.relation == Relation::Atomic {
                        Ok(format!("i:{index}"))
                    } else {
                        path_element::of_entry(self.types, list, entry)
                    };
                    let path_element = match path_element {
                        Ok(path_element) => path_element,
                        Err(why) => {
                            errors.push(TypeError::new(path, format!("element {index}: {why}")));
                            return;
                        }
                    };
                    let shown = path_element::shown(&path_element);
                    if !seen.insert(path_element) && self.duplicates == Duplicates::Rejected {
                        errors.push(TypeError::new(path, format!("duplicate entries for key {shown}")));
                    }
                    self.below(list.item, entry, &shown, path, errors);
                }
            }
            (Form::Map(map), Value::Object(fields)) => {
                for (name, value) in fields {
                    let Some(type_) = map.field(name) else {
                        errors.push(TypeError::new(&format!("{path}.{name}"), "field not declared in schema"));
                        return;
                    };
                    self.below(type_, value, &format!(".{name}"), path, errors);
                }
            }
            (Form::List(_), other) => mistake(format!("expected list, got &{{{}}}", go_plain(other))),
            (Form::Map(_), other) => mistake(format!("expected map, got &{{{}}}", go_plain(other))),
        }
    }

    fn below(&self, id: TypeId, value: &Value, path_element: &str, path: &mut String, errors: &mut Vec<TypeError>) {
        let length = path.len();
        path.push_str(path_element);
        self.walk(id, value, path, errors);
        path.truncate(length);
    }
}

fn wrong_scalar(scalar: Scalar, value: &Value) -> Option<String> {
    let right = match scalar {
        Scalar::Text => value.is_string(),
        Scalar::Number => value.is_number(),
        Scalar::Boolean => value.is_boolean(),
        Scalar::Any => !value.is_array() && !value.is_object(),
    };
    (!right).then(|| match scalar {
        Scalar::Text => format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)),
        Scalar::Number => format!("expected numeric (int or float), got {}", go_type(value)),
        Scalar::Boolean => format!("expected boolean, got &{{{}}}", go_plain(value)),
        Scalar::Any => format!("expected any scalar, got &{{{}}}", go_plain(value)),
    })
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as printed by Go's `%v`.
fn go_plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(entries) => format!("[{}]", entries.iter().map(go_plain).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}:{}", go_plain(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

/// A value as printed by Go's `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quoted(text),
        Value::Array(entries) => {
            format!("[]interface {{}}{{{}}}", entries.iter().map(go_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{}:{}", quoted(name), go_syntax(value)));
            format!("map[string]interface {{}}{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
