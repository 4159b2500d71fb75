//! Taints of nodes and the tolerations of pods for them.
//!
//! Invariant of checked values: key, value and effect are valid, and the type of a toleration shows whether it matches
//! a value or any value. Numeric tolerations (`Lt`, `Gt`) are refused: they are alpha and off by default in Kubernetes,
//! and misinterpreting one would let pods onto nodes that they must not use. Must not depend on nodes or pods.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::invalid::{FieldPath, InvalidField};
use crate::names::{check_label_key, check_label_value};
use crate::null::{is_default, null_is_default};
use crate::selector::{UnknownFields, refuse_unknown};

/// A taint as written in an object. Fields that are not listed are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenTaint {
    /// The key.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub key: String,
    /// The value.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub value: String,
    /// The effect.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub effect: String,
}

/// A toleration as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenToleration {
    /// The key; empty for every key.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub key: String,
    /// `Equal`, also if empty, or `Exists`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub operator: String,
    /// The value for `Equal`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub value: String,
    /// The effect; empty for every effect.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub effect: String,
    /// How long a pod stays on a node after the taint was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// The effect of a taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// They are not placed on the node.
    NoSchedule,
    /// They are placed elsewhere if possible.
    PreferNoSchedule,
    /// They are not placed on the node, and those on it are evicted.
    NoExecute,
}

/// A checked taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value, may be empty.
    pub value: String,
    /// The effect.
    pub effect: Effect,
}

/// A checked toleration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// The tolerated taints.
    pub taints: Tolerated,
    /// The tolerated effect; all effects if `None`.
    pub effect: Option<Effect>,
    /// How long a pod stays after a `NoExecute` taint was added; forever if `None`.
    pub seconds: Option<i64>,
}

/// The taints that a toleration matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tolerated {
    /// All.
    Every,
    /// Those with this key and any value.
    Key(String),
    /// Those with this key and this value.
    KeyAndValue(String, String),
}

impl Effect {
    fn read(text: &str, path: &FieldPath<'_>) -> Result<Effect, InvalidField> {
        match text {
            "NoSchedule" => Ok(Effect::NoSchedule),
            "PreferNoSchedule" => Ok(Effect::PreferNoSchedule),
            "NoExecute" => Ok(Effect::NoExecute),
            _ => Err(path.child("effect").invalid(text, "must be one of NoSchedule, PreferNoSchedule, NoExecute")),
        }
    }
}

impl WrittenTaint {
    /// Checks a node's taints, which are unique by key and effect.
    pub fn validate_all(list: &[WrittenTaint], path: &FieldPath<'_>) -> Result<Vec<Taint>, InvalidField> {
        let mut seen = BTreeSet::new();
        let mut taints = Vec::with_capacity(list.len());
        for (index, one) in list.iter().enumerate() {
            let path = path.index(index);
            let taint = one.validate(&path)?;
            if !seen.insert((&one.key, taint.effect)) {
                let reason = "the node has another taint of this key and effect";
                return Err(path.child("key").invalid(&one.key, reason));
            }
            taints.push(taint);
        }
        Ok(taints)
    }

    /// Checks a taint.
    pub fn validate(&self, path: &FieldPath<'_>) -> Result<Taint, InvalidField> {
        check_label_key(&self.key).map_err(|reason| path.child("key").invalid(&self.key, reason))?;
        check_label_value(&self.value).map_err(|reason| path.child("value").invalid(&self.value, reason))?;
        Ok(Taint { key: self.key.clone(), value: self.value.clone(), effect: Effect::read(&self.effect, path)? })
    }
}

impl WrittenToleration {
    /// Checks a pod's tolerations.
    pub fn validate_all(list: &[WrittenToleration], path: &FieldPath<'_>) -> Result<Vec<Toleration>, InvalidField> {
        let list = list.iter().enumerate();
        list.map(|(index, one)| one.validate(&path.index(index))).collect()
    }

    /// Checks a toleration.
    pub fn validate(&self, path: &FieldPath<'_>) -> Result<Toleration, InvalidField> {
        refuse_unknown(&self.unknown, path)?;
        let taints = self.tolerated(path)?;
        let effect = match self.effect.as_str() {
            "" => None,
            text => Some(Effect::read(text, path)?),
        };
        if let Some(seconds) = self.toleration_seconds
            && effect != Some(Effect::NoExecute)
        {
            let path = path.child("tolerationSeconds");
            return Err(path.invalid(&seconds, "needs the effect NoExecute"));
        }
        Ok(Toleration { taints, effect, seconds: self.toleration_seconds })
    }

