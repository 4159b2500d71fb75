//! The controllers of a small cluster, as plain clients of the API: what kube-controller-manager, the JobSet manager and
//! the LeaderWorkerSet manager do, as far as pods and nodes need it.
//!
//! [`Controllers`] starts all of them. One by one:
//!
//! | controller | without it |
//! |---|---|
//! | [`NodeLifecycle`] | new nodes keep their not-ready taint, lost ones are not noticed |
//! | [`Budgets`] | every disruption budget refuses evictions, since nobody counts its pods |
//! | [`Replicas`] | replica sets have no pods |
//! | [`Jobs`] | jobs have no pods |
//! | [`JobSets`] | job sets have no jobs |
//! | [`PodGarbage`] | pods of nodes that are gone stay for ever |
//! | [`Deployments`] | deployments have no replica sets |
//! | [`StatefulSets`] | stateful sets have no pods |
//! | [`LeaderWorkerSets`] | there is no such kind, and its groups have no stateful sets |
//!
//! They use `kube::Client` and its watches, and so run against a real cluster too.
//! They must not know the inside of the API server, nor who places pods and who runs them.

mod all;
pub mod budgets;
pub mod deployment;
mod digest;
pub mod job;
pub mod jobset;
pub mod leader_worker;
pub mod node_lifecycle;
mod owners;
mod pod_card;
pub mod pod_gc;
mod reconcile;
mod recorder;
pub mod replicas;
mod revisions;
mod set_pods;
#[cfg(test)]
mod silent;
pub mod stateful;
mod unseen;

pub use all::Controllers;
pub use budgets::Budgets;
pub use deployment::Deployments;
pub use job::Jobs;
pub use jobset::JobSets;
pub use leader_worker::LeaderWorkerSets;
pub use node_lifecycle::{NodeLifecycle, NodeLifecycleSettings};
pub use pod_gc::{PodGarbage, PodGarbageSettings};
pub use replicas::Replicas;
pub use stateful::StatefulSets;
