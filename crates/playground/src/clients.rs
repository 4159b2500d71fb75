//! Plain clients of the API: simulated kubelets, and the small part of a control plane that nodes and pods need.
//!
//! [`Cluster`] starts all of them. Without [`Kubelets`] there are no nodes, and bound pods stay pending; what is missing
//! without each of the controllers is told in [`muster_playground_controllers`].
//!
//! How a pod's containers behave is written in [`annotations`]. All of them use what every client has, `kube::Client`
//! and its watches, and so run against a real cluster too, which has its own of all but the kubelets.

pub use muster_playground_controllers::{
    Budgets, Deployments, JobSets, Jobs, LeaderWorkerSets, NodeLifecycle, NodeLifecycleSettings, PodGarbage,
    PodGarbageSettings, Replicas, StatefulSets, jobset, leader_worker,
};
pub use muster_playground_kubelet::{
    Domain, KubeletSettings, Kubelets, NodeShape, Pool, PoolTaint, Shape, ShapeError, UnknownNode, annotations,
};

pub use crate::cluster::Cluster;
