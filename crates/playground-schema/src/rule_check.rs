//! Running the CEL rules of a schema over an object.
//!
//! Rules about transitions run where an old value belongs to the new one. On an update, what an
//! ordinary rule says about an unchanged part is left out.
//! It must not know how rules are run.

use std::collections::HashMap;

use serde_json::Value;

use super::correlate::{Correlated, Entries};
use super::field_error::{FieldError, NO_FIELD};
use super::node::{Additional, Node};
use super::rule::{Bound, MOST_STEPS, Verdict};

/// All that the rules say is wrong.
pub(super) fn check(root: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let correlated = old.map(|old| Correlated { node: root, new: object, old });
    let mut walk = Walk { errors: Vec::new(), budget: MOST_STEPS, unchanged: HashMap::new() };
    // Whether it went to the end does not matter any more.
    let _ = walk.value(root, object, old, Kept { here: correlated, above: None }, &Path::Root);
    walk.errors
}

/// What decides whether a part is unchanged: its own old value, or else that of the nearest part
/// around it that has one.
#[derive(Clone, Copy)]
struct Kept<'a> {
    here: Option<Correlated<'a>>,
    above: Option<Correlated<'a>>,
}

impl<'a> Kept<'a> {
    fn field(&self, name: &str) -> Kept<'a> {
        match self.here {
            None => *self,
            // Old and new objects are always shown in the same version, so that is never a change.
            Some(_) if self.above.is_none() && matches!(name, "apiVersion" | "kind") => {
                Kept { here: None, above: None }
            }
            Some(here) => Kept { here: here.field(name), above: Some(here) },
        }
    }

    fn entry(&self, node: &'a Node, new: &'a Value, old: Option<&'a Value>) -> Kept<'a> {
        match self.here {
            None => *self,
            Some(here) => Kept { here: old.map(|old| Correlated { node, new, old }), above: Some(here) },
        }
    }
}

struct Walk {
    errors: Vec<FieldError>,
    /// The steps that rules may still take.
    budget: u64,
    /// What is known to be unchanged or not, by where it lies in memory: many entries can ask about
    /// the same list.
    unchanged: HashMap<*const Value, bool>,
}

/// A rule was too costly: no further one is run.
struct OutOfBudget;

impl Walk {
    fn value<'a>(
        &mut self,
        node: &'a Node,
        value: &'a Value,
        old: Option<&'a Value>,
        kept: Kept<'a>,
        path: &Path<'_>,
    ) -> Result<(), OutOfBudget> {
        if value.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(node, value, old, kept, path)?;
        match value {
            Value::Array(items) => {
                let Some(each) = node.items.as_deref() else { return Ok(()) };
                let entries = match old {
                    Some(Value::Array(old)) => Entries::new(node, old),
                    _ => Entries::default(),
                };
                for (index, item) in items.iter().enumerate() {
                    let old = entries.find(item);
                    self.value(each, item, old, kept.entry(each, item, old), &Path::Index(path, index))?;
                }
            }
            Value::Object(map) => {
                for (name, value) in map {
                    let old = old.and_then(|old| old.get(name));
                    if let Some(property) = node.properties.get(name) {
                        self.value(property, value, old, kept.field(name), &Path::Field(path, name))?;
                    } else if let Some(Additional::Of(each)) = &node.additional {
                        self.value(each, value, old, kept.field(name), &Path::Key(path, name))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn is_unchanged(&mut self, kept: Kept<'_>) -> bool {
        let Some(correlated) = kept.here.or(kept.above) else { return false };
        let known = self.unchanged.entry(std::ptr::from_ref(correlated.new));
        *known.or_insert_with(|| correlated.is_unchanged())
    }

    fn rules(
        &mut self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        kept: Kept<'_>,
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
                Verdict::Broken(_) if !rule.uses_old_self() && self.is_unchanged(kept) => {}
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

/// The path of a value; it costs nothing until it is printed.
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
