//! Which nodes, and which other pods' company, a pod wants or shuns, as it stands in the object.
//!
//! Fields that are not listed are ignored; `null` is the same as left out. Selectors are checked by
//! `selector` and `node_selector`. It must not know how affinity is weighed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::node_selector::{WrittenNodeSelector, WrittenPreferredTerm};
use crate::null::{is_default, null_is_default};
use crate::selector::WrittenLabelSelector;

/// All of a pod's affinities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// To nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
    /// To pods whose company it wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_affinity: Option<PodAffinity>,
    /// To pods whose company it shuns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// Affinity to nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// What a node must match.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", skip_serializing_if = "Option::is_none")]
    pub required: Option<WrittenNodeSelector>,
    /// What a node should match.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub preferred: Vec<WrittenPreferredTerm>,
}

/// Affinity or anti-affinity to pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// What must hold.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub required: Vec<PodAffinityTerm>,
    /// What should hold.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

/// Pods, and the domain that is shared with them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// The pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<WrittenLabelSelector>,
    /// The namespaces, by name; with no selector either, the pod's own.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub namespaces: Vec<String>,
    /// The namespaces, by labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<WrittenLabelSelector>,
    /// The label of nodes whose value names the domain.
    #[serde(deserialize_with = "null_is_default")]
    pub topology_key: String,
    /// Labels in which those pods must be like this one.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub match_label_keys: Vec<String>,
    /// Labels in which those pods must be unlike this one.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub mismatch_label_keys: Vec<String>,
}

/// A term that should hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedPodAffinityTerm {
    /// The weight, any JSON value so that an absurd one is an error about this field.
    pub weight: Value,
    /// The term.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_affinity_term: PodAffinityTerm,
}
