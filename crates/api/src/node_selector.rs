//! Node affinity: required and preferred node selectors.
//!
//! Of a required selector one term must match; of preferred terms each match adds its weight. An empty term is legal
//! and matches no node. Invariant: a checked [`NodeTerm`] is never empty, since empty ones are dropped by validation;
//! so an empty term cannot be mistaken for one that matches every node. A selector without remaining terms matches no
//! node.
//!
//! Kubernetes tolerates an invalid term, e.g. `Gt` with a word, as long as another one matches; here it is an error.
//! Must not depend on nodes beyond labels and name.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::invalid::{FieldPath, InvalidField};
use crate::names::check_dns_subdomain;
use crate::null::{is_default, null_is_default};
use crate::selector::{Labels, Requirement, UnknownFields, WrittenRequirement, refuse_unknown};

/// The only node field that can be matched.
const NAME_FIELD: &str = "metadata.name";

/// A required node selector as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenNodeSelector {
    /// Terms of which one must match.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub node_selector_terms: Vec<WrittenNodeTerm>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A term as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenNodeTerm {
    /// Requirements on labels.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub match_expressions: Vec<WrittenRequirement>,
    /// Requirements on fields.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub match_fields: Vec<WrittenRequirement>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A preferred term as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenPreferredTerm {
    /// The weight, any JSON value so that an invalid one is an error about this field.
    #[serde(skip_serializing_if = "is_default")]
    pub weight: Value,
    /// The term.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub preference: WrittenNodeTerm,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A checked required selector: a node must match one of the terms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSelector {
    terms: Vec<NodeTerm>,
}

/// A checked term with at least one requirement: all must hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTerm {
    labels: Vec<Requirement>,
    names: Vec<NameRequirement>,
}

/// A requirement on the node's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameRequirement {
    /// The node has this name.
    Is(String),
    /// The node has another name.
    IsNot(String),
}

/// A checked preferred term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreferredTerm {
    /// The weight of a match, 1 to 100.
    pub weight: u8,
    /// The term.
    pub term: NodeTerm,
}

impl WrittenNodeSelector {
    /// Checks a required selector.
    pub fn validate(&self, path: &FieldPath<'_>) -> Result<NodeSelector, InvalidField> {
        refuse_unknown(&self.unknown, path)?;
        let path = path.child("nodeSelectorTerms");
        if self.node_selector_terms.is_empty() {
            return Err(path.invalid(&[(); 0], "must have at least one term"));
        }
        let mut terms = Vec::new();
        for (index, term) in self.node_selector_terms.iter().enumerate() {
            terms.extend(term.validate(&path.index(index))?);
        }
        Ok(NodeSelector { terms })
    }
}

impl WrittenNodeTerm {
    /// Checks a term. An empty one gives `None`: it matches no node.
    pub fn validate(&self, path: &FieldPath<'_>) -> Result<Option<NodeTerm>, InvalidField> {
        refuse_unknown(&self.unknown, path)?;
        let expressions = path.child("matchExpressions");
        let labels = self.match_expressions.iter().enumerate();
        let labels: Vec<_> =
            labels.map(|(index, one)| one.validate(&expressions.index(index))).collect::<Result<_, _>>()?;
        let fields = path.child("matchFields");
        let names = self.match_fields.iter().enumerate();
        let names: Vec<_> =
            names.map(|(index, one)| NameRequirement::validate(one, &fields.index(index))).collect::<Result<_, _>>()?;
        let is_empty = labels.is_empty() && names.is_empty();
        Ok((!is_empty).then_some(NodeTerm { labels, names }))
    }
}

impl WrittenPreferredTerm {
    /// Checks a list of preferred terms. Empty terms are dropped: they match no node.
    pub fn validate_all(
        list: &[WrittenPreferredTerm],
        path: &FieldPath<'_>,
    ) -> Result<Vec<PreferredTerm>, InvalidField> {
        let mut terms = Vec::new();
        for (index, one) in list.iter().enumerate() {
            let path = path.index(index);
            refuse_unknown(&one.unknown, &path)?;
            let weight = one.checked_weight(&path)?;
            let term = one.preference.validate(&path.child("preference"))?;
            terms.extend(term.map(|term| PreferredTerm { weight, term }));
        }
        Ok(terms)
    }

