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
//!
//! How a pod's containers behave is written in [`annotations`]. All of them use what every client has, `kube::Client`
//! and its watches, and so run against a real cluster too, which has its own of the last three.
//! They must not know the inside of the server.

pub mod annotations;
pub mod budgets;
pub mod cluster;
mod conditions;
mod digest;
pub mod job;
pub mod jobset;
pub mod kubelet;
mod mirror;
pub mod node_lifecycle;
mod owners;
mod pod_card;
pub mod pod_gc;
mod reconcile;
mod recorder;
pub mod replicas;
mod seen;
pub mod shape;
mod task;
mod unseen;

pub use budgets::Budgets;
pub use cluster::Cluster;
pub use job::Jobs;
pub use jobset::JobSets;
pub use kubelet::{KubeletSettings, Kubelets, UnknownNode};
pub use node_lifecycle::{NodeLifecycle, NodeLifecycleSettings};
pub use pod_gc::{PodGarbage, PodGarbageSettings};
pub use replicas::Replicas;
pub use shape::{Domain, NodeShape, Pool, PoolTaint, Shape, ShapeError};
