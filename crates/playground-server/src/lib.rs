//! An in-process Kubernetes API server: a `kube::Client` calls it as a function, other clients over sockets.
//!
//! Each request is processed atomically on one state under one lock. `kinds` holds the strategies of kinds (decoding,
//! defaults, validation), independent of requests; `server` the verbs, watches, admission and discovery; `controllers`
//! what the control plane does after a write; `faults` injects faults between a client and a server.
//!
//! Responses are JSON. What only kubectl and other typed Go clients request (tables, protobuf, OpenAPI) is provided by
//! a [`Presentation`] from a crate above; without one such a request is answered as by a server that does not support
//! the media type or the path. Differences from kube-apiserver are listed in crates/playground/COMPATIBILITY.md.
//!
//! Must not depend on its clients, nor on the engine: a shared mistake would go unnoticed.

mod controllers;
pub mod faults;
mod kinds;
mod server;

pub use kinds::{Kind, NativeGroups, PrinterColumn};
pub use muster_playground_store::StateError;
pub use server::{
    Admission, AdmissionOperation, Document, Include, Limits, List, OPENAPI_V2, Presentation, ProtobufError, Server,
    Settings, TableForm, partial,
};
