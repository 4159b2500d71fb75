//! A Kubernetes API server in the process: a `kube::Client` calls it as a function, and others over sockets.
//!
//! A request is one step on one state under one lock. `kinds` are the rules of objects and know no requests; `server`
//! has the verbs, watches, admission and discovery, which every client asks for and so is here; `housekeeping` is what a
//! cluster does after a write; `faults` is what a network does before one.
//!
//! It answers in JSON. What only kubectl and other typed Go clients ask for (tables, protobuf, OpenAPI) is a
//! [`Presentation`] that is handed in from above; without one such a request is answered as by a server that does not
//! know the media type or the path. What differs from kube-apiserver is listed in crates/playground/COMPATIBILITY.md.
//!
//! It must not know its clients, and not the engine: its mistakes and ours must not agree.

pub mod faults;
mod housekeeping;
mod kinds;
mod server;

pub use kinds::{Kind, NativeGroups, PrinterColumn};
pub use muster_playground_store::StateError;
pub use server::{
    Admission, AdmissionOperation, Document, Include, Limits, List, OPENAPI_V2, Presentation, ProtobufError, Server,
    Settings, TableForm, partial,
};
