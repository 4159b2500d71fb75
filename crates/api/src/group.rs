//! The settings of a group and their validation, shared by all dialects.
//!
//! Numbers are read as any JSON value: a value out of range, a fraction or a string is an error that names field and
//! value, not a failure to read the object.
//!
//! Invariant: in a checked group every number is in its range, subset names are unique, and modes fit the policy. Must
//! not depend on any dialect's kinds, or on what the engine does.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::group_topology::{DomainPolicy, Topology, WrittenTopology, domain_policy, topology};
use crate::invalid::{FieldPath, InvalidField};
use crate::keys::annotations::DISRUPTION_MODE;
use crate::names::{check_dns_label, check_dns_subdomain};
use crate::null::{is_default, null_is_default};
use crate::resources::{Place, ResourceList, WrittenResources, validate};
use crate::selector::Labels;

/// The maximum number of subsets of a group.
pub const MAX_SUBSETS: usize = 32;

/// The maximum number of resources in `minResources`.
pub const MAX_MIN_RESOURCES: usize = 64;
/// The range of `scheduleTimeoutSeconds`.
pub const SCHEDULE_TIMEOUT_SECONDS: RangeInclusive<i64> = 1..=86_400;
/// The range of member counts, minimum or expected.
pub const COUNT: RangeInclusive<i64> = 1..=i32::MAX as i64;
/// The range of priorities, of user and system classes.
pub const PRIORITY: RangeInclusive<i64> = i32::MIN as i64..=i32::MAX as i64;

/// A group's settings as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenGroup {
    /// How members are placed. Exactly one of this and `subsets` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<WrittenPolicy>,
    /// Parts with minimums of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subsets: Option<Vec<WrittenSubset>>,
    /// How long the start of the group may take.
    #[serde(skip_serializing_if = "is_default")]
    pub schedule_timeout_seconds: Value,
    /// Whether members are evicted individually or together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption_mode: Option<String>,
    /// The priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// The value of that class. It is filled in, not chosen: where the classes are known, any other number is refused.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: Value,
    /// The preemption policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_policy: Option<String>,
    /// The minimum resources of the group: without them it is not tried.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub min_resources: WrittenResources,
    /// Topology domains that members share.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub topology: Vec<WrittenTopology>,
    /// What happens when the domains of the running members have no room for another member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_policy: Option<String>,
    /// What happens when a running gang falls below its minimum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded_policy: Option<String>,
}

/// A policy as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenPolicy {
    /// All or nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<WrittenGang>,
    /// One by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic: Option<WrittenBasic>,
}

/// A gang policy as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenGang {
    /// The minimum number of members.
    #[serde(skip_serializing_if = "is_default")]
    pub min_count: Value,
}

/// A basic policy as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenBasic {
    /// The number of members that are expected.
    #[serde(skip_serializing_if = "is_default")]
    pub desired_count: Value,
}

/// A subset as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenSubset {
    /// The name; optional if there is no other subset.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub name: String,
    /// The minimum number of members.
    #[serde(skip_serializing_if = "is_default")]
    pub min_member: Value,
}

/// A checked group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// How its members are placed.
    pub policy: Policy,
    /// How long its start may take, in seconds, if it is set.
    pub schedule_timeout_seconds: Option<u32>,
    /// Whether members are evicted individually or together.
    pub disruption_mode: DisruptionMode,
    /// The priority class, if it names one.
    pub priority_class_name: Option<String>,
    /// The priority in the spec. It is valid only if the class has this value.
    pub priority: Option<i32>,
    /// The preemption policy, if it is set.
    pub preemption_policy: Option<PreemptionPolicy>,
    /// The minimum resources; empty if unset.
    pub min_resources: ResourceList,
    /// The topology domains that members share, in the order written.
    pub topology: Vec<Topology>,
    /// What happens when the domains of the running members have no room for another one.
    pub domain_policy: DomainPolicy,
    /// What happens when it falls below its minimum.
    pub degraded_policy: DegradedPolicy,
}

/// How members are placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All or nothing, for a minimum number of members.
    Gang {
        /// The minimum number of members.
        min_count: i32,
    },
    /// One by one.
    Basic {
        /// The expected number of members, if it is set.
        desired_count: Option<i32>,
    },
    /// All or nothing, with a minimum for each subset.
    Subsets(Vec<Subset>),
}

/// A subset of a group. The name may be empty if there is only one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subset {
    /// The name.
    pub name: String,
    /// The minimum number of members.
    pub min_member: i32,
}

