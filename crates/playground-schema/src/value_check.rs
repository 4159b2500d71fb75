//! Validates a value against the keywords of a schema: types, required fields, limits, patterns and junctors.
//!
//! Messages, and which of several alternatives is reported, are those of kube-openapi.
//! On an update, errors in unchanged parts are ignored (ratcheting).
//! Must not depend on CEL rules, nor on list types.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::correlate::Correlated;
use super::field_error::{FieldError, NO_FIELD};
use super::go_text;
use super::node::{Additional, Checks, Node, Type};
use super::number_check::{Num, check_number, is_json_integer};

/// The errors of a value.
pub(super) fn check(node: &Node, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let old = old.map(|old| Correlated { node, new: value, old });
    let outcome = check_part(node, value, "", old, true);
    // Each message is reported once.
    let mut reported = HashSet::new();
    outcome.failures.into_iter().filter(|one| reported.insert(one.message.clone())).map(|one| one.error).collect()
}

/// One error.
pub(super) struct Failure {
    message: String,
    error: FieldError,
}

impl Failure {
    /// An error of the field at `path`; `make` gets the path as reported and the message.
    fn at(path: &str, message: String, make: impl FnOnce(&str, &str) -> FieldError) -> Failure {
        let name = path.strip_prefix('.').unwrap_or(path);
        let error = make(if name.is_empty() { NO_FIELD } else { name }, &message);
        Failure { message, error }
    }

    /// An invalid value.
    pub(super) fn invalid(path: &str, value: impl Into<Value>, message: String) -> Failure {
        Failure::at(path, message, |field, message| FieldError::invalid(field, value, message))
    }

    /// An error that kube-openapi reports for the whole object, with the path in the message.
    pub(super) fn of_object(message: String) -> Failure {
        Failure::at("", message, |field, message| FieldError::invalid(field, "", message))
    }

    fn wrong_type(path: &str, wanted: &str, found: &str) -> Failure {
        let message = format!("{path} in body must be of type {wanted}: {}", go_text::quoted(found));
        Failure::at(path, message, |field, message| FieldError::type_invalid(field, found, message))
    }
}

