//! Shared by the playground's controllers and kubelets: a watch, background tasks, conditions, events.
//!
//! All of it uses only `kube::Client`, and so works against a real cluster too.
//! Must not depend on the playground's API server or on any controller.

pub mod api_errors;
pub mod conditions;
pub mod recorder;
pub mod task;
pub mod untyped;
pub mod watch;
