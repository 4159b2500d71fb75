//! Kubernetes' own Workload and PodGroup, `scheduling.k8s.io/v1beta1` as of 1.37, and what differs in older versions.
//!
//! `v1alpha3`, which 1.37 has beside v1beta1, is the same for groups and workloads. `v1alpha1` (1.35) and `v1alpha2`
//! (1.36) are modules of their own, which share what is equal. No server has more than one of the three shapes.
//!
//! The types hold what the API server stores with the gate `GenericWorkload` on; the rules are
//! those by which it takes or refuses an object, in its order, with all errors told. Composite pod
//! groups (gate `CompositePodGroup`, alpha and off by default) are not here: their fields are
//! dropped, as a server with that gate off does.
//!
//! A server that takes an object calls, in this order: [`set_pod_group_defaults`],
//! [`drop_disabled_pod_group`] or [`drop_disabled_workload`], and the validation.
//! Nothing here may know our own kinds, or what the engine does.

pub mod gates;
pub mod pod_group;
pub mod policy;
pub mod v1alpha1;
pub mod v1alpha2;
pub mod workload;

mod checks;
mod scheduling_group;
mod served;
mod validate_pod_group;
mod validate_status;
mod validate_template;
mod validate_workload;

pub use gates::{Gates, drop_disabled_pod_group, drop_disabled_workload, set_pod_group_defaults};
pub use pod_group::PodGroup;
pub use scheduling_group::validate_scheduling_group;
pub use served::NativeVersion;
pub use validate_pod_group::{validate_pod_group, validate_pod_group_update};
pub use validate_status::validate_pod_group_status_update;
pub use validate_workload::{validate_workload, validate_workload_update};
pub use workload::Workload;

/// The API group.
pub const GROUP: &str = "scheduling.k8s.io";
/// The version.
pub const VERSION: &str = "v1beta1";
/// The other version of the same shapes in 1.37.
pub const V1ALPHA3: &str = "v1alpha3";
