//! Plain API clients: simulated kubelets, and the controllers that nodes and pods need.
//!
//! [`Cluster`] starts all of them. Without [`Kubelets`] there are no nodes, and bound pods stay pending;
//! [`muster_playground_controllers`] lists what is missing without each controller.
//!
//! [`annotations`] set how a pod's containers behave. All of them use only `kube::Client` and its watches, and so run
//! against a real cluster too, which has its own of all but the kubelets.

pub use muster_playground_controllers::{
    Budgets, Deployments, JobSets, Jobs, LeaderWorkerSets, NodeLifecycle, NodeLifecycleSettings, PodGc, PodGcSettings,
    Replicas, StatefulSets, StorageDrivers, VolumeSettings, Volumes, jobset, leader_worker, storage_drivers,
};
pub use muster_playground_kubelet::{
    Domain, KubeletSettings, Kubelets, NodeShape, Pool, PoolCapacity, PoolDriver, PoolTaint, Shape, ShapeError,
    UnknownNode, annotations,
};

pub use crate::cluster::Cluster;
