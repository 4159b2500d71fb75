//! A set of fields of an object: a tree whose branches are steps, as `fieldsV1` writes it.
//!
//! A step is `f:name` into a map, `k:{…}` to an entry of a list by its keys, or `v:…` to one by its value. Steps are kept
//! as the texts that are written, so that reading and writing a set only moves them.
//! Invariant: no branch is empty.
//! It must not know types, values or managers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Map, Value};

/// A set of fields below some place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet(BTreeMap<String, Branch>);

/// A step of a set: whether the field itself is in it, and what is below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Branch {
    is_member: bool,
    below: FieldSet,
}

/// Why a text is no step.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no step of a path")]
pub(crate) struct NoStep(String);

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a field, and what is below it.
    pub(crate) fn put(&mut self, step: String, is_member: bool, below: FieldSet) {
        if !is_member && below.is_empty() {
            return;
        }
        match self.0.entry(step) {
            Entry::Vacant(place) => drop(place.insert(Branch { is_member, below })),
            Entry::Occupied(mut place) => {
                let branch = place.get_mut();
                branch.is_member |= is_member;
                branch.below.add(below);
            }
        }
    }

    /// A set of one field.
    pub(crate) fn of_path(steps: &[&str]) -> Self {
        let mut set = FieldSet::default();
        if let [step, rest @ ..] = steps {
            set.put(format!("f:{step}"), rest.is_empty(), Self::of_path(rest));
        }
        set
    }

    /// Whether this step is in the set.
    pub(crate) fn has(&self, step: &str) -> bool {
        self.0.get(step).is_some_and(|branch| branch.is_member)
    }

    /// Whether this field is in the set.
    pub(crate) fn has_path(&self, steps: &[String]) -> bool {
        match steps {
            [] => false,
            [step] => self.has(step),
            [step, rest @ ..] => self.0.get(step).is_some_and(|branch| branch.below.has_path(rest)),
        }
    }

    /// What is below a step.
    pub(crate) fn below(&self, step: &str) -> Option<&FieldSet> {
        self.0.get(step).map(|branch| &branch.below).filter(|below| !below.is_empty())
    }

    /// Adds all of another set.
    pub(crate) fn add(&mut self, other: FieldSet) {
        for (step, branch) in other.0 {
            self.put(step, branch.is_member, branch.below);
        }
    }

    /// Takes away what is in another set. A field stays if only what is above or below it goes.
    pub(crate) fn remove(&mut self, other: &FieldSet) {
        self.0.retain(|step, branch| {
            if let Some(gone) = other.0.get(step) {
                branch.is_member &= !gone.is_member;
                branch.below.remove(&gone.below);
            }
            branch.is_member || !branch.below.is_empty()
        });
    }

    /// Takes away what is in another set, and all below it.
    pub(crate) fn remove_trees(&mut self, other: &FieldSet) {
        self.0.retain(|step, branch| {
            if let Some(gone) = other.0.get(step) {
                if gone.is_member {
                    return false;
                }
                branch.below.remove_trees(&gone.below);
            }
            branch.is_member || !branch.below.is_empty()
        });
    }

    /// What is in both.
    pub(crate) fn common(&self, other: &FieldSet) -> FieldSet {
        let mut common = FieldSet::default();
        for (step, branch) in &self.0 {
            if let Some(same) = other.0.get(step) {
                let is_member = branch.is_member && same.is_member;
                common.put(step.clone(), is_member, branch.below.common(&same.below));
            }
        }
        common
    }

    /// Makes fields members for which `named` says so when something below them is one. It gets a step and a type and
    /// answers with whether the step is a field of that type, and with the type below.
    pub(crate) fn with_named<T: Copy>(&self, type_: T, named: &impl Fn(&str, T) -> (bool, T)) -> FieldSet {
        let branches = self.0.iter().map(|(step, branch)| {
            let (is_named, below) = named(step, type_);
            let is_member = branch.is_member || (is_named && !branch.below.is_empty());
            (step.clone(), Branch { is_member, below: branch.below.with_named(below, named) })
        });
        FieldSet(branches.collect())
    }

    /// All paths of the set; those of a place before those below it.
    pub(crate) fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        self.note_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn note_paths(&self, path: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
        let members = self.0.iter().filter(|(_, branch)| branch.is_member);
        paths.extend(members.map(|(step, _)| path.iter().chain([step]).cloned().collect()));
        for (step, branch) in &self.0 {
            path.push(step.clone());
            branch.below.note_paths(path, paths);
            path.pop();
        }
    }

    /// Reads a set as `fieldsV1` writes it.
    pub(crate) fn read(fields: Value) -> Result<FieldSet, NoStep> {
        Ok(Self::read_branch(fields)?.below)
    }

    fn read_branch(fields: Value) -> Result<Branch, NoStep> {
        let Value::Object(fields) = fields else { return Ok(Branch { is_member: true, below: FieldSet::default() }) };
        let mut branch = Branch::default();
        for (step, below) in fields {
            if step == "." {
                branch.is_member = true;
                continue;
            }
            // Kinds of steps that are not known are left out, as if nobody had written them.
            if let Some(step) = normal_step(step)? {
                let inner = Self::read_branch(below)?;
                branch.below.put(step, inner.is_member, inner.below);
            }
        }
        branch.is_member |= branch.below.is_empty();
        Ok(branch)
    }

    /// Writes a set as `fieldsV1` does.
    pub(crate) fn write(self) -> Value {
        Value::Object(self.write_below(false))
    }

    fn write_below(self, is_member: bool) -> Map<String, Value> {
        let mut fields = Map::new();
        if is_member && !self.is_empty() {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (step, branch) in self.0 {
            fields.insert(step, Value::Object(branch.below.write_below(branch.is_member)));
        }
        fields
    }

    /// Whether a written set has anything in common with this one, or something of this one's above or below it.
    /// A quick no saves reading it.
    pub(crate) fn may_touch(&self, written: &Value) -> bool {
        let Value::Object(fields) = written else { return true };
        // Written by hand, a step may look otherwise.
        fields.iter().any(|(step, below)| match self.0.get(step) {
            Some(branch) => branch.is_member || branch.below.may_touch(below),
            None => !step.starts_with("f:") && step != "." && !is_plain(step),
        })
    }
}

