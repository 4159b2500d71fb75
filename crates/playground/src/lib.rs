//! A Kubernetes API server in the process, and simulated nodes that are plain clients of it.
//!
//! It is a playground and a test bench; what differs from kube-apiserver is listed in COMPATIBILITY.md.
//! It must not know the engine: its mistakes and ours must not agree.

pub mod clients;
pub mod clock;
pub mod faults;
mod housekeeping;
mod kinds;
mod protobuf;
pub mod random;
pub mod schema;
pub mod selectors;
mod server;
mod store;
mod tables;

pub use kinds::NativeGroups;
pub use server::{Admission, AdmissionOperation, Limits, Server, Settings};
pub use store::StateError;
