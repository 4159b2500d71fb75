//! The answer to a case, in the words of kube-scheduler: plugins by name, reasons as it prints them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// What every node looks like, in the order of the case, and which are best.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    pub(super) nodes: Vec<NodeAnswer>,
    pub(super) best: Vec<String>,
}

/// What a node looks like.
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

/// Who said no to a node, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refused {
    pub(super) plugin: String,
    /// Before any filter looked at any node.
    #[serde(rename = "beforeFilters", default)]
    pub(super) before: bool,
    pub(super) reasons: BTreeSet<String>,
}
