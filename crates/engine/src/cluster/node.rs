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
    /// It is claimed for a group of this priority that has waited too long.
    pub claimed_at: Option<i32>,
    /// What is on it and what it is kept free for; only while it is kept free for somebody.
    pub reserved: Option<Box<Reserved>>,
}

/// A node's load with all its nominations.
#[derive(Clone, Debug, PartialEq)]
pub struct Reserved {
    /// What is on the node, and everything that it is kept free for.
    pub load: Load,
    /// The lowest priority among the nominations: for whoever is not above it, all of them count.
    pub lowest_priority: i32,
}
