//! The answer to a case, in kube-scheduler's terms: plugins by name, reasons as it prints them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// The result for every node, in the order of the case, and the best nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    pub(super) nodes: Vec<NodeAnswer>,
    pub(super) best: Vec<String>,
    /// What is written for the claims of the pod, by node.
    #[serde(default)]
    pub(super) volumes: BTreeMap<String, VolumeWrites>,
}

/// What is written for the claims of a pod before it is bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeWrites {
    /// The volumes that are reserved, by claim.
    pub(super) reserved: BTreeMap<String, String>,
    /// The claims for which a node is selected.
    pub(super) provisioned: BTreeSet<String>,
}

/// The result for a node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeAnswer {
    pub(super) name: String,
    pub(super) refused: Option<Refused>,
    /// By plugin, normalised and weighted.
    #[serde(default)]
    pub(super) scores: BTreeMap<String, i64>,
    pub(super) total: i64,
}

/// The plugin that rejected a node, and its reasons.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refused {
    pub(super) plugin: String,
    /// Whether PreFilter rejected the pod before any filter ran.
    #[serde(rename = "beforeFilters", default)]
    pub(super) before: bool,
    pub(super) reasons: BTreeSet<String>,
}
