//! Topology spread constraints of a pod, as written in the object.
//!
//! Unlisted fields are ignored; `null` is the same as unset. Must not depend on how skew is computed.

use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};
use crate::selector::WrittenLabelSelector;

/// A topology spread constraint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    /// The maximum difference to the domain with the fewest pods.
    #[serde(deserialize_with = "null_is_default")]
    pub max_skew: i32,
    /// The node label whose value is the domain.
    #[serde(deserialize_with = "null_is_default")]
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    #[serde(deserialize_with = "null_is_default")]
    pub when_unsatisfiable: String,
    /// The selector of pods that count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<WrittenLabelSelector>,
    /// The minimum number of domains; with fewer, the global minimum is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<i32>,
    /// `Honor` or `Ignore`: whether nodes outside the pod's node affinity are excluded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity_policy: Option<String>,
    /// `Honor` or `Ignore`: whether nodes with taints that the pod does not tolerate are excluded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_taints_policy: Option<String>,
    /// Labels that pods must share with this one to count.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub match_label_keys: Vec<String>,
}
