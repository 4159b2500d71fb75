//! Preemption, measured: what a plan costs in time, and whom it hurts beside the fewest that can be proven.
//!
//! `shapes` says what is asked, `cluster` builds it from observations, `measure` asks the engine the way its host does,
//! `report` prints it and holds it against the targets. It must not look into the engine: only commands count.

mod cluster;
mod measure;
mod report;
mod shapes;

pub(crate) use measure::measure;
pub(crate) use report::{Row, print_head, print_row, targets};
pub(crate) use shapes::all;
