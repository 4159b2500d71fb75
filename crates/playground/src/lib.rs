//! A playground and a test bench: a Kubernetes API server in the process, simulated nodes, controllers, and kubectl.
//!
//! Each of them is a crate of its own; this one puts them together and holds the tests of the whole. Who needs one part
//! should depend on that part. What differs from kube-apiserver is listed in COMPATIBILITY.md.
//! It must not know the engine: its mistakes and ours must not agree.

pub mod clients;
pub mod cluster;

use std::sync::Arc;

pub use muster_determinism::{clock, random};
pub use muster_playground_schema as schema;
pub use muster_playground_schema::selectors;
pub use muster_playground_server::{
    Admission, AdmissionOperation, Limits, NativeGroups, Presentation, Server, Settings, StateError, faults,
};

/// What a server needs to serve kubectl and other typed Go clients: tables, protobuf and OpenAPI.
///
/// `Server::start(settings).with_presentation(kubectl())`
pub fn kubectl() -> Arc<dyn Presentation> {
    Arc::new(muster_playground_kubectl::Kubectl)
}
