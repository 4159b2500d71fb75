//! A Kubernetes API server in the process, and simulated nodes that are plain clients of it.
//!
//! It is a playground and a test bench; what differs from kube-apiserver is listed in COMPATIBILITY.md.
//! It must not know the engine: its mistakes and ours must not agree.

pub mod clients;
pub mod cluster;
pub mod faults;
mod housekeeping;
mod kinds;
mod protobuf;
mod server;
mod tables;

pub use kinds::NativeGroups;
pub use muster_determinism::{clock, random};
pub use muster_playground_schema as schema;
pub use muster_playground_schema::selectors;
use muster_playground_store as store;
pub use server::{Admission, AdmissionOperation, Limits, Server, Settings};
pub use store::StateError;
