//! Labels, and the node selectors of pods.
//!
//! A term is an AND of requirements on labels and on the node's name; its owner ORs the terms. An empty term matches
//! nothing, as in Kubernetes; that rule is implemented here so that no caller can get it wrong.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Labels, ordered by key.
pub type Labels = BTreeMap<String, String>;

/// The operator of a requirement, with its values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LabelOperator {
    /// The label exists and its value is one of these.
    In(Vec<String>),
    /// The label is missing or its value is none of these.
    NotIn(Vec<String>),
    /// The label exists.
    Exists,
    /// The label is missing.
    DoesNotExist,
    /// The label exists, is an integer, and is greater.
    Gt(i64),
    /// The label exists, is an integer, and is less.
    Lt(i64),
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// The operator and its values.
    #[serde(rename = "demand")]
    pub operator: LabelOperator,
}

impl Requirement {
    /// Whether these labels meet the requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let number = || value.and_then(|text| text.parse::<i64>().ok());
        match &self.operator {
            LabelOperator::In(values) => value.is_some_and(|value| values.contains(value)),
            LabelOperator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::Gt(bound) => number().is_some_and(|number| number > *bound),
            LabelOperator::Lt(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// A requirement on the node's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NameRequirement {
    /// The node has this name.
    Is(String),
    /// The node has any other name.
    IsNot(String),
}

/// An AND of requirements; one without any matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeTerm {
    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Requirement>,
    /// Requirements on the name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NameRequirement>,
}

impl NodeTerm {
    /// Whether a node with this name and these labels meets the whole term.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        if self.labels.is_empty() && self.names.is_empty() {
            return false;
        }
        self.labels.iter().all(|requirement| requirement.matches(labels))
            && self.names.iter().all(|demand| match demand {
                NameRequirement::Is(wanted) => wanted == name,
                NameRequirement::IsNot(unwanted) => unwanted != name,
            })
    }
}

/// A preferred term and its weight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PreferredTerm {
    /// 1 to 100.
    pub weight: i32,
    /// What is preferred.
    pub term: NodeTerm,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn requires(key: &str, operator: LabelOperator) -> Requirement {
        Requirement { key: key.to_owned(), operator }
    }

    #[test]
    fn every_operator_with_label_present_and_missing() {
        let here = labels(&[("zone", "a"), ("gen", "7"), ("word", "x")]);
        let cases = [
            (requires("zone", LabelOperator::In(vec!["b".into(), "a".into()])), true),
            (requires("zone", LabelOperator::In(vec!["b".into()])), false),
            (requires("none", LabelOperator::In(vec!["b".into()])), false),
            (requires("zone", LabelOperator::NotIn(vec!["a".into()])), false),
            (requires("none", LabelOperator::NotIn(vec!["a".into()])), true),
            (requires("zone", LabelOperator::Exists), true),
            (requires("none", LabelOperator::Exists), false),
            (requires("zone", LabelOperator::DoesNotExist), false),
            (requires("none", LabelOperator::DoesNotExist), true),
            (requires("gen", LabelOperator::Gt(6)), true),
            (requires("gen", LabelOperator::Gt(7)), false),
            (requires("gen", LabelOperator::Lt(8)), true),
            (requires("gen", LabelOperator::Lt(7)), false),
            (requires("word", LabelOperator::Gt(0)), false),
            (requires("none", LabelOperator::Lt(9)), false),
        ];
        for (requirement, expected) in cases {
            assert_eq!(requirement.matches(&here), expected, "{requirement:?}");
        }
    }

    #[test]
    fn empty_term_matches_nothing() {
        assert!(!NodeTerm::default().matches("n", &labels(&[("zone", "a")])));
    }

    #[test]
    fn names_and_labels_are_anded() {
        let term = NodeTerm {
            labels: vec![requires("zone", LabelOperator::Exists)],
            names: vec![NameRequirement::IsNot("n1".into())],
        };
        assert!(term.matches("n0", &labels(&[("zone", "a")])));
        assert!(!term.matches("n1", &labels(&[("zone", "a")])));
        assert!(!term.matches("n0", &labels(&[])));
        let only = NodeTerm { names: vec![NameRequirement::Is("n0".into())], ..NodeTerm::default() };
        assert!(only.matches("n0", &labels(&[])));
        assert!(!only.matches("n1", &labels(&[])));
    }
}
