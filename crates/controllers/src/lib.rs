//! Controllers and an admission webhook that turn Jobs, JobSets and LeaderWorkerSets into gangs, without changes to
//! those projects.
//!
//! `Controllers` watches the cluster and writes group objects, and group references for pods that have none.
//! `admission` is the part of the webhook that decides: it adds group references and priorities to objects at creation;
//! `webhook` serves it. `providers` has one file for each supported scheduler.
//!
//! Must not depend on the engine or on how groups are placed: it writes only what users could write themselves.

mod actuator;
pub mod admission;
mod controllers;
mod disruption;
mod group_annotations;
mod owner_condition;
mod priority_classes;
pub mod providers;
mod read;
mod reconcile;
mod refusals;
mod settings;
mod state;
pub mod webhook;
mod work_queue;
mod write;

pub use actuator::Deadline;
pub use controllers::Controllers;
pub use muster_reflector::WatchAges;
pub use priority_classes::PriorityClasses;
pub use reconcile::Plan;
pub use settings::{NotServed, Settings};
pub use write::{ConditionChange, ObjectEvent, Target, Write};
