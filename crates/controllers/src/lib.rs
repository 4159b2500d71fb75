//! Job, JobSet and LeaderWorkerSet become gangs: from outside, without a change to those projects.
//!
//! `Controllers` is the part that watches and writes: group objects, and references of pods that have none. `admission`
//! is the pure part of the webhook, which gives references to what is being made; `webhook` serves it. `providers` has
//! the words of other schedulers.
//!
//! It must not know the engine, nor how groups are placed: it writes what users could write themselves.

pub mod admission;
mod controllers;
mod hands;
mod mirror;
mod plans;
pub mod providers;
mod queue;
mod read;
mod settings;
pub mod webhook;
mod world;
mod write;

pub use controllers::Controllers;
pub use hands::Deadline;
pub use plans::Plan;
pub use settings::Settings;
pub use write::{Target, Word, Write};
