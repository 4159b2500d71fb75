//! A real Kubernetes control plane for tests and benchmarks, as a value: etcd, kube-apiserver, kube-controller-manager
//! and, if asked for, kube-scheduler, on loopback, with empty data. Dropping it stops everything and removes its folder.
//!
//! `tools/controlplane/build` makes the programs, one binary for each version of Kubernetes; this crate finds and drives
//! it. It must not know Kubernetes' API: whoever wants to talk to the plane reads its kubeconfig.

mod binary;
mod plane;

pub use self::binary::{Binary, Version, required};
pub use self::plane::{Plane, PlaneError, Profile};
