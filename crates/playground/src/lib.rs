//! A playground and test bench: an in-process Kubernetes API server, simulated nodes, controllers, and kubectl support.
//!
//! Each of them is a crate of its own; this one combines them and has the tests of the whole. A crate that needs one
//! part should depend on that part. COMPATIBILITY.md lists the differences from kube-apiserver.
//! Must not depend on the engine: a shared bug would go unnoticed.

pub mod cluster;
pub mod components;

use std::sync::Arc;

pub use muster_clock as clock;
pub use muster_determinism::random;
pub use muster_playground_schema as schema;
pub use muster_playground_schema::selectors;
pub use muster_playground_server::{
    Admission, AdmissionOperation, Limits, NativeGroups, Presentation, Server, Settings, StateError, faults,
};

/// The presentation that serves kubectl and other typed Go clients: tables, protobuf and OpenAPI.
///
/// `Server::start(settings).with_presentation(kubectl())`
pub fn kubectl() -> Arc<dyn Presentation> {
    Arc::new(muster_playground_kubectl::Kubectl)
}
