//! The topology constraints of a group and their validation: which domains of node labels its members share.
//!
//! Invariant: in checked constraints every key is named once, what all members share is wider than what they are spread
//! over, and that is wider than what slices share. Must not depend on what the engine does.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::group::{COUNT, Policy, integer_in};
use crate::invalid::{FieldPath, InvalidField};
use crate::names::check_label_key;
use crate::null::{is_default, null_is_default};

/// The most topology constraints of one group.
pub const TOPOLOGY_MAX: usize = 8;
/// The range of `sliceSize`.
pub const SLICE_SIZE: RangeInclusive<i64> = COUNT;
/// The range of `minDomains`: one domain is used anyway.
pub const MIN_DOMAINS: RangeInclusive<i64> = 2..=i32::MAX as i64;

/// A topology constraint as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenTopology {
    /// The node label whose value is the domain.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub key: String,
    /// Which members share the domain, and whether that is required.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub mode: String,
    /// With `Slices`: how many members share a domain.
    #[serde(skip_serializing_if = "is_default")]
    pub slice_size: Value,
    /// With `Spread`: at least so many domains are used.
    #[serde(skip_serializing_if = "is_default")]
    pub min_domains: Value,
    /// With `Spread`: at most so many domains are used.
    #[serde(skip_serializing_if = "is_default")]
    pub max_domains: Value,
    /// With `Required` and `Slices`: whether the domain is used by no other group, or slice, that is exclusive too.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub exclusive: bool,
}

/// A checked topology constraint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topology {
    /// The node label whose value is the domain.
    pub key: String,
    /// What is asked of its domains.
    pub rule: TopologyRule,
}

/// What is asked of the domains of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopologyRule {
    /// All members share one.
    Required {
        /// Which no other group uses that is exclusive too.
        exclusive: bool,
    },
    /// All members share one, if possible.
    Preferred,
    /// Every so many members share one.
    Slices {
        /// How many.
        size: u32,
        /// Whether no other slice uses it.
        exclusive: bool,
    },
    /// The members use at least and at most so many.
    Spread {
        /// At least.
        min: u32,
        /// At most.
        max: u32,
    },
}

/// What happens when the domains of the running members have no room for another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DomainPolicy {
    /// It waits.
    #[default]
    Wait,
    /// The whole group is evicted, if it can start elsewhere.
    Move,
}

/// Checks topology constraints: a key is named once, and the order is from wide to narrow.
pub fn topology(list: &[WrittenTopology], path: &FieldPath<'_>) -> Result<Vec<Topology>, InvalidField> {
    if list.len() > TOPOLOGY_MAX {
        return Err(path.invalid(&list.len(), format_args!("must have at most {TOPOLOGY_MAX} items")));
    }
    let mut keys = BTreeSet::new();
    let mut checked: Vec<Topology> = Vec::with_capacity(list.len());
    for (index, one) in list.iter().enumerate() {
        let path = path.index(index);
        let key = path.child("key");
        check_label_key(&one.key).map_err(|reason| key.invalid(&one.key, reason))?;
        if !keys.insert(&one.key) {
            return Err(key.invalid(&one.key, "another constraint has this key"));
        }
        let rule = one.rule(&path)?;
        if let Some(reason) = conflict(&checked, rule) {
            return Err(path.child("mode").invalid(&one.mode, reason));
        }
        if rule.is_exclusive() && checked.iter().any(|other| other.rule.is_exclusive()) {
            return Err(path.child("exclusive").invalid(&true, "another constraint is exclusive"));
        }
        checked.push(Topology { key: one.key.clone(), rule });
    }
    Ok(checked)
}

