//! The controllers of a small cluster, as plain API clients: the parts of kube-controller-manager, the JobSet manager,
//! the LeaderWorkerSet manager and CSI drivers that pods and nodes need.
//!
//! [`Controllers`] starts all of them:
//!
//! | controller | without it |
//! |---|---|
//! | [`NodeLifecycle`] | new nodes keep their not-ready taint, lost ones are not noticed |
//! | [`Budgets`] | every disruption budget refuses evictions, since its pods are not counted |
//! | [`Replicas`] | replica sets have no pods |
//! | [`Jobs`] | jobs have no pods |
//! | [`JobSets`] | job sets have no jobs |
//! | [`PodGc`] | pods of deleted nodes stay forever |
//! | [`Deployments`] | deployments have no replica sets |
//! | [`StatefulSets`] | stateful sets have no pods |
//! | [`LeaderWorkerSets`] | the kind is not installed, and its groups have no stateful sets |
//! | [`Volumes`] | claims stay pending, ephemeral ones are not made, and no deleted claim or volume goes |
//! | [`StorageDrivers`] | no volumes are made, and none are attached |
//!
//! They use only `kube::Client` and its watches, and so run against a real cluster too.
//! Must not depend on the internals of the API server, the scheduler or the kubelets.

mod all;
pub mod budgets;
pub mod deployment;
mod digest;
mod expectations;
#[cfg(test)]
mod hanging_server;
pub mod job;
pub mod jobset;
pub mod leader_worker;
pub mod node_lifecycle;
mod owned_pods;
mod owners;
pub mod pod_gc;
mod pod_record;
mod reconcile;
pub mod replicas;
mod revisions;
pub mod stateful;
pub mod storage_drivers;
pub mod volumes;

use muster_playground_client::recorder;

pub use all::Controllers;
pub use budgets::Budgets;
pub use deployment::Deployments;
pub use job::Jobs;
pub use jobset::JobSets;
pub use leader_worker::LeaderWorkerSets;
pub use node_lifecycle::{NodeLifecycle, NodeLifecycleSettings};
pub use pod_gc::{PodGc, PodGcSettings};
pub use replicas::Replicas;
pub use stateful::StatefulSets;
pub use storage_drivers::StorageDrivers;
pub use volumes::{VolumeSettings, Volumes};
