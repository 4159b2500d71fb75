//! The hands of Muster: objects of the API become observations, the engine's commands become requests.
//!
//! `Scheduler` is the whole of it on one client. It must not know how decisions are made: it hands observations to the
//! engine, carries out its commands and reports their outcomes.

mod clock;
pub mod config;
mod fence;
mod gates;
mod health;
mod http;
mod instruments;
mod lease;
mod metrics;
mod record;
mod scheduler;
mod settings;

pub use clock::Clock;
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