/// Why a rule cannot follow these wider ones.
fn conflict(wider: &[Topology], rule: TopologyRule) -> Option<&'static str> {
    let has_slices = wider.iter().any(|one| matches!(one.rule, TopologyRule::Slices { .. }));
    let has_spread = wider.iter().any(|one| matches!(one.rule, TopologyRule::Spread { .. }));
    match rule {
        TopologyRule::Required { .. } if has_slices || has_spread => {
            Some("must come before Slices and Spread: what all members share is wider")
        }
        TopologyRule::Spread { .. } if has_slices => {
            Some("must come before Slices: members of a slice cannot be spread")
        }
        TopologyRule::Slices { .. } if has_slices => Some("another constraint has Slices"),
        TopologyRule::Spread { .. } if has_spread => Some("another constraint has Spread"),
        _ => None,
    }
}

impl Topology {
    /// The constraint as it is written in an object.
    pub fn written(&self) -> WrittenTopology {
        let written = WrittenTopology { key: self.key.clone(), ..WrittenTopology::default() };
        let mode = |mode: &str| mode.to_owned();
        match self.rule {
            TopologyRule::Required { exclusive } => WrittenTopology { mode: mode("Required"), exclusive, ..written },
            TopologyRule::Preferred => WrittenTopology { mode: mode("Preferred"), ..written },
            TopologyRule::Slices { size, exclusive } => {
                WrittenTopology { mode: mode("Slices"), slice_size: size.into(), exclusive, ..written }
            }
            TopologyRule::Spread { min, max } => {
                let set = |number: u32, unset: u32| if number == unset { Value::Null } else { number.into() };
                let (min_domains, max_domains) = (set(min, 1), set(max, u32::MAX));
                WrittenTopology { mode: mode("Spread"), min_domains, max_domains, ..written }
            }
        }
    }
}

impl TopologyRule {
    fn is_exclusive(self) -> bool {
        matches!(self, Self::Required { exclusive: true } | Self::Slices { exclusive: true, .. })
    }
}

impl WrittenTopology {
    fn rule(&self, path: &FieldPath<'_>) -> Result<TopologyRule, InvalidField> {
        let rule = match self.mode.as_str() {
            "Required" => TopologyRule::Required { exclusive: self.exclusive },
            "Preferred" => TopologyRule::Preferred,
            "Slices" => {
                let size = integer_in(&SLICE_SIZE, &self.slice_size, &path.child("sliceSize"))?;
                TopologyRule::Slices { size: size as u32, exclusive: self.exclusive }
            }
            "Spread" => self.spread(path)?,
            other => {
                let reason = "must be Required, Preferred, Slices or Spread";
                return Err(path.child("mode").invalid(other, reason));
            }
        };
        let is_slices = matches!(rule, TopologyRule::Slices { .. });
        let is_spread = matches!(rule, TopologyRule::Spread { .. });
        for (field, value, mode, belongs) in [
            ("sliceSize", &self.slice_size, "Slices", is_slices),
            ("minDomains", &self.min_domains, "Spread", is_spread),
            ("maxDomains", &self.max_domains, "Spread", is_spread),
        ] {
            if !value.is_null() && !belongs {
                return Err(path.child(field).invalid(value, format_args!("needs mode {mode}")));
            }
        }
        if self.exclusive && !rule.is_exclusive() {
            return Err(path.child("exclusive").invalid(&true, "needs mode Required or Slices"));
        }
        Ok(rule)
    }

    fn spread(&self, path: &FieldPath<'_>) -> Result<TopologyRule, InvalidField> {
        let read = |field: &str, value: &Value, range: &RangeInclusive<i64>| {
            let written = Some(value).filter(|value| !value.is_null());
            // Both ranges are within that of i32.
            let number = |value: &Value| integer_in(range, value, &path.child(field)).map(|number| number as u32);
            written.map(number).transpose()
        };
        let min = read("minDomains", &self.min_domains, &MIN_DOMAINS)?;
        let max = read("maxDomains", &self.max_domains, &COUNT)?;
        if min.is_none() && max.is_none() {
            return Err(path.child("minDomains").invalid(&(), "one of minDomains and maxDomains must be set"));
        }
        let (min, max) = (min.unwrap_or(1), max.unwrap_or(u32::MAX));
        if min > max {
            return Err(path.child("maxDomains").invalid(&max, format_args!("must be at least minDomains, {min}")));
        }
        Ok(TopologyRule::Spread { min, max })
    }
}