/// Whether members are evicted individually or together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DisruptionMode {
    /// Each pod individually.
    #[default]
    Pod,
    /// The whole group or nothing of it.
    PodGroup,
}

impl DisruptionMode {
    /// The mode as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::PodGroup => "PodGroup",
        }
    }

    /// Reads a mode.
    pub fn read(text: &str, path: &FieldPath<'_>) -> Result<Self, InvalidField> {
        let known = [Self::Pod, Self::PodGroup].into_iter().find(|mode| mode.as_str() == text);
        known.ok_or_else(|| path.invalid(text, "must be Pod or PodGroup"))
    }

    /// The mode in the annotation of an owner, if it is set.
    pub fn annotated(annotations: &Labels, metadata: &FieldPath<'_>) -> Result<Option<Self>, InvalidField> {
        let path = metadata.child("annotations");
        annotations.get(DISRUPTION_MODE).map(|text| Self::read(text, &path.key(DISRUPTION_MODE))).transpose()
    }
}

/// The preemption policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptionPolicy {
    /// No preemption.
    Never,
    /// Preempts pods and groups of lower priority.
    PreemptLowerPriority,
}

/// What happens when a running gang falls below its minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DegradedPolicy {
    /// Replacements start one by one.
    #[default]
    Replace,
    /// Replacements start only if the minimum is reached again.
    Requorum,
    /// The remaining members are evicted.
    Evict,
}

impl WrittenGroup {
    /// Checks a group's settings.
    pub fn validate(&self, path: &FieldPath<'_>) -> Result<Group, InvalidField> {
        let policy = self.checked_policy(path)?;
        let mode = self.disruption_mode.as_deref();
        Ok(Group {
            schedule_timeout_seconds: schedule_timeout(
                &self.schedule_timeout_seconds,
                &path.child("scheduleTimeoutSeconds"),
            )?,
            disruption_mode: disruption_mode(mode, &policy, &path.child("disruptionMode"))?,
            priority_class_name: priority_class_name(
                self.priority_class_name.as_deref(),
                &path.child("priorityClassName"),
            )?,
            priority: priority(&self.priority, &path.child("priority"))?,
            preemption_policy: preemption_policy(self.preemption_policy.as_deref(), &path.child("preemptionPolicy"))?,
            min_resources: min_resources(&self.min_resources, &path.child("minResources"))?,
            topology: topology(&self.topology, &path.child("topology"))?,
            domain_policy: domain_policy(self.domain_policy.as_deref(), &policy, &path.child("domainPolicy"))?,
            degraded_policy: degraded_policy(self.degraded_policy.as_deref(), &policy, &path.child("degradedPolicy"))?,
            policy,
        })
    }

    fn checked_policy(&self, path: &FieldPath<'_>) -> Result<Policy, InvalidField> {
        match (&self.policy, &self.subsets) {
            (Some(policy), None) => policy.validate(&path.child("policy")),
            (None, Some(list)) => subsets(list, &path.child("subsets")).map(Policy::Subsets),
            (None, None) => {
                let reason = "one of policy and subsets must be set";
                Err(path.child("policy").invalid(&(), reason))
            }
            (Some(_), Some(list)) => {
                let reason = "must not be set together with policy";
                let names: Vec<_> = list.iter().map(|subset| &subset.name).collect();
                Err(path.child("subsets").invalid(&names, reason))
            }
        }
    }
}

impl WrittenPolicy {
    /// Checks a policy: exactly one of gang and basic.
    pub fn validate(&self, path: &FieldPath<'_>) -> Result<Policy, InvalidField> {
        match (&self.gang, &self.basic) {
            (Some(gang), None) => {
                let path = path.child("gang");
                let min_count = count(&gang.min_count, &path.child("minCount"))?;
                Ok(Policy::Gang { min_count })
            }
            (None, Some(basic)) => {
                let path = path.child("basic");
                let path = path.child("desiredCount");
                let desired = Some(&basic.desired_count).filter(|value| !value.is_null());
                let desired_count = desired.map(|value| count(value, &path)).transpose()?;
                Ok(Policy::Basic { desired_count })
            }
            (None, None) => Err(path.invalid(&(), "one of gang and basic must be set")),
            (Some(_), Some(_)) => Err(path.invalid(&["gang", "basic"], "only one of gang and basic may be set")),
        }
    }
}

/// Checks a number of members, minimum or expected: 1 to 2^31-1.
pub fn count(value: &Value, path: &FieldPath<'_>) -> Result<i32, InvalidField> {
    // The range is that of i32.
    integer_in(&COUNT, value, path).map(|number| number as i32)
}

