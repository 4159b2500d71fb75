//! A set of fields: a tree of path elements, as encoded in `fieldsV1`.
//!
//! A path element is `f:name` into a map, `k:{…}` to a list element by its keys, or `v:…` to one by its value. They are
//! kept in encoded form, so that decoding and encoding a set only moves them.
//! Invariant: no branch is empty.
//! Must not depend on types, values or managers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Map, Value};

/// A set of fields below some path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet(BTreeMap<String, Branch>);

/// A path element of a set: whether the field itself is a member, and what is below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Branch {
    is_member: bool,
    below: FieldSet,
}

/// Why a string is not a path element.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no step of a path")]
pub(crate) struct InvalidPathElement(String);

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a field, and what is below it.
    pub(crate) fn put(&mut self, path_element: String, is_member: bool, below: FieldSet) {
        if !is_member && below.is_empty() {
            return;
        }
        match self.0.entry(path_element) {
            Entry::Vacant(place) => drop(place.insert(Branch { is_member, below })),
            Entry::Occupied(mut place) => {
                let branch = place.get_mut();
                branch.is_member |= is_member;
                branch.below.add(below);
            }
        }
    }

    /// A set of one field.
    pub(crate) fn of_path(path_elements: &[&str]) -> Self {
        let mut set = FieldSet::default();
        if let [path_element, rest @ ..] = path_elements {
            set.put(format!("f:{path_element}"), rest.is_empty(), Self::of_path(rest));
        }
        set
    }

    /// Whether this path element is a member.
    pub(crate) fn has(&self, path_element: &str) -> bool {
        self.0.get(path_element).is_some_and(|branch| branch.is_member)
    }

    /// Whether this field is a member.
    pub(crate) fn has_path(&self, path_elements: &[String]) -> bool {
        match path_elements {
            [] => false,
            [path_element] => self.has(path_element),
            [path_element, rest @ ..] => self.0.get(path_element).is_some_and(|branch| branch.below.has_path(rest)),
        }
    }

    /// What is below a path element.
    pub(crate) fn below(&self, path_element: &str) -> Option<&FieldSet> {
        self.0.get(path_element).map(|branch| &branch.below).filter(|below| !below.is_empty())
    }

    /// Adds all fields of another set.
    pub(crate) fn add(&mut self, other: FieldSet) {
        for (path_element, branch) in other.0 {
            self.put(path_element, branch.is_member, branch.below);
        }
    }

    /// Removes the fields of another set. A field stays if only fields above or below it are removed.
    pub(crate) fn remove(&mut self, other: &FieldSet) {
        self.0.retain(|path_element, branch| {
            if let Some(gone) = other.0.get(path_element) {
                branch.is_member &= !gone.is_member;
                branch.below.remove(&gone.below);
            }
            branch.is_member || !branch.below.is_empty()
        });
    }

    /// Removes the fields of another set, and everything below them.
    pub(crate) fn remove_trees(&mut self, other: &FieldSet) {
        self.0.retain(|path_element, branch| {
            if let Some(gone) = other.0.get(path_element) {
                if gone.is_member {
                    return false;
                }
                branch.below.remove_trees(&gone.below);
            }
            branch.is_member || !branch.below.is_empty()
        });
    }

    /// The intersection.
    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut intersection = FieldSet::default();
        for (path_element, branch) in &self.0 {
            if let Some(same) = other.0.get(path_element) {
                let is_member = branch.is_member && same.is_member;
                intersection.put(path_element.clone(), is_member, branch.below.intersection(&same.below));
            }
        }
        intersection
    }

    /// Adds fields that are named fields of their type and have members below them. `named` takes a path element and a
    /// type, and returns whether it is a named field of that type, and the type below.
    pub(crate) fn with_named_fields<T: Copy>(&self, type_: T, named: &impl Fn(&str, T) -> (bool, T)) -> FieldSet {
        let branches = self.0.iter().map(|(path_element, branch)| {
            let (is_named, below) = named(path_element, type_);
            let is_member = branch.is_member || (is_named && !branch.below.is_empty());
            (path_element.clone(), Branch { is_member, below: branch.below.with_named_fields(below, named) })
        });
        FieldSet(branches.collect())
    }

    /// All paths of the set; a path comes before those below it.
    pub(crate) fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, path: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
        let members = self.0.iter().filter(|(_, branch)| branch.is_member);
        paths.extend(members.map(|(path_element, _)| path.iter().chain([path_element]).cloned().collect()));
        for (path_element, branch) in &self.0 {
            path.push(path_element.clone());
            branch.below.collect_paths(path, paths);
            path.pop();
        }
    }

    /// Decodes `fieldsV1`.
    pub(crate) fn read(fields: Value) -> Result<FieldSet, InvalidPathElement> {
        Ok(Self::read_branch(fields)?.below)
    }

    fn read_branch(fields: Value) -> Result<Branch, InvalidPathElement> {
        let Value::Object(fields) = fields else { return Ok(Branch { is_member: true, below: FieldSet::default() }) };
        let mut branch = Branch::default();
        for (path_element, below) in fields {
            if path_element == "." {
                branch.is_member = true;
                continue;
            }
            // Unknown kinds of path elements are ignored.
            if let Some(path_element) = canonical_path_element(path_element)? {
                let inner = Self::read_branch(below)?;
                branch.below.put(path_element, inner.is_member, inner.below);
            }
        }
        branch.is_member |= branch.below.is_empty();
        Ok(branch)
    }

    /// Encodes `fieldsV1`.
    pub(crate) fn write(self) -> Value {
        Value::Object(self.write_below(false))
    }

    fn write_below(self, is_member: bool) -> Map<String, Value> {
        let mut fields = Map::new();
        if is_member && !self.is_empty() {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (path_element, branch) in self.0 {
            fields.insert(path_element, Value::Object(branch.below.write_below(branch.is_member)));
        }
        fields
    }

    /// Whether an encoded set may intersect this one, or contain paths above or below it. A quick negative saves
    /// decoding it.
    pub(crate) fn may_touch(&self, written: &Value) -> bool {
        let Value::Object(fields) = written else { return true };
        // If written by hand, a path element may have another encoding.
        fields.iter().any(|(path_element, below)| match self.0.get(path_element) {
            Some(branch) => branch.is_member || branch.below.may_touch(below),
            None => !path_element.starts_with("f:") && path_element != "." && !is_plain(path_element),
        })
    }
}