/// Checks a domain policy; `Wait` if it is unset. A basic group never starts as a whole, so it cannot move.
pub fn domain_policy(
    written: Option<&str>,
    policy: &Policy,
    path: &FieldPath<'_>,
) -> Result<DomainPolicy, InvalidField> {
    match written {
        None | Some("Wait") => Ok(DomainPolicy::Wait),
        Some("Move") if matches!(policy, Policy::Basic { .. }) => {
            Err(path.invalid("Move", "only a gang, or a group with subsets, can move as a whole"))
        }
        Some("Move") => Ok(DomainPolicy::Move),
        Some(other) => Err(path.invalid(other, "must be Wait or Move")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(list: Value) -> Result<Vec<TopologyRule>, String> {
        let written: Vec<WrittenTopology> = serde_json::from_value(list).unwrap();
        let read = topology(&written, &FieldPath::Root("spec.topology"));
        read.map(|list| list.into_iter().map(|one| one.rule).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_are_read() {
        let read = read(json!([
            {"key": "zone", "mode": "Required", "exclusive": true},
            {"key": "block", "mode": "Preferred"},
            {"key": "rack", "mode": "Spread", "minDomains": 2, "maxDomains": 4},
            {"key": "nvlink", "mode": "Slices", "sliceSize": 8},
        ]));
        let expected = [
            TopologyRule::Required { exclusive: true },
            TopologyRule::Preferred,
            TopologyRule::Spread { min: 2, max: 4 },
            TopologyRule::Slices { size: 8, exclusive: false },
        ];
        assert_eq!(read, Ok(expected.to_vec()));
    }

    #[test]
    fn contradictions_are_refused_with_field_and_value() {
        let slices = json!({"key": "s", "mode": "Slices", "sliceSize": 2});
        let spread = json!({"key": "d", "mode": "Spread", "maxDomains": 2});
        for (list, start) in [
            (json!([{"key": "a", "mode": "Maybe"}]), r#"spec.topology[0].mode: "Maybe""#),
            (json!([{"key": "a", "mode": "Slices"}]), "spec.topology[0].sliceSize: null"),
            (json!([{"key": "a", "mode": "Slices", "sliceSize": 0}]), "spec.topology[0].sliceSize: 0"),
            (
                json!([{"key": "a", "mode": "Required", "sliceSize": 4}]),
                "spec.topology[0].sliceSize: 4: needs mode Slices",
            ),
            (json!([{"key": "a", "mode": "Spread"}]), "spec.topology[0].minDomains: null: one of"),
            (
                json!([{"key": "a", "mode": "Spread", "minDomains": 3, "maxDomains": 2}]),
                "spec.topology[0].maxDomains: 2",
            ),
            (json!([{"key": "a", "mode": "Spread", "maxDomains": 0}]), "spec.topology[0].maxDomains: 0"),
            (json!([{"key": "a", "mode": "Preferred", "exclusive": true}]), "spec.topology[0].exclusive: true: needs"),
            (
                json!([{"key": "a", "mode": "Required", "minDomains": 2}]),
                "spec.topology[0].minDomains: 2: needs mode Spread",
            ),
            (json!([slices, {"key": "a", "mode": "Required"}]), r#"spec.topology[1].mode: "Required": must come"#),
            (json!([slices, spread]), r#"spec.topology[1].mode: "Spread": must come"#),
            (
                json!([slices, {"key": "t", "mode": "Slices", "sliceSize": 2}]),
                r#"spec.topology[1].mode: "Slices": another"#,
            ),
            (
                json!([spread, {"key": "t", "mode": "Spread", "maxDomains": 2}]),
                r#"spec.topology[1].mode: "Spread": another"#,
            ),
            (
                json!([{"key": "a", "mode": "Required", "exclusive": true}, {"key": "b", "mode": "Required", "exclusive": true}]),
                "spec.topology[1].exclusive: true: another",
            ),
        ] {
            let error = read(list).unwrap_err();
            assert!(error.starts_with(start), "{error}");
        }
    }
}