/// Checks a schedule timeout in seconds; `None` if it is unset.
pub fn schedule_timeout(value: &Value, path: &FieldPath<'_>) -> Result<Option<u32>, InvalidField> {
    if value.is_null() {
        return Ok(None);
    }
    integer_in(&SCHEDULE_TIMEOUT_SECONDS, value, path).map(|number| Some(number as u32))
}

pub(crate) fn integer_in(
    range: &RangeInclusive<i64>,
    value: &Value,
    path: &FieldPath<'_>,
) -> Result<i64, InvalidField> {
    value.as_i64().filter(|number| range.contains(number)).ok_or_else(|| {
        let (low, high) = (range.start(), range.end());
        let reason = format_args!("must be a whole number from {low} to {high}");
        path.invalid(value, reason)
    })
}

/// Checks a group's subsets: 1 to 32, unique names, and no name needed if there is only one.
pub fn subsets(list: &[WrittenSubset], path: &FieldPath<'_>) -> Result<Vec<Subset>, InvalidField> {
    if list.is_empty() || list.len() > MAX_SUBSETS {
        let reason = format_args!("must have 1 to {MAX_SUBSETS} entries");
        return Err(path.invalid(&list.len(), reason));
    }
    let mut names = BTreeSet::new();
    let mut checked = Vec::with_capacity(list.len());
    for (index, one) in list.iter().enumerate() {
        let path = path.index(index);
        let name = path.child("name");
        if !(one.name.is_empty() && list.len() == 1) {
            check_dns_label(&one.name).map_err(|reason| name.invalid(&one.name, reason))?;
        }
        if !names.insert(&one.name) {
            return Err(name.invalid(&one.name, "another subset has this name"));
        }
        checked.push(Subset { name: one.name.clone(), min_member: count(&one.min_member, &path.child("minMember"))? });
    }
    Ok(checked)
}

/// Checks a disruption mode: `Pod`, also if unset, or `PodGroup`, which needs all or nothing.
pub fn disruption_mode(
    mode: Option<&str>,
    policy: &Policy,
    path: &FieldPath<'_>,
) -> Result<DisruptionMode, InvalidField> {
    let mode = mode.map_or(Ok(DisruptionMode::Pod), |mode| DisruptionMode::read(mode, path))?;
    match (mode, policy) {
        (DisruptionMode::PodGroup, Policy::Basic { .. }) => Err(path.invalid(mode.as_str(), "needs a gang policy")),
        _ => Ok(mode),
    }
}

/// Checks the range of a priority. Whether it is the value of the class is checked where the classes are known.
pub fn priority(value: &Value, path: &FieldPath<'_>) -> Result<Option<i32>, InvalidField> {
    let written = Some(value).filter(|value| !value.is_null());
    // The range is that of i32.
    written.map(|value| integer_in(&PRIORITY, value, path).map(|number| number as i32)).transpose()
}

/// Checks the minimum resources of a group.
pub fn min_resources(list: &WrittenResources, path: &FieldPath<'_>) -> Result<ResourceList, InvalidField> {
    if list.len() > MAX_MIN_RESOURCES {
        return Err(path.invalid(&list.len(), format_args!("must name at most {MAX_MIN_RESOURCES} resources")));
    }
    validate(list, Place::Group, path)
}

/// Checks a degraded policy; `Replace` if it is unset. A basic group has no minimum to fall below.
pub fn degraded_policy(
    degraded: Option<&str>,
    policy: &Policy,
    path: &FieldPath<'_>,
) -> Result<DegradedPolicy, InvalidField> {
    match degraded {
        None | Some("Replace") => Ok(DegradedPolicy::Replace),
        Some(degraded @ ("Requorum" | "Evict")) if matches!(policy, Policy::Basic { .. }) => {
            Err(path.invalid(degraded, "only a gang, or a group with subsets, can be degraded"))
        }
        Some("Requorum") => Ok(DegradedPolicy::Requorum),
        Some("Evict") => Ok(DegradedPolicy::Evict),
        Some(other) => Err(path.invalid(other, "must be Replace, Requorum or Evict")),
    }
}

/// Checks a preemption policy.
pub fn preemption_policy(policy: Option<&str>, path: &FieldPath<'_>) -> Result<Option<PreemptionPolicy>, InvalidField> {
    match policy {
        None => Ok(None),
        Some("Never") => Ok(Some(PreemptionPolicy::Never)),
        Some("PreemptLowerPriority") => Ok(Some(PreemptionPolicy::PreemptLowerPriority)),
        Some(other) => Err(path.invalid(other, "must be Never or PreemptLowerPriority")),
    }
}