/// Whether a path element certainly has the canonical encoding.
fn is_plain(path_element: &str) -> bool {
    path_element.strip_prefix("k:{\"").is_some_and(|rest| !rest.contains([' ', '\\', ',']))
        || path_element.starts_with("v:\"")
}

/// The canonical encoding of a path element; `None` if its kind is unknown.
fn canonical_path_element(path_element: String) -> Result<Option<String>, InvalidPathElement> {
    let (kind, rest) = match path_element.split_at_checked(2) {
        Some((kind, rest)) if kind.ends_with(':') => (kind, rest),
        _ => return Err(InvalidPathElement(path_element)),
    };
    let parsed = |text: &str| serde_json::from_str::<Value>(text).map_err(|_| InvalidPathElement(path_element.clone()));
    match kind {
        "k:" => match parsed(rest)? {
            keys @ Value::Object(_) => Ok(Some(format!("k:{}", go_json(&keys)))),
            _ => Err(InvalidPathElement(path_element)),
        },
        "v:" => Ok(Some(format!("v:{}", go_json(&parsed(rest)?)))),
        "i:" if rest.parse::<i64>().is_err() => Err(InvalidPathElement(path_element)),
        "f:" | "i:" => Ok(Some(path_element)),
        _ => Ok(None),
    }
}

/// A value as Go encodes it in a path element: HTML characters are escaped.
pub(crate) fn go_json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&']) {
        return text;
    }
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn set(fields: Value) -> FieldSet {
        FieldSet::read(fields).unwrap()
    }

    #[test]
    fn sets_are_decoded_and_encoded() {
        for fields in [
            json!({}),
            json!({"f:a": {}}),
            json!({"f:a": {".": {}, "f:b": {}}, "k:{\"n\":1}": {"f:n": {}}, "v:\"x\"": {}, "i:3": {}}),
        ] {
            assert_eq!(set(fields.clone()).write(), fields);
        }
        let by_hand = json!({"k:{\"b\": 2, \"a\": \"<\"}": {}, "x:future": {}, "v: 1": {}});
        assert_eq!(set(by_hand).write(), json!({"k:{\"a\":\"\\u003c\",\"b\":2}": {}, "v:1": {}}));
        for wrong in [json!({"a": {}}), json!({"f": {}}), json!({"k:1": {}}), json!({"v:": {}}), json!({"i:x": {}})] {
            assert!(FieldSet::read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn field_stays_when_fields_below_are_removed() {
        let mut fields = set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}}));
        fields.remove(&set(json!({"f:a": {"f:b": {}}})));
        assert_eq!(fields, set(json!({"f:a": {".": {}, "f:c": {}}})));
        fields.remove(&set(json!({"f:a": {}})));
        assert_eq!(fields, set(json!({"f:a": {"f:c": {}}})));
        fields.remove_trees(&set(json!({"f:a": {}})));
        assert!(fields.is_empty());
    }

    fn any_set() -> impl Strategy<Value = FieldSet> {
        let leaf = Just(FieldSet::default());
        leaf.prop_recursive(3, 20, 4, |inner| {
            proptest::collection::btree_map("f:[ab]|v:[12]", (any::<bool>(), inner), 0..4).prop_map(|branches| {
                let mut set = FieldSet::default();
                for (path_element, (is_member, below)) in branches {
                    set.put(path_element, is_member, below);
                }
                set
            })
        })
    }

    proptest! {
        #[test]
        fn set_operations_satisfy_set_laws(a in any_set(), b in any_set()) {
            let paths = |set: &FieldSet| set.paths().into_iter().collect::<std::collections::BTreeSet<_>>();
            let (mut all, mut rest) = (a.clone(), a.clone());
            all.add(b.clone());
            rest.remove(&b);
            prop_assert_eq!(paths(&all), &paths(&a) | &paths(&b));
            prop_assert_eq!(paths(&rest), &paths(&a) - &paths(&b));
            prop_assert_eq!(paths(&a.intersection(&b)), &paths(&a) & &paths(&b));
            prop_assert_eq!(&FieldSet::read(a.clone().write()).unwrap(), &a);
            if !a.intersection(&b).is_empty() {
                prop_assert!(a.may_touch(&b.clone().write()));
            }
            prop_assert!(a.paths().iter().all(|path| a.has_path(path)));
        }
    }
}
