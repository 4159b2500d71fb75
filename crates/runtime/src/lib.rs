//! The runtime of Muster: translates API objects into observations and the engine's commands into API requests.
//!
//! `Scheduler` runs all of it on one client.
//! Must not depend on how decisions are made: it passes observations to the engine, executes its commands and reports
//! their outcomes.

mod actuator;
pub mod config;
mod dialect;
mod discovery;
mod eviction_queue;
mod fence;
mod gates;
mod health;
mod http;
mod instruments;
mod intake;
#[cfg(test)]
mod kube_scheduler;
mod lease;
mod metrics;
mod metrics_access;
mod record;
mod scheduler;
mod scheduling_loop;
mod secure_metrics;
mod settings;
mod start_stamp;
mod status_writer;
mod text;
mod watch;

pub use discovery::native_version;
pub use fence::{Fence, FenceKeeper};
pub use gates::{FeatureGates, GateError};
pub use health::Health;
pub use http::{router, serve};
pub use instruments::Instruments;
pub use lease::{End, Leadership, LeaseError, LeaseSettings};
pub use metrics::{AttemptResult, Entity, Metrics, Queue};
pub use muster_clock::Clock;
pub use muster_listener::ListenerThread;
pub use record::{Record, RecordError};
pub use scheduler::{Scheduler, StartError};
pub use secure_metrics::{SecureMetrics, SecureMetricsSettings};
pub use settings::Settings;
