//! The data model of the engine: resources, selectors, taints, ports, pod classes, nodes, pods, groups, storage and
//! disruption budgets.
//!
//! Must not depend on how decisions are made, on a clock, or on the Kubernetes API beyond the terms that users see.

pub mod budget;
pub mod class;
pub mod group;
pub(crate) mod ids;
pub mod inter_pod;
pub mod labels;
pub mod node;
pub mod plugin;
pub mod pod;
pub mod port;
pub mod resources;
pub mod storage;
pub mod subject;
pub mod taint;
pub mod topology;
pub mod tree;

/// Milliseconds on the host's clock; the engine only compares and adds them.
pub type Millis = u64;
