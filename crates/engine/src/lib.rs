//! Muster's scheduling engine, which places groups of pods as a whole or not at all.
//!
//! The engine is a pure state machine. [`Engine::observe`] updates its state of the cluster, [`Engine::decide`] takes
//! one decision and returns commands, [`Engine::next_wakeup`] is the time of the next timer. The outcomes of commands
//! are reported as observations. There is no clock, no randomness, no I/O and no threads, so the same observations
//! always give the same commands, byte for byte (see [`record`]).
//!
//! ```
//! use std::sync::Arc;
//! use muster_engine::{Command, Config, Engine, Observation};
//! use muster_engine::model::class::ClassSpec;
//! use muster_engine::model::group::{GroupKey, GroupSpec};
//! use muster_engine::model::node::NodeSpec;
//! use muster_engine::model::pod::{Membership, PodName, PodSpec};
//!
//! let mut engine = Engine::new(Config::default())?;
//! let offer = [("cpu".to_owned(), 2000), ("pods".to_owned(), 110)];
//! engine.observe(0, Observation::NodeSeen(NodeSpec { name: "n0".into(), allocatable: offer.into(),
//! ..NodeSpec::default() }))?;
//!
//! let key = GroupKey { namespace: "ml".into(), name: "train".into(), ..GroupKey::default() };
//! engine.observe(0, Observation::GroupSeen(GroupSpec::gang(key.clone(), 2)))?;
//! let class = Arc::new(ClassSpec { requests: [("cpu".to_owned(), 1000)].into(), ..ClassSpec::default() });
//! for number in 0..2 {
//!     assert!(engine.decide(0).is_empty(), "half a gang is not started");
//!     let id = PodName { namespace: "ml".into(), name: format!("train-{number}"), uid: number.to_string() };
//!     engine.observe(0, Observation::PodSeen(PodSpec {
//!         id: Arc::new(id),
//!         class: class.clone(),
//!         membership: Some(Membership::of(key.clone())),
//!         ours: true,
//!         ..PodSpec::default()
//!     }))?;
//! }
//! let commands = engine.decide(0);
//! assert!(matches!(commands[..], [Command::Bind { .. }, Command::Bind { .. }]));
//! # Ok::<(), muster_engine::ValidationError>(())
//! ```

mod cluster;
mod command;
mod config;
pub mod diagnosis;
mod filter;
pub mod invariants;
pub mod model;
mod observation;
mod placement;
pub mod preemption;
mod queue;
pub mod record;
mod scheduler;
mod score;
pub mod status;
mod validate;
mod validation_error;
mod view;

pub use command::{Command, MemberVerdict, Report};
pub use config::{Config, PreemptionRules, Profile, Scoring, ShapePoint, Strategy, Weighted};
pub use diagnosis::Diagnosis;
pub use model::plugin::{FilterName, ScoreName};
pub use model::subject::Subject;
pub use observation::{BindOutcome, DeleteOutcome, Observation};
pub use scheduler::{
    Engine, GroupState, NodeEvaluation, NodeVerdict, Pending, PendingCount, PreemptionGap, PreemptionResult,
    VolumeEvent,
};
pub use validation_error::ValidationError;
pub use view::{GroupView, NodeView, PodView};