    fn checked_weight(&self, path: &FieldPath<'_>) -> Result<u8, InvalidField> {
        let weight = self.weight.as_u64().and_then(|number| u8::try_from(number).ok());
        weight.filter(|weight| (1..=100).contains(weight)).ok_or_else(|| {
            let path = path.child("weight");
            path.invalid(&self.weight, "must be a whole number from 1 to 100")
        })
    }
}

impl NameRequirement {
    fn validate(written: &WrittenRequirement, path: &FieldPath<'_>) -> Result<NameRequirement, InvalidField> {
        refuse_unknown(&written.unknown, path)?;
        if written.key != NAME_FIELD {
            let reason = format!("the only field that can be matched is {NAME_FIELD}");
            return Err(path.child("key").invalid(&written.key, reason));
        }
        let requirement = match written.operator.as_str() {
            "In" => NameRequirement::Is,
            "NotIn" => NameRequirement::IsNot,
            other => {
                let path = path.child("operator");
                return Err(path.invalid(other, "must be In or NotIn for a field"));
            }
        };
        let path = path.child("values");
        let [name] = written.values.as_slice() else {
            return Err(path.invalid(&written.values, "a field needs exactly one value"));
        };
        check_dns_subdomain(name).map_err(|reason| path.index(0).invalid(name, reason))?;
        Ok(requirement(name.clone()))
    }

    fn matches(&self, node: &str) -> bool {
        match self {
            NameRequirement::Is(name) => name == node,
            NameRequirement::IsNot(name) => name != node,
        }
    }
}

impl NodeSelector {
    /// The terms, none of them empty. If there are none, no node matches.
    pub fn terms(&self) -> &[NodeTerm] {
        &self.terms
    }

    /// Whether a node with these labels and this name matches.
    pub fn matches(&self, labels: &Labels, node: &str) -> bool {
        self.terms.iter().any(|term| term.matches(labels, node))
    }
}

impl NodeTerm {
    /// The requirements on labels.
    pub fn labels(&self) -> &[Requirement] {
        &self.labels
    }

    /// The requirements on the name.
    pub fn names(&self) -> &[NameRequirement] {
        &self.names
    }

