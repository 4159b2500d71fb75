//! Nodes as they are observed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::labels::Labels;
use super::taint::Taint;

/// A node as it is observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// The name: the node's identity.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// What it offers, in base units; `pods` is the number of pods that it may hold.
    pub allocatable: BTreeMap<String, i64>,
}
