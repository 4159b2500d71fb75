//! The cluster without some units, for pods that are not alike: whether they fit is found out by placing them.

use super::stage::Stage;
use super::unit::Unit;
use crate::cluster::trial::{Mark, Trial};
use crate::placement::cache::Cache;
use crate::placement::{self, Verdict, Want};

/// A trial that units are taken from.
pub(crate) struct Mixed<'m, 'c> {
    trial: &'m mut Trial<'c>,
    cache: &'m mut Cache,
    want: &'m Want,
    steps_max: u64,
    /// The trial as it was.
    start: Mark,
}

impl<'m, 'c> Mixed<'m, 'c> {
    pub(crate) fn new(trial: &'m mut Trial<'c>, cache: &'m mut Cache, want: &'m Want, steps_max: u64) -> Self {
        let start = trial.mark();
        Self { trial, cache, want, steps_max, start }
    }

    /// Puts everything back.
    pub(crate) fn give_back(&mut self) {
        self.trial.undo_to(self.start);
    }
}

impl Stage for Mixed<'_, '_> {
    fn remove(&mut self, unit: &Unit) {
        unit.leave(self.trial);
    }

    fn restore(&mut self, unit: &Unit) {
        unit.come_back(self.trial);
    }

    fn fits(&mut self) -> bool {
        let mark = self.trial.mark();
        let verdict = placement::place(self.trial, self.cache, self.want, self.steps_max);
        self.trial.undo_to(mark);
        verdict == Verdict::Placed
    }
}

impl Drop for Mixed<'_, '_> {
    fn drop(&mut self) {
        self.give_back();
    }
}