/// Whether a step is surely written as we write it.
fn is_plain(step: &str) -> bool {
    step.strip_prefix("k:{\"").is_some_and(|rest| !rest.contains([' ', '\\', ','])) || step.starts_with("v:\"")
}

/// A step as we write it; none if it is of a kind that nobody knows.
fn normal_step(step: String) -> Result<Option<String>, NoStep> {
    let (kind, rest) = match step.split_at_checked(2) {
        Some((kind, rest)) if kind.ends_with(':') => (kind, rest),
        _ => return Err(NoStep(step)),
    };
    let parsed = |text: &str| serde_json::from_str::<Value>(text).map_err(|_| NoStep(step.clone()));
    match kind {
        "k:" => match parsed(rest)? {
            keys @ Value::Object(_) => Ok(Some(format!("k:{}", go_json(&keys)))),
            _ => Err(NoStep(step)),
        },
        "v:" => Ok(Some(format!("v:{}", go_json(&parsed(rest)?)))),
        "i:" if rest.parse::<i64>().is_err() => Err(NoStep(step)),
        "f:" | "i:" => Ok(Some(step)),
        _ => Ok(None),
    }
}

/// A value as Go prints it in a step: what has a meaning in HTML is escaped.
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
    fn sets_are_read_and_written() {
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
    fn a_field_stays_when_what_is_below_it_goes() {
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
                for (step, (is_member, below)) in branches {
                    set.put(step, is_member, below);
                }
                set
            })
        })
    }

    proptest! {
        #[test]
        fn sets_are_sets(a in any_set(), b in any_set()) {
            let paths = |set: &FieldSet| set.paths().into_iter().collect::<std::collections::BTreeSet<_>>();
            let (mut all, mut rest) = (a.clone(), a.clone());
            all.add(b.clone());
            rest.remove(&b);
            prop_assert_eq!(paths(&all), &paths(&a) | &paths(&b));
            prop_assert_eq!(paths(&rest), &paths(&a) - &paths(&b));
            prop_assert_eq!(paths(&a.common(&b)), &paths(&a) & &paths(&b));
            prop_assert_eq!(&FieldSet::read(a.clone().write()).unwrap(), &a);
            if !a.common(&b).is_empty() {
                prop_assert!(a.may_touch(&b.clone().write()));
            }
            prop_assert!(a.paths().iter().all(|path| a.has_path(path)));
        }
    }
}
