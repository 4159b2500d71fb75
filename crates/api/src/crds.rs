//! Our CustomResourceDefinitions, for `kubectl apply -f`.
//!
//! The schemas document the fields (`kubectl explain`) and validate them. The same rules are implemented in Rust, in
//! `workload` and `pod_group`; `tests/crd_cases.yaml` keeps them consistent.
//!
//! A schema cannot look at other objects: that `priority` is the value of the class is checked elsewhere.

/// `workloads.muster.dev`, YAML.
pub const WORKLOADS: &str = include_str!("../crds/workloads.muster.dev.yaml");
/// `podgroups.muster.dev`, YAML.
pub const PODGROUPS: &str = include_str!("../crds/podgroups.muster.dev.yaml");

/// Reduced definitions of kinds of other projects that Muster reads. For playgrounds and tests only: clusters that have
/// these kinds bring the real definitions, which must not be overwritten.
pub mod dialects {
    /// `podgroups.scheduling.x-k8s.io` of scheduler-plugins, YAML.
    pub const SCHEDULER_PLUGINS: &str = include_str!("../crds/dialects/podgroups.scheduling.x-k8s.io.yaml");
    /// `podgroups.scheduling.volcano.sh` of Volcano, YAML.
    pub const VOLCANO: &str = include_str!("../crds/dialects/podgroups.scheduling.volcano.sh.yaml");
}
