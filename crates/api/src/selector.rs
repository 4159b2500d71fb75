//! Label selectors, and the label requirements that node selectors share with them.
//!
//! Invariant of checked values: keys and values are valid, and an operator has exactly the values it needs, so matching
//! cannot fail. Must not depend on the kind of the labelled object.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::invalid::{FieldPath, InvalidField};
use crate::names::{check_label_key, check_label_value};
use crate::null::{is_default, null_is_default};

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Unknown fields. They are an error: a selector that is only partly understood selects the wrong objects.
pub type UnknownFields = BTreeMap<String, Value>;

/// A label selector as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenLabelSelector {
    /// Labels that must have these values.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub match_labels: Labels,
    /// Further requirements.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub match_expressions: Vec<WrittenRequirement>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A requirement on one label, or field, as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenRequirement {
    /// The key of the label.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub key: String,
    /// The operator.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub operator: String,
    /// The values.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub values: Vec<String>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A checked label selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LabelSelector {
    /// The selector is unset: nothing matches.
    Nothing,
    /// All requirements must hold; if there are none, everything matches.
    All(Vec<Requirement>),
}

/// A checked requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The key of the label.
    pub key: String,
    /// The condition.
    pub operator: Operator,
}

/// The condition on a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// It exists and has one of these values.
    In(BTreeSet<String>),
    /// It does not exist or has none of these values.
    NotIn(BTreeSet<String>),
    /// It exists.
    Exists,
    /// It does not exist.
    DoesNotExist,
    /// It exists and is an integer greater than this one. Never in label selectors.
    Gt(i64),
    /// It exists and is an integer less than this one. Never in label selectors.
    Lt(i64),
}

impl WrittenLabelSelector {
    /// Checks a selector; `None` means that it is unset.
    pub fn validate(
        written: Option<&WrittenLabelSelector>,
        path: &FieldPath<'_>,
    ) -> Result<LabelSelector, InvalidField> {
        let Some(written) = written else {
            return Ok(LabelSelector::Nothing);
        };
        refuse_unknown(&written.unknown, path)?;
        let mut requirements = validate_match_labels(&written.match_labels, &path.child("matchLabels"))?;
        let path = path.child("matchExpressions");
        for (index, expression) in written.match_expressions.iter().enumerate() {
            let path = path.index(index);
            let requirement = expression.validate(&path)?;
            if matches!(requirement.operator, Operator::Gt(_) | Operator::Lt(_)) {
                return Err(unknown_operator(&expression.operator, &path));
            }
            requirements.push(requirement);
        }
        Ok(LabelSelector::All(requirements))
    }
}

/// Checks a map of labels that must all match, such as `matchLabels` or a pod's `nodeSelector`.
pub fn validate_match_labels(labels: &Labels, path: &FieldPath<'_>) -> Result<Vec<Requirement>, InvalidField> {
    labels
        .iter()
        .map(|(key, value)| {
            let path = path.key(key);
            check_label_key(key).map_err(|reason| path.invalid(key, reason))?;
            check_label_value(value).map_err(|reason| path.invalid(value, reason))?;
            Ok(Requirement { key: key.clone(), operator: Operator::In([value.clone()].into()) })
        })
        .collect()
}

impl WrittenRequirement {
    /// Checks a requirement on a label.
    pub fn validate(&self, path: &FieldPath<'_>) -> Result<Requirement, InvalidField> {
        refuse_unknown(&self.unknown, path)?;
        check_label_key(&self.key).map_err(|reason| path.child("key").invalid(&self.key, reason))?;
        let operator = match self.operator.as_str() {
            "In" => Operator::In(self.some_values(path)?),
            "NotIn" => Operator::NotIn(self.some_values(path)?),
            "Exists" => self.no_values(path).map(|()| Operator::Exists)?,
            "DoesNotExist" => self.no_values(path).map(|()| Operator::DoesNotExist)?,
            "Gt" => Operator::Gt(self.one_integer(path)?),
            "Lt" => Operator::Lt(self.one_integer(path)?),
            _ => return Err(unknown_operator(&self.operator, path)),
        };
        Ok(Requirement { key: self.key.clone(), operator })
    }

    fn some_values(&self, path: &FieldPath<'_>) -> Result<BTreeSet<String>, InvalidField> {
        let path = path.child("values");
        if self.values.is_empty() {
            let reason = format!("{} needs at least one value", self.operator);
            return Err(path.invalid(&self.values, reason));
        }
        for (index, value) in self.values.iter().enumerate() {
            check_label_value(value).map_err(|reason| path.index(index).invalid(value, reason))?;
        }
        Ok(self.values.iter().cloned().collect())
    }

    fn no_values(&self, path: &FieldPath<'_>) -> Result<(), InvalidField> {
        if self.values.is_empty() {
            return Ok(());
        }
        let reason = format!("{} takes no values", self.operator);
        Err(path.child("values").invalid(&self.values, reason))
    }

    fn one_integer(&self, path: &FieldPath<'_>) -> Result<i64, InvalidField> {
        let path = path.child("values");
        let [value] = self.values.as_slice() else {
            let reason = format!("{} needs exactly one value", self.operator);
            return Err(path.invalid(&self.values, reason));
        };
        // A label value has no sign, so only digits pass both checks, as in Kubernetes.
        check_label_value(value).map_err(|reason| path.index(0).invalid(value, reason))?;
        let reason = format_args!("{} needs a 64 bit integer", self.operator);
        value.parse().map_err(|_| path.index(0).invalid(value, reason))
    }
}