/// The errors, and the number of checks that were run: alternatives are compared by it.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) failures: Vec<Failure>,
    pub(super) matches: usize,
}

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        self.failures.extend(other.failures);
        self.matches += other.matches;
    }

    fn is_valid(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Validates a value and, if it correlates with an old value, ignores errors in unchanged parts.
fn check_part(node: &Node, value: &Value, path: &str, old: Option<Correlated<'_>>, is_root: bool) -> Outcome {
    let mut outcome = Outcome::default();
    check_type(node, value, path, &mut outcome);
    if !value.is_null() {
        if node.type_.is_some() || node.int_or_string || node.checks.format.is_some() {
            outcome.matches += 1;
        }
        check_junctors(&node.checks, value, path, &mut outcome);
        outcome.matches += 1;
        match value {
            Value::String(text) => check_text(&node.checks, text, path, &mut outcome),
            Value::Number(number) => {
                check_number(node, Num::from(number), path, &mut outcome);
                outcome.matches += 1;
            }
            Value::Array(items) => check_list(node, items, path, old, &mut outcome),
            Value::Object(map) => check_map(node, map, path, old, is_root, &mut outcome),
            Value::Null | Value::Bool(_) => {}
        }
        // One for the check of the enum, and one for the value itself.
        outcome.matches += 2;
    }
    check_enumeration(&node.checks, value, path, &mut outcome);
    if !outcome.is_valid() && old.is_some_and(|old| old.is_unchanged()) {
        outcome.failures.clear();
    }
    outcome
}

fn check_type(node: &Node, value: &Value, path: &str, outcome: &mut Outcome) {
    let format = node.checks.format.as_ref();
    let names = node.type_names();
    let (found, found_format) = match value {
        Value::Null => {
            if !names.is_empty() && !node.nullable {
                outcome.failures.push(Failure::wrong_type(path, names, "null"));
            } else {
                outcome.matches += 1;
            }
            return;
        }
        Value::Bool(_) => (Type::Boolean, ""),
        Value::String(_) => (Type::String, ""),
        Value::Array(_) => (Type::Array, ""),
        Value::Object(_) => (Type::Object, ""),
        Value::Number(number) => match Num::from(number) {
            Num::Int(_) => (Type::Integer, "int64"),
            Num::Float(_) => (Type::Number, "float64"),
        },
    };
    if names.is_empty() && format.is_none() {
        return;
    }
    let is_whole = || matches!(value, Value::Number(number) if is_json_integer(Num::from(number).as_f64()));
    let fits = node.has_type(found)
        || found == Type::Number && node.has_type(Type::Integer) && is_whole()
        || found == Type::Integer && node.has_type(Type::Number);
    let is_text_or_list = matches!(found, Type::String | Type::Array);
    let of_numbers = node.has_type(Type::Number) || node.has_type(Type::Integer);
    match format {
        Some(format) if !is_text_or_list && !fits && format.written != found_format => {
            outcome.failures.push(Failure::wrong_type(path, &format.written, found_format));
        }
        // kube-openapi leaves strings and lists to the format check.
        Some(_) if is_text_or_list && !of_numbers => outcome.matches += 1,
        _ if fits => outcome.matches += 1,
        _ => outcome.failures.push(Failure::wrong_type(path, names, found.name())),
    }
}

fn check_junctors(checks: &Checks, value: &Value, path: &str, outcome: &mut Outcome) {
    // Alternatives are not ratcheted, as in kube-apiserver.
    let branch = |node: &Node| check_part(node, value, path, None, path.is_empty());
    let name = go_text::quoted(path);
    if !checks.any_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut first = None;
        for node in &checks.any_of {
            let result = branch(node);
            if result.is_valid() {
                first = Some(result);
                break;
            }
            if best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if first.is_none() {
            let message = format!("{name} must validate at least one schema (anyOf)");
            outcome.failures.push(Failure::of_object(message));
        }
        outcome.merge(first.or(best).unwrap_or_default());
    }
    if !checks.one_of.is_empty() {
        check_one_of(&checks.one_of, branch, &name, outcome);
    }
    if !checks.all_of.is_empty() {
        let mut valid = 0;
        for node in &checks.all_of {
            let result = branch(node);
            valid += usize::from(result.is_valid());
            outcome.merge(result);
        }
        if valid < checks.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            let message = format!("{name} must validate all the schemas (allOf){none}");
            outcome.failures.push(Failure::of_object(message));
        }
    }
    if checks.not.as_deref().is_some_and(|node| branch(node).is_valid()) {
        outcome.failures.push(Failure::of_object(format!("{name} must not validate the schema (not)")));
    }
    outcome.matches += 1;
}

fn check_one_of(nodes: &[Node], branch: impl Fn(&Node) -> Outcome, name: &str, outcome: &mut Outcome) {
    let mut best: Option<Outcome> = None;
    let mut first = None;
    let mut valid = 0;
    for node in nodes {
        let result = branch(node);
        if result.is_valid() {
            valid += 1;
            best = None;
            first.get_or_insert(result);
        } else if valid == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
            best = Some(result);
        }
    }
    if valid == 1 {
        outcome.merge(first.unwrap_or_default());
        return;
    }
    let found = if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
    let message = format!("{name} must validate one and only one schema (oneOf). {found}");
    outcome.failures.push(Failure::of_object(message));
    outcome.merge(best.unwrap_or_default());
}

fn check_text(checks: &Checks, text: &str, path: &str, outcome: &mut Outcome) {
    outcome.matches += 1;
    let too_long = |max: i64| text.chars().count() as i64 > max;
    if let Some(max) = checks.max_length.filter(|max| too_long(*max)) {
        let message = format!("{path} in body should be at most {max} chars long");
        outcome.failures.push(Failure::at(path, message, |field, _| FieldError::too_long(field, max)));
    } else if let Some(min) = checks.min_length.filter(|min| (text.chars().count() as i64) < *min) {
        let message = format!("{path} in body should be at least {min} chars long");
        outcome.failures.push(Failure::invalid(path, text, message));
    } else if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
        let message = format!("{path} in body should match '{}'", pattern.written());
        outcome.failures.push(Failure::invalid(path, text, message));
    }
    if let Some(format) = checks.format.as_ref().filter(|format| format.is_string_format()) {
        outcome.matches += 1;
        if !format.accepts(text) {
            outcome.failures.push(Failure::wrong_type(path, &format.written, text));
        }
    }
}

