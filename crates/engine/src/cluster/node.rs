//! A node as the engine keeps it: what it is, and what is on it.

use std::sync::Arc;

use super::load::Load;
use crate::model::ids::PodId;
use crate::model::labels::Labels;
use crate::model::resources::ResourceVec;
use crate::model::taint::Taint;

/// A node. One that pods name but that was not seen yet, or is gone, is kept with `present` unset:
/// nothing is placed there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The name.
    pub name: Arc<str>,
    /// Whether the node itself is there.
    pub present: bool,
    /// Its labels.
    pub labels: Labels,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// What it offers.
    pub allocatable: ResourceVec,
    /// How many pods it may hold.
    pub pods_max: i64,
    /// What the pods on it take.
    pub load: Load,
    /// The pods on it, in the order in which they came.
    pub pods: Vec<PodId>,
    /// The pods that it is kept free for, ordered.
    pub nominated: Vec<PodId>,
}