    fn tolerated(&self, path: &FieldPath<'_>) -> Result<Tolerated, InvalidField> {
        if !self.key.is_empty() {
            check_label_key(&self.key).map_err(|reason| path.child("key").invalid(&self.key, reason))?;
        }
        let operator = path.child("operator");
        match (self.operator.as_str(), self.key.is_empty()) {
            ("Exists", _) if !self.value.is_empty() => {
                let path = path.child("value");
                Err(path.invalid(&self.value, "must be empty with the operator Exists"))
            }
            ("Exists", true) => Ok(Tolerated::Every),
            ("Exists", false) => Ok(Tolerated::Key(self.key.clone())),
            ("" | "Equal", true) => Err(operator.invalid(&self.operator, "must be Exists if the key is empty")),
            ("" | "Equal", false) => {
                check_label_value(&self.value).map_err(|reason| path.child("value").invalid(&self.value, reason))?;
                Ok(Tolerated::KeyAndValue(self.key.clone(), self.value.clone()))
            }
            ("Lt" | "Gt", _) => Err(operator.invalid(&self.operator, "numeric tolerations are not supported")),
            _ => Err(operator.invalid(&self.operator, "must be Equal or Exists")),
        }
    }
}

impl Toleration {
    /// Whether the toleration matches this taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && match &self.taints {
                Tolerated::Every => true,
                Tolerated::Key(key) => *key == taint.key,
                Tolerated::KeyAndValue(key, value) => *key == taint.key && *value == taint.value,
            }
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // `json!(…)` reads best right at the call
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn toleration(json: Value) -> Result<Toleration, String> {
        let written: WrittenToleration = serde_json::from_value(json).unwrap();
        WrittenToleration::validate_all(&[written], &FieldPath::Root("tolerations"))
            .map(|mut list| list.remove(0))
            .map_err(|error| error.to_string())
    }

    fn taints(json: Value) -> Result<Vec<Taint>, String> {
        let written: Vec<WrittenTaint> = serde_json::from_value(json).unwrap();
        WrittenTaint::validate_all(&written, &FieldPath::Root("taints")).map_err(|error| error.to_string())
    }

    #[test]
    fn tolerations_match_as_in_kubernetes() {
        let on = taints(json!([
            {"key": "a", "value": "1", "effect": "NoSchedule", "timeAdded": "2024-01-01T00:00:00Z"},
            {"key": "a", "value": "2", "effect": "NoExecute"},
            {"key": "b", "effect": "PreferNoSchedule"},
        ]))
        .unwrap();
        for (json, expected) in [
            (json!({"operator": "Exists"}), [true, true, true]),
            (json!({"operator": "Exists", "effect": "NoExecute"}), [false, true, false]),
            (json!({"key": "a", "operator": "Exists"}), [true, true, false]),
            (json!({"key": "a", "operator": "Equal", "value": "1"}), [true, false, false]),
            (json!({"key": "a", "value": "2", "effect": "NoExecute", "tolerationSeconds": -5}), [false, true, false]),
            (json!({"key": "a", "value": "2", "effect": "NoSchedule"}), [false, false, false]),
            (json!({"key": "b"}), [false, false, true]),
            (json!({"key": "a", "operator": null, "value": null}), [false, false, false]),
        ] {
            let toleration = toleration(json).unwrap();
            let matched: Vec<_> = on.iter().map(|taint| toleration.tolerates(taint)).collect();
            assert_eq!(matched, expected, "{toleration:?}");
        }
    }

    #[test]
    fn bad_tolerations_are_refused_with_field_and_value() {
        for (json, start) in [
            (json!({}), r#"operator: "": must be Exists if"#),
            (json!({"operator": "Equal", "value": "x"}), r#"operator: "Equal": must be Exists if"#),
            (json!({"key": "a", "operator": "Exists", "value": "x"}), r#"value: "x": must be empty"#),
            (json!({"key": "a", "operator": "Lt", "value": "5"}), r#"operator: "Lt": numeric"#),
            (json!({"key": "a", "operator": "Gt", "value": "5"}), r#"operator: "Gt": numeric"#),
            (json!({"key": "a", "operator": "exists"}), r#"operator: "exists": must be Equal"#),
            (json!({"key": "a b", "operator": "Exists"}), r#"key: "a b""#),
            (json!({"key": "a", "value": "b c"}), r#"value: "b c""#),
            (json!({"key": "a", "effect": "NoAdmit"}), r#"effect: "NoAdmit""#),
            (json!({"key": "a", "effect": "noschedule"}), r#"effect: "noschedule""#),
            (json!({"key": "a", "tolerationSeconds": 5}), "tolerationSeconds: 5: needs"),
            (json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}), "tolerationSeconds: 5"),
            (json!({"key": "a", "seconds": 5}), "seconds: 5: the field is not known"),
        ] {
            let error = toleration(json).unwrap_err();
            assert!(error.starts_with(&format!("tolerations[0].{start}")), "{error}");
        }
    }

    #[test]
    fn bad_taints_are_refused_with_field_and_value() {
        let twice = json!({"key": "a", "effect": "NoSchedule"});
        for (json, start) in [
            (json!([{"effect": "NoSchedule"}]), r#"taints[0].key: """#),
            (json!([{"key": "a"}]), r#"taints[0].effect: """#),
            (json!([{"key": "a", "effect": "No"}]), r#"taints[0].effect: "No""#),
            (json!([{"key": "a", "value": "-", "effect": "NoExecute"}]), r#"taints[0].value: "-""#),
            (json!([twice, twice]), r#"taints[1].key: "a": the node has another"#),
        ] {
            let error = taints(json).unwrap_err();
            assert!(error.starts_with(start), "{error}");
        }
    }
}