fn check_list(node: &Node, items: &[Value], path: &str, old: Option<Correlated<'_>>, outcome: &mut Outcome) {
    if let Some(each) = node.items.as_deref() {
        let entries = old.map(|old| old.entries()).unwrap_or_default();
        for (index, item) in items.iter().enumerate() {
            let old = entries.find(item).map(|old| Correlated { node: each, new: item, old });
            outcome.merge(check_part(each, item, &format!("{path}[{index}]"), old, false));
        }
    }
    let size = items.len();
    if let Some(min) = node.checks.min_items.filter(|min| (size as i64) < *min) {
        let message = format!("{path} in body should have at least {min} items");
        outcome.failures.push(Failure::invalid(path, size, message));
    }
    if let Some(max) = node.checks.max_items.filter(|max| size as i64 > *max) {
        let message = format!("{path} in body should have at most {max} items");
        outcome.failures.push(Failure::at(path, message, |field, _| FieldError::too_many(field, size, max)));
    }
    // One for the list, and one for the check itself.
    outcome.matches += 2;
}

fn check_map(
    node: &Node,
    map: &Map<String, Value>,
    path: &str,
    old: Option<Correlated<'_>>,
    is_root: bool,
    outcome: &mut Outcome,
) {
    let size = map.len();
    if let Some(min) = node.checks.min_properties.filter(|min| (size as i64) < *min) {
        let message = format!("{path} in body should have at least {min} properties");
        outcome.failures.push(Failure::invalid(path, size, message));
    }
    if let Some(max) = node.checks.max_properties.filter(|max| size as i64 > *max) {
        let message = format!("{path} in body should have at most {max} properties");
        outcome.failures.push(Failure::at(path, message, |field, _| FieldError::too_many(field, size, max)));
    }
    for (name, value) in map {
        let (field, field_path) = match (node.properties.get(name), &node.additional) {
            (Some(field), _) if path.is_empty() => (field, name.clone()),
            (Some(field), _) => (field, format!("{path}.{name}")),
            (None, Some(Additional::Of(field))) => (&**field, format!("{path}.{name}")),
            (None, Some(Additional::Allowed(false))) => {
                let message = format!("{path}.{name} in body is a forbidden property");
                outcome.failures.push(Failure::invalid(path, name.as_str(), message));
                continue;
            }
            (None, _) => continue,
        };
        // Old and new objects are always in the same version, so these never change.
        let is_version = is_root && matches!(name.as_str(), "kind" | "apiVersion");
        let old = old.filter(|_| !is_version).and_then(|old| old.field(name));
        outcome.merge(check_part(field, value, &field_path, old, false));
    }
    for name in node.checks.required.iter().filter(|name| !map.contains_key(*name)) {
        let path = format!("{path}.{name}");
        let message = format!("{path} in body is required");
        outcome.failures.push(Failure::at(&path, message, |field, _| FieldError::required(field, "")));
    }
    outcome.matches += 1;
}

fn check_enumeration(checks: &Checks, value: &Value, path: &str, outcome: &mut Outcome) {
    let listed = &checks.enumeration;
    // Null never matches, not even if it is listed: kube-openapi cannot compare it.
    if listed.is_empty() || !value.is_null() && listed.iter().any(|one| is_same(value, one)) {
        return;
    }
    let names: Vec<String> = listed
        .iter()
        .map(|one| match one {
            Value::String(text) => text.clone(),
            other => go_text::json(other),
        })
        .collect();
    let message = format!("{path} in body should be one of [{}]", names.join(" "));
    let make = |field: &str, _: &str| FieldError::not_supported(field, value.clone(), &names);
    outcome.failures.push(Failure::at(path, message, make));
}

/// Whether two values are equal. A number is first converted to the listed type, as in Go.
fn is_same(value: &Value, listed: &Value) -> bool {
    match (value, listed) {
        (Value::Number(value), Value::Number(listed)) => match (Num::from(value), Num::from(listed)) {
            (Num::Float(value), Num::Int(listed)) => value.trunc() as i64 == listed,
            (value, Num::Float(listed)) => value.as_f64().to_bits() == listed.to_bits(),
            (Num::Int(value), Num::Int(listed)) => value == listed,
        },
        _ => value == listed,
    }
}
