//! Evaluates the CEL rules of a schema for an object.
//!
//! Transition rules are evaluated where the new value correlates with an old one. On an update, errors of other rules
//! in unchanged parts are ignored (ratcheting).
//! Must not depend on how rules are evaluated.

use std::collections::HashMap;

use serde_json::Value;

use super::correlate::{Correlated, Entries};
use super::field_error::{FieldError, NO_FIELD};
use super::node::{Additional, Node};
use super::rule::{Bound, STEPS_MAX, Verdict};

/// The errors of all rules.
pub(super) fn check(root: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let correlated = old.map(|old| Correlated { node: root, new: object, old });
    let mut walk = Walk { errors: Vec::new(), budget: STEPS_MAX, unchanged: HashMap::new() };
    // Errors so far are returned even if the budget ran out.
    let _ = walk.value(root, object, old, OldPart { here: correlated, above: None }, &Path::Root);
    walk.errors
}

/// What determines whether a part is unchanged: its own old value, or else that of the nearest enclosing part that has
/// one.
#[derive(Clone, Copy)]
struct OldPart<'a> {
    here: Option<Correlated<'a>>,
    above: Option<Correlated<'a>>,
}

impl<'a> OldPart<'a> {
    fn field(&self, name: &str) -> OldPart<'a> {
        match self.here {
            None => *self,
            // Old and new objects are always in the same version, so these never change.
            Some(_) if self.above.is_none() && matches!(name, "apiVersion" | "kind") => {
                OldPart { here: None, above: None }
            }
            Some(here) => OldPart { here: here.field(name), above: Some(here) },
        }
    }

    fn entry(&self, node: &'a Node, new: &'a Value, old: Option<&'a Value>) -> OldPart<'a> {
        match self.here {
            None => *self,
            Some(here) => OldPart { here: old.map(|old| Correlated { node, new, old }), above: Some(here) },
        }
    }
}

struct Walk {
    errors: Vec<FieldError>,
    /// The steps that rules may still take.
    budget: u64,
    /// Cached results by the address of the value: many elements may need the result for the same list.
    unchanged: HashMap<*const Value, bool>,
}

/// A rule exceeded the budget: no further one is evaluated.
struct OutOfBudget;

impl Walk {
    fn value<'a>(
        &mut self,
        node: &'a Node,
        value: &'a Value,
        old: Option<&'a Value>,
        old_part: OldPart<'a>,
        path: &Path<'_>,
    ) -> Result<(), OutOfBudget> {
        if value.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(node, value, old, old_part, path)?;
        match value {
            Value::Array(items) => {
                let Some(each) = node.items.as_deref() else { return Ok(()) };
                let entries = match old {
                    Some(Value::Array(old)) => Entries::new(node, old),
                    _ => Entries::default(),
                };
                for (index, item) in items.iter().enumerate() {
                    let old = entries.find(item);
                    self.value(each, item, old, old_part.entry(each, item, old), &Path::Index(path, index))?;
                }
            }
            Value::Object(map) => {
                for (name, value) in map {
                    let old = old.and_then(|old| old.get(name));
                    if let Some(property) = node.properties.get(name) {
                        self.value(property, value, old, old_part.field(name), &Path::Field(path, name))?;
                    } else if let Some(Additional::Of(each)) = &node.additional {
                        self.value(each, value, old, old_part.field(name), &Path::Key(path, name))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn is_unchanged(&mut self, old_part: OldPart<'_>) -> bool {
        let Some(correlated) = old_part.here.or(old_part.above) else { return false };
        let known = self.unchanged.entry(std::ptr::from_ref(correlated.new));
        *known.or_insert_with(|| correlated.is_unchanged())
    }

    fn rules(
        &mut self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        old_part: OldPart<'_>,
        path: &Path<'_>,
    ) -> Result<(), OutOfBudget> {
        if node.rules.is_empty() {
            return Ok(());
        }
        let path = path.printed();
        let bound = Bound::new(node, value, old);
        for rule in node.rules.iter().filter(|rule| rule.runs_with(old.is_some())) {
            match rule.run(value, &path, &bound, &mut self.budget) {
                Verdict::Holds => {}
                Verdict::Broken(_) if !rule.uses_old_self() && self.is_unchanged(old_part) => {}
                Verdict::Broken(error) | Verdict::Failed(error) => self.errors.push(error),
                Verdict::TooCostly(error) => {
                    self.errors.push(error);
                    return Err(OutOfBudget);
                }
            }
        }
        Ok(())
    }
}

/// The path of a value, formatted only when needed.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn printed(&self) -> String {
        let mut out = String::new();
        self.print(&mut out);
        if out.is_empty() { NO_FIELD.to_owned() } else { out }
    }

    fn print(&self, out: &mut String) {
        match self {
            Path::Root => {}
            Path::Field(parent, name) => {
                parent.print(out);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Path::Key(parent, key) => {
                parent.print(out);
                out.extend(["[", key, "]"]);
            }
            Path::Index(parent, index) => {
                parent.print(out);
                out.extend(["[", &index.to_string(), "]"]);
            }
        }
    }
}
