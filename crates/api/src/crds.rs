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

/// Kinds of other projects that Muster reads, in small. For playgrounds and tests: clusters that have these kinds bring
/// their own definitions, and nobody should install ours over them.
pub mod dialects {
    /// `podgroups.scheduling.x-k8s.io` of scheduler-plugins, YAML.
    pub const SCHEDULER_PLUGINS: &str = include_str!("../crds/dialects/podgroups.scheduling.x-k8s.io.yaml");
    /// `podgroups.scheduling.volcano.sh` of Volcano, YAML.
    pub const VOLCANO: &str = include_str!("../crds/dialects/podgroups.scheduling.volcano.sh.yaml");
}