fn unknown_operator(operator: &str, path: &FieldPath<'_>) -> InvalidField {
    path.child("operator").invalid(operator, "is not a supported operator")
}

/// Refuses unknown fields.
pub(crate) fn refuse_unknown(unknown: &UnknownFields, path: &FieldPath<'_>) -> Result<(), InvalidField> {
    match unknown.iter().next() {
        None => Ok(()),
        Some((name, value)) => Err(path.child(name).invalid(value, "the field is not known")),
    }
}

impl LabelSelector {
    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            LabelSelector::Nothing => false,
            LabelSelector::All(requirements) => requirements.iter().all(|one| one.matches(labels)),
        }
    }
}

impl Requirement {
    /// Whether the requirement holds for these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        let label = labels.get(&self.key);
        let integer = || label.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => label.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => !label.is_some_and(|value| values.contains(value)),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::Gt(bound) => integer().is_some_and(|value| value > *bound),
            Operator::Lt(bound) => integer().is_some_and(|value| value < *bound),
        }
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // `json!(…)` reads best right at the call
mod tests {
    use super::*;
    use serde_json::json;

    const ROOT: FieldPath<'static> = FieldPath::Root("selector");

    fn read(json: Value) -> Result<LabelSelector, String> {
        let written: Option<WrittenLabelSelector> = serde_json::from_value(json).unwrap();
        WrittenLabelSelector::validate(written.as_ref(), &ROOT).map_err(|error| error.to_string())
    }

    fn labels(json: Value) -> Labels {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn null_matches_nothing_and_empty_everything() {
        for some in [json!({}), json!({"a": "b"})] {
            assert!(!read(Value::Null).unwrap().matches(&labels(some.clone())));
            assert!(read(json!({})).unwrap().matches(&labels(some.clone())));
            let empty = json!({"matchLabels": null, "matchExpressions": []});
            assert!(read(empty).unwrap().matches(&labels(some)));
        }
    }

    #[test]
    fn operators_match_as_in_kubernetes() {
        let requirement = |operator: &str, values: Value| {
            let json = json!({"key": "k", "operator": operator, "values": values});
            let written: WrittenRequirement = serde_json::from_value(json).unwrap();
            written.validate(&ROOT).unwrap()
        };
        for (operator, values, absent, empty, five, word) in [
            ("In", json!(["5", "x"]), false, false, true, false),
            ("In", json!([""]), false, true, false, false),
            ("NotIn", json!(["5", "x"]), true, true, false, true),
            ("Exists", json!(null), false, true, true, true),
            ("DoesNotExist", json!([]), true, false, false, false),
            ("Gt", json!(["4"]), false, false, true, false),
            ("Gt", json!(["5"]), false, false, false, false),
            ("Lt", json!(["6"]), false, false, true, false),
            ("Lt", json!(["5"]), false, false, false, false),
        ] {
            let requirement = requirement(operator, values);
            let cases = [
                (json!({"other": "5"}), absent),
                (json!({"k": ""}), empty),
                (json!({"k": "5"}), five),
                (json!({"k": "word"}), word),
            ];
            for (on, expected) in cases {
                let shown = on.to_string();
                assert_eq!(requirement.matches(&labels(on)), expected, "{requirement:?} {shown}");
            }
        }
    }

    #[test]
    fn all_requirements_must_hold() {
        let selector = read(json!({
            "matchLabels": {"app": "db", "tier": "a"},
            "matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}],
        }))
        .unwrap();
        assert!(selector.matches(&labels(json!({"app": "db", "tier": "a"}))));
        assert!(!selector.matches(&labels(json!({"app": "db", "tier": "b"}))));
        assert!(!selector.matches(&labels(json!({"app": "db"}))));
        assert!(!selector.matches(&labels(json!({"app": "db", "tier": "a", "canary": ""}))));
    }

    #[test]
    fn bad_selectors_are_refused_with_field_and_value() {
        let one = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (json, start) in [
            (one("k", "Maybe", json!([])), r#"matchExpressions[0].operator: "Maybe""#),
            (one("k", "in", json!(["a"])), r#"matchExpressions[0].operator: "in""#),
            (one("k", "", json!(["a"])), r#"matchExpressions[0].operator: """#),
            (one("k", "Gt", json!(["1"])), r#"matchExpressions[0].operator: "Gt""#),
            (one("k", "In", json!([])), "matchExpressions[0].values: []"),
            (one("k", "NotIn", json!(null)), "matchExpressions[0].values: []"),
            (one("k", "Exists", json!(["a"])), r#"matchExpressions[0].values: ["a"]"#),
            (one("k", "DoesNotExist", json!([""])), r#"matchExpressions[0].values: [""]"#),
            (one("", "Exists", json!([])), r#"matchExpressions[0].key: """#),
            (one("a/b/c", "Exists", json!([])), r#"matchExpressions[0].key: "a/b/c""#),
            (one("k", "In", json!(["a", "-"])), r#"matchExpressions[0].values[1]: "-""#),
            (json!({"matchLabels": {"a b": "c"}}), r#"matchLabels[a b]: "a b""#),
            (json!({"matchLabels": {"a": "b c"}}), r#"matchLabels[a]: "b c""#),
            (json!({"matchLabel": {"a": "b"}}), r#"matchLabel: {"a":"b"}: the field is not known"#),
            (
                json!({"matchExpressions": [{"key": "k", "operator": "Exists", "value": 1}]}),
                "matchExpressions[0].value: 1: the field is not known",
            ),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.starts_with(&format!("selector.{start}")), "{error}");
        }
    }
}
