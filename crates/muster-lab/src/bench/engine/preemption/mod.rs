//! The preemption benchmark: the time of a plan, and its victims compared with a proven lower bound.
//!
//! `shapes` defines the cases, `cluster` builds them from observations, `measure` runs the engine as its host does,
//! `report` prints the results and checks the targets. Must not depend on the engine's internals: only its commands
//! count.

mod cluster;
mod measure;
mod report;
mod shapes;

pub(crate) use measure::measure;
pub(crate) use report::{print_head, print_row, targets};
pub(crate) use shapes::all;
