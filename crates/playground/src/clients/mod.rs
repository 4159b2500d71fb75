//! Plain clients of the API: simulated kubelets, and the small part of a control plane that nodes and pods need.
//!
//! [`Cluster`] starts all of them. One by one:
//!
//! | client | without it |
//! |---|---|
//! | [`Kubelets`] | there are no nodes, and bound pods stay pending |
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
//! How a pod's containers behave is written in [`annotations`]. All of them use what every client has, `kube::Client`
//! and its watches, and so run against a real cluster too, which has its own of all but the kubelets.
//! They must not know the inside of the server.

pub mod annotations;
pub mod budgets;
pub mod cluster;
mod conditions;
pub mod deployment;
mod digest;
pub mod job;
pub mod jobset;
pub mod kubelet;
pub mod leader_worker;
mod mirror;
pub mod node_lifecycle;
mod owners;
mod pod_card;
pub mod pod_gc;
mod reconcile;
mod recorder;
pub mod replicas;
mod revisions;
mod seen;
mod set_pods;
pub mod shape;
pub mod stateful;
mod task;
mod unseen;

pub use budgets::Budgets;
pub use cluster::Cluster;
pub use deployment::Deployments;
pub use job::Jobs;
pub use jobset::JobSets;
pub use kubelet::{KubeletSettings, Kubelets, UnknownNode};
pub use leader_worker::LeaderWorkerSets;
pub use node_lifecycle::{NodeLifecycle, NodeLifecycleSettings};
pub use pod_gc::{PodGarbage, PodGarbageSettings};
pub use replicas::Replicas;
pub use shape::{Domain, NodeShape, Pool, PoolTaint, Shape, ShapeError};
pub use stateful::StatefulSets;
