//! Plain clients of the API: simulated kubelets, and the small part of a control plane that nodes and pods need.
//!
//! They use what every client has, `kube::Client` and its watches, and so run against a real cluster too.
//! They must not know the inside of the server.

pub mod budgets;
mod conditions;
pub mod kubelet;
mod mirror;
pub mod node_lifecycle;
mod reconcile;
pub mod replicas;
mod seen;
pub mod shape;
mod task;

pub use budgets::Budgets;
pub use kubelet::{KubeletSettings, Kubelets, UnknownNode};
pub use node_lifecycle::{NodeLifecycle, NodeLifecycleSettings};
pub use replicas::Replicas;
pub use shape::{NodeShape, Shape, ShapeError};
