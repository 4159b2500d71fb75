//! Compares two versions of an object, as sets of fields.
//!
//! An added or removed field is listed with everything below it; an atomic list or map is listed as a whole.

use std::collections::BTreeMap;

use muster_playground_schema::types::{Form, List, Map, Relation, Shape, TypeId, Types};
use serde_json::{Map as Object, Value};

use super::field_set::FieldSet;
use super::path_element::{self, NoPathElement};

/// The differences. No field is in two of the sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) removed: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) added: FieldSet,
}

/// The change of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldChange {
    Same,
    Removed,
    Modified,
    Added,
}

impl Comparison {
    pub(crate) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Removes fields and everything below them.
    pub(crate) fn ignore(&mut self, ignored: &FieldSet) {
        for set in [&mut self.removed, &mut self.modified, &mut self.added] {
            set.remove_trees(ignored);
        }
    }

    fn put(&mut self, path_element: &str, change: FieldChange, below: Comparison) {
        for (set, which, below) in [
            (&mut self.removed, FieldChange::Removed, below.removed),
            (&mut self.modified, FieldChange::Modified, below.modified),
            (&mut self.added, FieldChange::Added, below.added),
        ] {
            if change == which || !below.is_empty() {
                set.put(path_element.to_owned(), change == which, below);
            }
        }
    }
}

/// Compares an object with its previous version. The error names a list element without identity.
pub(crate) fn compare(shape: Shape<'_>, old: &Value, new: &Value) -> Result<Comparison, NoPathElement> {
    let mut comparison = Comparison::default();
    walk(shape.types, shape.root, Some(old), Some(new), &mut comparison)?;
    Ok(comparison)
}

fn walk(
    types: &Types,
    id: TypeId,
    old: Option<&Value>,
    new: Option<&Value>,
    below: &mut Comparison,
) -> Result<FieldChange, NoPathElement> {
    if old == new {
        return Ok(FieldChange::Same);
    }
    let (was, is) = (types.form(id, old), types.form(id, new));
    match (old, new) {
        (Some(_), None) => walk_form(types, was, old, new, below),
        (None, _) => walk_form(types, is, old, new, below),
        _ if was.is_same_form(is) => walk_form(types, is, old, new, below),
        // The form changed: the old value is removed and the new one added.
        _ => {
            let as_it_was = walk_form(types, was, old, new, below)?;
            let as_it_is = walk_form(types, is, old, new, below)?;
            Ok(if as_it_is == FieldChange::Same { as_it_was } else { as_it_is })
        }
    }
}

fn walk_form(
    types: &Types,
    form: Form<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    below: &mut Comparison,
) -> Result<FieldChange, NoPathElement> {
    let leaf = match (old, new) {
        (None, _) => FieldChange::Added,
        (_, None) => FieldChange::Removed,
        _ => FieldChange::Modified,
    };
    let branch = if leaf == FieldChange::Modified { FieldChange::Same } else { leaf };
    match form {
        Form::Scalar(_) => Ok(leaf),
        Form::List(list) => {
            let (old, new) = (path_element::entries(old), path_element::entries(new));
            if list.relation == Relation::Atomic || (old.is_empty() && new.is_empty()) {
                return Ok(leaf);
            }
            walk_entries(types, list, old, new, below)?;
            Ok(branch)
        }
        Form::Map(map) => {
            let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let is_empty = |fields: Option<&Object<String, Value>>| fields.is_none_or(Object::is_empty);
            if map.atomic || (is_empty(old) && is_empty(new)) {
                return Ok(leaf);
            }
            walk_fields(types, map, old, new, below)?;
            Ok(branch)
        }
    }
}

fn walk_fields<'a>(
    types: &Types,
    map: &Map,
    old: Option<&'a Object<String, Value>>,
    new: Option<&'a Object<String, Value>>,
    out: &mut Comparison,
) -> Result<(), NoPathElement> {
    let of = |fields: Option<&'a Object<String, Value>>, name: &str| -> Option<&'a Value> {
        let fields = fields?;
        let is_null = || map.nulls.iter().any(|null| **null == *name);
        fields.get(name).or_else(|| is_null().then_some(&Value::Null))
    };
    let is_new = |name: &&str| old.is_none_or(|old| !old.contains_key(*name));
    let names = old.into_iter().flat_map(Object::keys).map(String::as_str);
    let names = names.chain(new.into_iter().flat_map(Object::keys).map(String::as_str).filter(is_new));
    let is_nowhere = |name: &&str| is_new(name) && new.is_none_or(|new| !new.contains_key(*name));
    for name in names.chain(map.nulls.iter().map(|null| &**null).filter(is_nowhere)) {
        let (before, now) = (of(old, name), of(new, name));
        if before == now {
            continue;
        }
        let mut below = Comparison::default();
        // Fields that are not in the type have no owner.
        let Some(type_) = map.field(name) else { continue };
        let change = walk(types, type_, before, now, &mut below)?;
        out.put(&path_element::of_field(name), change, below);
    }
    Ok(())
}

