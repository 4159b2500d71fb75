//! Our CustomResourceDefinitions as people apply them: `kubectl apply -f`.
//!
//! The schemas teach (`kubectl explain` shows their descriptions) and refuse what is wrong. The same
//! rules stand in Rust, in `workload` and `pod_group`; `tests/crd_cases.yaml` holds them together.
//!
//! A schema cannot look at other objects: that `priority` is the number of the class, and nothing
//! else, is for our controllers and webhook to see to.

/// `workloads.muster.dev`, YAML.
pub const WORKLOADS: &str = include_str!("../crds/workloads.muster.dev.yaml");
/// `podgroups.muster.dev`, YAML.
pub const PODGROUPS: &str = include_str!("../crds/podgroups.muster.dev.yaml");