    /// Whether a node with these labels and this name matches.
    pub fn matches(&self, labels: &Labels, node: &str) -> bool {
        self.labels.iter().all(|one| one.matches(labels)) && self.names.iter().all(|one| one.matches(node))
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // `json!(…)` reads best right at the call
mod tests {
    use super::*;
    use serde_json::json;

    const ROOT: FieldPath<'static> = FieldPath::Root("required");

    fn required(terms: Value) -> Result<NodeSelector, String> {
        let json = json!({ "nodeSelectorTerms": terms });
        let written: WrittenNodeSelector = serde_json::from_value(json).unwrap();
        written.validate(&ROOT).map_err(|error| error.to_string())
    }

    fn preferred(json: Value) -> Result<Vec<PreferredTerm>, String> {
        let written: Vec<WrittenPreferredTerm> = serde_json::from_value(json).unwrap();
        WrittenPreferredTerm::validate_all(&written, &FieldPath::Root("preferred")).map_err(|error| error.to_string())
    }

    fn exists(key: &str) -> Value {
        json!({"key": key, "operator": "Exists"})
    }

    fn name(operator: &str, values: Value) -> Value {
        json!({"key": "metadata.name", "operator": operator, "values": values})
    }

    #[test]
    fn one_term_must_match_with_all_its_requirements() {
        let selector = required(json!([
            {"matchExpressions": [exists("a"), exists("b")]},
            {"matchExpressions": [exists("c")], "matchFields": [name("NotIn", json!(["n1"]))]},
            {"matchFields": [name("In", json!(["n9"]))]},
        ]))
        .unwrap();
        for (labels, node, expected) in [
            (json!({"a": "", "b": ""}), "n1", true),
            (json!({"a": ""}), "n1", false),
            (json!({"c": ""}), "n1", false),
            (json!({"c": ""}), "n2", true),
            (json!({}), "n9", true),
            (json!({}), "n2", false),
        ] {
            let labels: Labels = serde_json::from_value(labels).unwrap();
            assert_eq!(selector.matches(&labels, node), expected, "{labels:?} {node}");
        }
    }

    #[test]
    fn empty_terms_match_no_node() {
        let selector = required(json!([{}, {"matchExpressions": [], "matchFields": null}])).unwrap();
        assert!(selector.terms().is_empty());
        assert!(!selector.matches(&Labels::new(), "n1"));
        let terms = preferred(json!([
            {"weight": 5, "preference": {}},
            {"weight": 7, "preference": {"matchExpressions": [exists("a")]}},
        ]));
        let weights: Vec<_> = terms.unwrap().iter().map(|one| one.weight).collect();
        assert_eq!(weights, [7]);
    }

    #[test]
    fn bad_terms_are_refused_with_field_and_value() {
        let label = |operator: &str, values: Value| json!([{}, {"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}]);
        let field = |json: Value| json!([{"matchFields": [json]}]);
        for (terms, start) in [
            (json!([]), "nodeSelectorTerms: []: must have"),
            (json!(null), "nodeSelectorTerms: []: must have"),
            (label("Near", json!([])), r#"nodeSelectorTerms[1].matchExpressions[0].operator: "Near""#),
            (label("In", json!([])), "nodeSelectorTerms[1].matchExpressions[0].values: []"),
            (label("Gt", json!([])), "nodeSelectorTerms[1].matchExpressions[0].values: []"),
            (label("Lt", json!(["1", "2"])), r#"nodeSelectorTerms[1].matchExpressions[0].values: ["1","2"]"#),
            (label("Gt", json!(["x"])), r#"nodeSelectorTerms[1].matchExpressions[0].values[0]: "x""#),
            (label("Gt", json!(["1.5"])), r#"nodeSelectorTerms[1].matchExpressions[0].values[0]: "1.5""#),
            (label("Lt", json!(["-1"])), r#"nodeSelectorTerms[1].matchExpressions[0].values[0]: "-1""#),
            (
                label("Lt", json!(["9223372036854775808"])),
                r#"nodeSelectorTerms[1].matchExpressions[0].values[0]: "9223372036854775808""#,
            ),
            (
                field(json!({"key": "metadata.namespace", "operator": "In", "values": ["a"]})),
                r#"nodeSelectorTerms[0].matchFields[0].key: "metadata.namespace""#,
            ),
            (field(name("Exists", json!([]))), r#"nodeSelectorTerms[0].matchFields[0].operator: "Exists""#),
            (field(name("In", json!([]))), "nodeSelectorTerms[0].matchFields[0].values: []"),
            (field(name("In", json!(["a", "b"]))), r#"nodeSelectorTerms[0].matchFields[0].values: ["a","b"]"#),
            (field(name("In", json!(["A"]))), r#"nodeSelectorTerms[0].matchFields[0].values[0]: "A""#),
            (json!([{"matchExpression": 1}]), "nodeSelectorTerms[0].matchExpression: 1: the field"),
        ] {
            let error = required(terms).unwrap_err();
            assert!(error.starts_with(&format!("required.{start}")), "{error}");
        }
    }

    #[test]
    fn weights_are_1_to_100() {
        let with_weight =
            |weight: Value| preferred(json!([{"weight": weight, "preference": {"matchExpressions": [exists("a")]}}]));
        for good in [1, 50, 100] {
            assert_eq!(with_weight(json!(good)).unwrap()[0].weight, good);
        }
        for bad in [json!(0), json!(-1), json!(101), json!(256), json!(357), json!(1.5), json!("5"), json!(null)] {
            let error = with_weight(bad.clone()).unwrap_err();
            assert!(error.starts_with(&format!("preferred[0].weight: {bad}: ")), "{error}");
        }
        let error = preferred(json!([{"weight": 1, "preference": {"matchExpressions": [{}]}}]));
        assert!(error.unwrap_err().starts_with("preferred[0].preference.matchExpressions[0].key"));
    }
}
