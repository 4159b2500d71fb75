//! Kubernetes' own ("native") Workload and PodGroup, `scheduling.k8s.io/v1beta1` as of 1.37, and the differences in
//! older versions.
//!
//! `v1alpha3`, which 1.37 also has, is identical for PodGroups and Workloads. `v1alpha1` (1.35) and `v1alpha2` (1.36)
//! are separate modules with their wire types, the conversion to and from those of v1beta1, which are the internal form
//! of all versions, and the rules that differ. [`NativeVersion`] selects by version. No server has more than one of the
//! three formats.
//!
//! The types hold what the API server stores with the gate `GenericWorkload` on; the validation reports the same errors
//! as the server, in the same order. Composite pod groups (gate `CompositePodGroup`, alpha and off by default) are in
//! v1alpha3 only; templates of them are dropped.
//!
//! A server calls, in this order: [`set_pod_group_defaults`], [`drop_disabled_pod_group`] or
//! [`drop_disabled_workload`], and the validation. Nothing here may depend on our own kinds, or on what the engine
//! does.

pub mod composite_pod_group;
pub mod gates;
pub mod pod_group;
pub mod policy;
pub mod v1alpha1;
pub mod v1alpha2;
pub mod workload;

mod checks;
mod scheduling_group;
mod validate_pod_group;
mod validate_status;
mod validate_template;
mod validate_workload;
mod version;

pub use composite_pod_group::{
    CompositePodGroup, set_composite_pod_group_defaults, validate_composite_pod_group,
    validate_composite_pod_group_update,
};
pub use gates::{Gates, drop_disabled_pod_group, drop_disabled_workload, set_pod_group_defaults};
pub use pod_group::PodGroup;
pub use scheduling_group::validate_scheduling_group;
pub use validate_pod_group::{validate_pod_group, validate_pod_group_update};
pub use validate_status::validate_pod_group_status_update;
pub use validate_workload::{validate_workload, validate_workload_update};
pub use version::NativeVersion;
pub use workload::Workload;

/// The API group.
pub const GROUP: &str = "scheduling.k8s.io";
/// The version.
pub const VERSION: &str = "v1beta1";
/// The other version of 1.37, with the same format.
pub const V1ALPHA3: &str = "v1alpha3";
