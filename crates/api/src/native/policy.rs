//! The types that a native PodGroup and a PodGroup template share, as written in the object.
//!
//! Field types are those that the server decodes; what it refuses to decode is refused here too. `null` is the same as
//! unset. Must not depend on any rule.

use serde::{Deserialize, Serialize};

use crate::null::null_is_default;

/// How members are placed: exactly one is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingPolicy {
    /// One by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic: Option<Empty>,
    /// All or nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangPolicy>,
}

impl SchedulingPolicy {
    /// All or nothing, with this minimum.
    pub fn gang(min_count: i64) -> Self {
        let min_count = i32::try_from(min_count).unwrap_or(i32::MAX);
        Self { basic: None, gang: Some(GangPolicy { min_count }) }
    }
}

/// A union member without fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// All or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangPolicy {
    /// The minimum number of members.
    #[serde(deserialize_with = "null_is_default")]
    pub min_count: i32,
}

/// Topology constraints of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingConstraints {
    /// Domains that members share.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub topology: Vec<TopologyConstraint>,
}

/// A domain that members share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyConstraint {
    /// The node label whose value is the domain.
    #[serde(deserialize_with = "null_is_default")]
    pub key: String,
}

/// Devices that members share: a claim or a claim template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaim {
    /// The name, unique in the group.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// An existing claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    /// The template of the group's own claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}

/// Whether members are evicted individually or together: exactly one is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionMode {
    /// Each pod individually.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub single: Option<Empty>,
    /// The whole group or none of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<Empty>,
}
