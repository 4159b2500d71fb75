//! Nodes as observed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Millis;
use super::labels::Labels;
use super::taint::Taint;

/// A node as observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// The name: the node's identity.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Its taints that are removed once it is ready for its first pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// When it was created.
    pub created_ms: Millis,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Its allocatable resources in base units; `pods` is the maximum number of pods.
    pub allocatable: BTreeMap<String, i64>,
    /// The images present on the node, by each of their names, with their sizes in bytes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<Arc<str>, i64>,
    /// Features that it declares.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub features: BTreeSet<String>,
}
