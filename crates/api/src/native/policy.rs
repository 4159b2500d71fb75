//! What a native PodGroup and a template of one have in common, as it stands in the object.
//!
//! Types of fields are those the server decodes; what it refuses to decode is refused here too.
//! `null` is the same as left out. It must not know any rule.

use serde::{Deserialize, Serialize};

use crate::null::null_is_default;

/// How members are placed: one of the two.
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

/// A choice that has nothing to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// All or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangPolicy {
    /// The least number of members.
    #[serde(deserialize_with = "null_is_default")]
    pub min_count: i32,
}

/// Where members stand to each other.
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
    /// The label of nodes whose value names the domain.
    #[serde(deserialize_with = "null_is_default")]
    pub key: String,
}

/// Devices that members share: a claim or a template of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaim {
    /// The name, unique in the group.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// A claim that is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    /// What the group's own claim is made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}

/// What is evicted together: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionMode {
    /// Each pod by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub single: Option<Empty>,
    /// The whole group or nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<Empty>,
}
