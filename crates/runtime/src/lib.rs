//! The hands of Muster: objects of the API become observations, the engine's commands become requests.
//!
//! `Scheduler` is the whole of it on one client. It must not know how decisions are made: it hands observations to the
//! engine, carries out its commands and reports their outcomes.

mod clock;
pub mod config;
mod dialect;
mod discovery;
mod fence;
mod gates;
mod hands;
mod health;
mod http;
mod instruments;
mod intake;
#[cfg(test)]
mod kube_scheduler;
mod lease;
mod metrics;
mod mind;
mod orders;
mod record;
mod scheduler;
mod scribe;
mod settings;
mod text;
mod watch;

pub use clock::Clock;
pub use discovery::native_version;
pub use fence::{Fence, FenceKeeper};
pub use gates::{FeatureGates, GateError};
pub use health::Health;
pub use http::{router, serve};
pub use instruments::Instruments;
pub use lease::{End, Leadership, LeaseError, LeaseSettings};
pub use metrics::{AttemptResult, Entity, Metrics, Queue};
pub use record::{Record, RecordError};
pub use scheduler::{Scheduler, StartError};
pub use settings::Settings;
