//! Kubernetes objects as received from the API server, reduced to the fields that a scheduler needs.
//!
//! Every kind is an [`Object`] with its own spec and status, so that a Kubernetes client can list and watch it.
//! Unlisted fields are skipped while reading: a pod of 50 KB in memory shrinks to a few KB. So these types are for
//! reading, creating and patching; never send one back with a `PUT` or an apply, since the skipped fields would be
//! lost.
//!
//! Field types are trusted where the API server has checked them (metadata, and the built-in kinds). Numbers and
//! amounts that users write stay JSON values until they are validated, so that an invalid one is an error about its
//! field and not a failure to read the object.
//!
//! Small kinds (`PriorityClass`, `Lease`) are taken from `k8s-openapi`. Nothing here may depend on a rule: validation
//! is in the modules that define the meaning of a field.

pub mod condition;
pub mod container;
pub mod disruption_budget;
pub mod job;
pub mod job_set;
pub mod leader_worker_set;
pub mod node;
pub mod object;
pub mod pod;
pub mod pod_affinity;
pub mod pod_group;
pub mod pod_status;
pub mod present;
pub mod template;
pub mod topology_spread;
pub mod volume;
pub mod workload;

mod metadata;

pub use disruption_budget::PodDisruptionBudget;
pub use job::Job;
pub use job_set::JobSet;
pub use leader_worker_set::LeaderWorkerSet;
pub use node::Node;
pub use object::{Kind, Object};
pub use pod::Pod;
pub use pod_group::PodGroup;
pub use workload::Workload;
