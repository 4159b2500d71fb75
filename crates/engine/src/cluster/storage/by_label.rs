//! An index of things that only nodes with certain labels can use, by which those of one node are found.
//!
//! Most volumes and most free capacity are of one zone or one host, so that for a node only those of its zone and host
//! are looked at.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::labels::{LabelOperator, Labels, NodeTerm, Requirement};

/// The keys of such things, in lists by a label that their nodes must have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ByLabel<K> {
    by_label: BTreeMap<String, BTreeMap<String, BTreeSet<K>>>,
    /// All others.
    anywhere: BTreeSet<K>,
}

impl<K> Default for ByLabel<K> {
    fn default() -> Self {
        Self { by_label: BTreeMap::new(), anywhere: BTreeSet::new() }
    }
}

/// A label with the values of which a node must have one.
type Anchor<'a> = (&'a str, &'a [String]);

/// The anchor of a conjunction, if it has one.
fn anchor(requirements: &[Requirement]) -> Option<Anchor<'_>> {
    requirements.iter().find_map(|requirement| match &requirement.operator {
        LabelOperator::In(values) => Some((requirement.key.as_str(), values.as_slice())),
        _ => None,
    })
}

/// An anchor of each of these terms, of which a node must match one; `None` if that is not required or one has none.
pub(super) fn anchors_of_terms(terms: Option<&[NodeTerm]>) -> Option<Vec<Anchor<'_>>> {
    terms?.iter().map(|term| anchor(&term.labels)).collect()
}

/// The anchor of requirements of which a node must meet all.
pub(super) fn anchors_of_requirements(requirements: &[Requirement]) -> Option<Vec<Anchor<'_>>> {
    anchor(requirements).map(|anchor| vec![anchor])
}

impl<K: Clone + Ord> ByLabel<K> {
    pub(super) fn insert(&mut self, key: &K, anchors: Option<&[Anchor<'_>]>) {
        let Some(anchors) = anchors else {
            self.anywhere.insert(key.clone());
            return;
        };
        for (label, values) in anchors {
            let by_value = self.by_label.entry((*label).to_owned()).or_default();
            for value in *values {
                by_value.entry(value.clone()).or_default().insert(key.clone());
            }
        }
    }

    /// Removes what was inserted with the same anchors.
    pub(super) fn remove(&mut self, key: &K, anchors: Option<&[Anchor<'_>]>) {
        let Some(anchors) = anchors else {
            self.anywhere.remove(key);
            return;
        };
        for (label, values) in anchors {
            let Some(by_value) = self.by_label.get_mut(*label) else { continue };
            for value in *values {
                super::remove_from(by_value, value, key);
            }
            if by_value.is_empty() {
                self.by_label.remove(*label);
            }
        }
    }

    /// Everything that a node with these labels may be able to use; some of it more than once.
    pub(super) fn of_node<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = &'a K> {
        let listed = self.by_label.iter().filter_map(|(key, values)| values.get(labels.get(key)?)).flatten();
        listed.chain(&self.anywhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(key: &str, values: &[&str]) -> Requirement {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Requirement { key: key.to_owned(), operator: LabelOperator::In(values) }
    }

    #[test]
    fn a_node_finds_what_its_labels_allow_and_what_names_no_label() {
        let mut index = ByLabel::default();
        let term = |labels| NodeTerm { labels, names: Vec::new() };
        let exists = Requirement { key: "zone".to_owned(), operator: LabelOperator::Exists };
        let of_zone = [term(vec![exists.clone(), is("zone", &["a", "b"])]), term(vec![is("host", &["h"])])];
        let without_anchor = [term(vec![is("zone", &["a"])]), term(vec![exists])];
        let all: [(u32, Option<&[NodeTerm]>); 3] = [(1, Some(&of_zone)), (2, Some(&without_anchor)), (3, None)];
        for (key, terms) in all {
            index.insert(&key, anchors_of_terms(terms).as_deref());
        }
        let of = |index: &ByLabel<u32>, pairs: &[(&str, &str)]| {
            let labels: Labels = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            index.of_node(&labels).copied().collect::<BTreeSet<u32>>()
        };
        assert_eq!(of(&index, &[("zone", "b")]), [1, 2, 3].into());
        assert_eq!(of(&index, &[("host", "h")]), [1, 2, 3].into());
        assert_eq!(of(&index, &[("zone", "c")]), [2, 3].into());
        for (key, terms) in all {
            index.remove(&key, anchors_of_terms(terms).as_deref());
        }
        assert_eq!(index, ByLabel::default());
    }
}
