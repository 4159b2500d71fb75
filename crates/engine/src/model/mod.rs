//! The nouns of the engine: resources, selectors, taints, ports, pod classes, nodes, pods, groups and
//! disruption budgets.
//!
//! These types say what things are. They must not know how a decision is made, what a clock is, or
//! what Kubernetes calls anything beyond the words that users see.

pub mod budget;
pub mod class;
pub mod company;
pub mod group;
pub mod ids;
pub mod labels;
pub mod node;
pub mod pod;
pub mod port;
pub mod resources;
pub mod taint;

/// Milliseconds on whatever clock the host uses; the engine only compares and adds them.
pub type Millis = u64;
