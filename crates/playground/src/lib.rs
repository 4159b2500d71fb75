//! A Kubernetes API server in the process, and simulated nodes that are plain clients of it.
//!
//! It is a playground and a test bench; what differs from kube-apiserver is listed in COMPATIBILITY.md.
//! It must not know the engine: its mistakes and ours must not agree.

pub mod schema;
pub mod selectors;