/// Old and new elements with the same path element; more than one only if a list has duplicates.
type Entries<'a> = BTreeMap<String, (Vec<&'a Value>, Vec<&'a Value>)>;

fn walk_entries(
    types: &Types,
    list: &List,
    old: &[Value],
    new: &[Value],
    out: &mut Comparison,
) -> Result<(), NoPathElement> {
    let mut entries = Entries::new();
    for entry in old {
        entries.entry(path_element::of_entry(types, list, entry)?).or_default().0.push(entry);
    }
    for entry in new {
        entries.entry(path_element::of_entry(types, list, entry)?).or_default().1.push(entry);
    }
    for (path_element, (old, new)) in &entries {
        let mut below = Comparison::default();
        let change = match (&**old, &**new) {
            ([_, _, ..], [_, _, ..]) => {
                if old == new {
                    FieldChange::Same
                } else {
                    FieldChange::Modified
                }
            }
            // Duplicates are owned as a whole.
            ([_, _, ..], new) => {
                if let [now] = new {
                    let change = walk(types, list.item, None, Some(now), &mut below)?;
                    out.put(path_element, change, std::mem::take(&mut below));
                }
                FieldChange::Removed
            }
            (old, [_, _, ..]) => {
                if let [before] = old {
                    let change = walk(types, list.item, Some(before), None, &mut below)?;
                    out.put(path_element, change, std::mem::take(&mut below));
                }
                FieldChange::Added
            }
            (old, new) => walk(types, list.item, old.first().copied(), new.first().copied(), &mut below)?,
        };
        out.put(path_element, change, below);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use muster_playground_schema::types::builtin_type;
    use serde_json::json;

    use super::*;

    fn differences(kind: &str, old: &Value, new: &Value) -> [Value; 3] {
        let Comparison { removed, modified, added } = compare(builtin_type(kind).unwrap(), old, new).unwrap();
        [removed.write(), modified.write(), added.write()]
    }

    #[test]
    fn differences_depend_on_field_types() {
        let pod = |spec: Value| json!({"metadata": {}, "spec": spec});
        let old = pod(json!({"containers": [{"name": "a", "image": "i"}, {"name": "b"}], "nodeSelector": {"x": "1"}}));
        let new = pod(json!({"containers": [{"name": "a", "image": "j", "args": ["x"]}], "nodeSelector": {"x": "2"}}));
        let [removed, modified, added] = differences("v1/Pod", &old, &new);
        let container = |name: &str, fields: Value| json!({"f:spec": {"f:containers": {format!("k:{{\"name\":\"{name}\"}}"): fields}}});
        assert_eq!(removed, container("b", json!({".": {}, "f:name": {}})));
        let mut expected = container("a", json!({"f:image": {}}));
        expected["f:spec"]["f:nodeSelector"] = json!({});
        assert_eq!(modified, expected);
        assert_eq!(added, container("a", json!({"f:args": {}})));
        assert!(compare(builtin_type("v1/Pod").unwrap(), &old, &old).unwrap().is_empty());
    }

    #[test]
    fn unset_times_are_null() {
        let pod = |conditions: Value| json!({"status": {"conditions": conditions}});
        let [removed, modified, added] = differences(
            "v1/Pod",
            &pod(json!([])),
            &pod(json!([{"type": "A", "lastProbeTime": "2024-01-01T00:00:00Z"}])),
        );
        let fields = json!({".": {}, "f:type": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}});
        assert_eq!(added, json!({"f:status": {"f:conditions": {"k:{\"type\":\"A\"}": fields}}}));
        assert_eq!((&removed, &modified), (&json!({}), &json!({})));
    }

    #[test]
    fn added_fields_include_everything_below() {
        let none = json!({"metadata": {}});
        let some = json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["x/y"]}, "data": {}});
        let [removed, modified, added] = differences("v1/ConfigMap", &none, &some);
        let metadata = json!({"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {".": {}, "v:\"x/y\"": {}}});
        assert_eq!(added, json!({"f:metadata": metadata, "f:data": {}}));
        assert_eq!((&removed, &modified), (&json!({}), &json!({})));
        assert_eq!(differences("v1/ConfigMap", &some, &none), [added, modified, removed]);
    }
}
