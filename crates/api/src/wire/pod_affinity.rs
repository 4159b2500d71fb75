//! Node affinity and inter-pod (anti-)affinity of a pod, as written in the object.
//!
//! Unlisted fields are ignored; `null` is the same as unset. Selectors are validated by `selector` and `node_selector`.
//! Must not depend on how affinity is scored.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::node_selector::{WrittenNodeSelector, WrittenPreferredTerm};
use crate::null::{is_default, null_is_default};
use crate::selector::WrittenLabelSelector;

/// The affinities of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// The node affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
    /// The inter-pod affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_affinity: Option<PodAffinity>,
    /// The inter-pod anti-affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// Node affinity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// The required selector.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", skip_serializing_if = "Option::is_none")]
    pub required: Option<WrittenNodeSelector>,
    /// The preferred terms.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub preferred: Vec<WrittenPreferredTerm>,
}

/// Inter-pod affinity or anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// The required terms.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub required: Vec<PodAffinityTerm>,
    /// The preferred terms.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

/// An affinity term: pods and a topology domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// The selector of pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<WrittenLabelSelector>,
    /// The namespaces, by name; with no selector either, the pod's own.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub namespaces: Vec<String>,
    /// The namespaces, by labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<WrittenLabelSelector>,
    /// The node label whose value is the domain.
    #[serde(deserialize_with = "null_is_default")]
    pub topology_key: String,
    /// Labels that must have the same value as on this pod.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub match_label_keys: Vec<String>,
    /// Labels that must have another value than on this pod.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub mismatch_label_keys: Vec<String>,
}

/// A preferred term.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedPodAffinityTerm {
    /// The weight, any JSON value so that an invalid one is an error about this field.
    pub weight: Value,
    /// The term.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_affinity_term: PodAffinityTerm,
}
