//! Counting of steps: what a decision costs, independent of the machine.

use std::cell::Cell;

/// A counter that is advanced where work is done, also by readers of the cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepCounter(Cell<u64>);

impl StepCounter {
    /// The steps so far.
    pub(crate) fn total(&self) -> u64 {
        self.0.get()
    }

    pub(crate) fn add(&self, steps: usize) {
        self.0.set(self.0.get().saturating_add(steps as u64));
    }
}
