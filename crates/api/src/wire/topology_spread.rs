//! How evenly a pod and its like stand over domains, as it stands in the object.
//!
//! Fields that are not listed are ignored; `null` is the same as left out.
//! It must not know how skew is counted.

use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};
use crate::selector::WrittenLabelSelector;

/// A topology spread constraint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    /// The most by which a domain may have more pods than the emptiest.
    #[serde(deserialize_with = "null_is_default")]
    pub max_skew: i32,
    /// The label of nodes whose value names the domain.
    #[serde(deserialize_with = "null_is_default")]
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    #[serde(deserialize_with = "null_is_default")]
    pub when_unsatisfiable: String,
    /// The pods that count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<WrittenLabelSelector>,
    /// The least number of domains; with fewer, the emptiest counts as empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<i32>,
    /// `Honor` or `Ignore`: whether nodes outside the pod's node affinity are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity_policy: Option<String>,
    /// `Honor` or `Ignore`: whether nodes with taints are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_taints_policy: Option<String>,
    /// Labels in which pods that count must be like this one.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub match_label_keys: Vec<String>,
}