/// Checks the name of a priority class; empty is the same as unset, as for pods.
pub fn priority_class_name(name: Option<&str>, path: &FieldPath<'_>) -> Result<Option<String>, InvalidField> {
    match name {
        None | Some("") => Ok(None),
        Some(name) => match check_dns_subdomain(name) {
            Ok(()) => Ok(Some(name.to_owned())),
            Err(reason) => Err(path.invalid(name, reason)),
        },
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // `json!(…)` reads best right at the call
mod tests {
    use super::*;
    use crate::group_topology::TopologyRule;
    use serde_json::json;

    fn read(json: Value) -> Result<Group, String> {
        let written: WrittenGroup = serde_json::from_value(json).unwrap();
        let spec = FieldPath::Root("spec");
        written.validate(&spec).map_err(|error| error.to_string())
    }

    fn gang(min_count: Value) -> Value {
        json!({"policy": {"gang": {"minCount": min_count}}})
    }

    fn with(mut json: Value, field: &str, value: Value) -> Value {
        json[field] = value;
        json
    }

    #[test]
    fn minimal_gang_has_defaults() {
        let expected = Group {
            policy: Policy::Gang { min_count: 4 },
            schedule_timeout_seconds: None,
            disruption_mode: DisruptionMode::Pod,
            priority_class_name: None,
            priority: None,
            preemption_policy: None,
            min_resources: ResourceList::new(),
            topology: vec![],
            domain_policy: DomainPolicy::Wait,
            degraded_policy: DegradedPolicy::Replace,
        };
        assert_eq!(read(gang(json!(4))), Ok(expected));
    }

    #[test]
    fn all_fields_are_read() {
        let group = read(json!({
            "subsets": [{"name": "ps", "minMember": 1}, {"name": "worker", "minMember": 2_147_483_647_i64}],
            "scheduleTimeoutSeconds": 86400,
            "disruptionMode": "PodGroup",
            "priorityClassName": "very.high",
            "priority": -5,
            "preemptionPolicy": "Never",
            "minResources": {"cpu": "8", "nvidia.com/gpu": 8},
            "degradedPolicy": "Evict",
            "topology": [{"key": "topology.kubernetes.io/zone", "mode": "Required"},
                         {"key": "rack", "mode": "Preferred"}],
        }))
        .unwrap();
        let subset = |name: &str, min_member| Subset { name: name.to_owned(), min_member };
        assert_eq!(group.policy, Policy::Subsets(vec![subset("ps", 1), subset("worker", i32::MAX)]));
        assert_eq!(group.schedule_timeout_seconds, Some(86_400));
        assert_eq!(group.disruption_mode, DisruptionMode::PodGroup);
        assert_eq!(group.priority_class_name.as_deref(), Some("very.high"));
        assert_eq!(group.priority, Some(-5));
        assert_eq!(group.preemption_policy, Some(PreemptionPolicy::Never));
        let least: Vec<_> = group.min_resources.iter().map(|(name, least)| format!("{name}={least}")).collect();
        assert_eq!(least, ["cpu=8", "nvidia.com/gpu=8"]);
        assert_eq!(group.degraded_policy, DegradedPolicy::Evict);
        let modes: Vec<_> = group.topology.iter().map(|one| one.rule).collect();
        assert_eq!(modes, [TopologyRule::Required { exclusive: false }, TopologyRule::Preferred]);
    }

    #[test]
    fn basic_count_is_optional() {
        let basic = |value: Value| read(json!({"policy": {"basic": value}})).map(|one| one.policy);
        assert_eq!(basic(json!({})), Ok(Policy::Basic { desired_count: None }));
        assert_eq!(basic(json!({"desiredCount": 3})), Ok(Policy::Basic { desired_count: Some(3) }));
        assert!(basic(json!({"desiredCount": 0})).unwrap_err().starts_with("spec.policy.basic.desiredCount: 0"));
    }

    #[test]
    fn single_subset_needs_no_name() {
        let group = read(json!({"subsets": [{"minMember": 3}]})).unwrap();
        let only = Subset { name: String::new(), min_member: 3 };
        assert_eq!(group.policy, Policy::Subsets(vec![only]));
    }

    #[test]
    fn counts_out_of_range_are_field_errors() {
        for bad in [
            json!(0),
            json!(-1),
            json!(2_147_483_648_i64),
            json!(i64::MIN),
            json!(u64::MAX),
            json!(1e300),
            json!(1.5),
            json!(2.0),
            json!("3"),
            json!(""),
            json!(null),
            json!(true),
            json!([1]),
            json!({}),
        ] {
            let error = read(gang(bad.clone())).unwrap_err();
            let expected = "must be a whole number from 1 to 2147483647";
            assert_eq!(error, format!("spec.policy.gang.minCount: {bad}: {expected}"));
        }
        for (bad, shown) in [(json!(0), "0"), (json!(86_401), "86401"), (json!("5m"), "\"5m\"")] {
            let error = read(with(gang(json!(1)), "scheduleTimeoutSeconds", bad)).unwrap_err();
            let expected = "must be a whole number from 1 to 86400";
            assert_eq!(error, format!("spec.scheduleTimeoutSeconds: {shown}: {expected}"));
        }
    }

    #[test]
    fn number_of_resources_is_limited() {
        let naming = |count: usize| {
            let list: serde_json::Map<_, _> = (0..count).map(|index| (format!("a.com/r{index}"), json!(1))).collect();
            read(with(gang(json!(1)), "minResources", json!(list)))
        };
        assert!(naming(64).is_ok());
        assert!(naming(65).unwrap_err().starts_with("spec.minResources: 65: must name at most 64"));
    }

    #[test]
    fn bad_groups_are_refused_with_field_and_value() {
        let many = |count: usize| {
            let subset = |index| json!({"name": format!("s{index}"), "minMember": 1});
            json!({"subsets": (0..count).map(subset).collect::<Vec<_>>()})
        };
        assert!(read(many(32)).is_ok());
        let set = |field: &str, value: Value| with(gang(json!(1)), field, value);
        let topology = |value: Value| set("topology", json!([value]));
        for (json, start) in [
            (json!({}), "spec.policy: null: one of policy and subsets"),
            (json!({"policy": {}}), "spec.policy: null: one of gang and basic"),
            (json!({"policy": {"gang": {"minCount": 1}, "basic": {}}}), r#"spec.policy: ["gang","basic"]"#),
            (set("subsets", json!([{"name": "a", "minMember": 1}])), r#"spec.subsets: ["a"]: must not"#),
            (json!({"subsets": []}), "spec.subsets: 0: must have 1 to 32"),
            (many(33), "spec.subsets: 33: must have 1 to 32"),
            (json!({"subsets": [{"name": "A", "minMember": 1}]}), r#"spec.subsets[0].name: "A""#),
            (json!({"subsets": [{"name": "a", "minMember": 0}]}), "spec.subsets[0].minMember: 0"),
            (json!({"subsets": [{"name": "a"}]}), "spec.subsets[0].minMember: null"),
            (
                json!({"subsets": [{"name": "a", "minMember": 1}, {"minMember": 1}]}),
                r#"spec.subsets[1].name: "": must not be empty"#,
            ),
            (
                json!({"subsets": [{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]}),
                r#"spec.subsets[1].name: "a": another"#,
            ),
            (set("disruptionMode", json!("All")), r#"spec.disruptionMode: "All""#),
            (
                json!({"policy": {"basic": {}}, "disruptionMode": "PodGroup"}),
                r#"spec.disruptionMode: "PodGroup": needs a gang"#,
            ),
            (set("preemptionPolicy", json!("Always")), r#"spec.preemptionPolicy: "Always""#),
            (set("priorityClassName", json!("High")), r#"spec.priorityClassName: "High""#),
            (set("priority", json!(2_147_483_648_i64)), "spec.priority: 2147483648: must be a whole number from -2147"),
            (set("priority", json!("5")), r#"spec.priority: "5""#),
            (set("minResources", json!({"cpu": "-1"})), r#"spec.minResources[cpu]: "-1""#),
            (set("minResources", json!({"gpu": 1})), "spec.minResources[gpu]"),
            (set("degradedPolicy", json!("evict")), r#"spec.degradedPolicy: "evict""#),
            (topology(json!({"key": "a b", "mode": "Required"})), r#"spec.topology[0].key: "a b""#),
            (topology(json!({"mode": "Required"})), r#"spec.topology[0].key: """#),
            (topology(json!({"key": "a", "mode": "Maybe"})), r#"spec.topology[0].mode: "Maybe""#),
            (
                set("topology", json!([{"key": "a", "mode": "Required"}, {"key": "a", "mode": "Preferred"}])),
                r#"spec.topology[1].key: "a": another"#,
            ),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.starts_with(start), "{error}");
        }
    }
}
