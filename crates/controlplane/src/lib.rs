//! A real Kubernetes control plane for tests and benchmarks, as a value: etcd, kube-apiserver, kube-controller-manager
//! and optionally kube-scheduler, on loopback, with empty data. Dropping it stops everything and removes its folder.
//!
//! `tools/controlplane/build` builds the programs, one binary for each version of Kubernetes; this crate finds and
//! drives it. Must not depend on the Kubernetes API: clients of the plane read its kubeconfig.

mod binary;
mod plane;

pub use self::binary::{Binary, Version, required};
pub use self::plane::{Plane, PlaneError, Profile};
