//! Dry run for groups of different pods: whether they fit is decided by placing them.

use super::dry_run::DryRun;
use super::victim_unit::VictimUnit;
use crate::cluster::transaction::{Savepoint, Transaction};
use crate::placement::cache::Cache;
use crate::placement::{self, PlacementRequest, Verdict};

/// A transaction from which victim units are removed.
pub(crate) struct Mixed<'m, 'c> {
    transaction: &'m mut Transaction<'c>,
    cache: &'m mut Cache,
    request: &'m PlacementRequest,
    steps_max: u64,
    /// The state to restore.
    start: Savepoint,
}

impl<'m, 'c> Mixed<'m, 'c> {
    pub(crate) fn new(
        transaction: &'m mut Transaction<'c>,
        cache: &'m mut Cache,
        request: &'m PlacementRequest,
        steps_max: u64,
    ) -> Self {
        let start = transaction.savepoint();
        Self { transaction, cache, request, steps_max, start }
    }

    /// Restores everything.
    pub(crate) fn restore_all(&mut self) {
        self.transaction.rollback_to(self.start);
    }
}

impl DryRun for Mixed<'_, '_> {
    fn remove(&mut self, unit: &VictimUnit) {
        unit.remove_from(self.transaction);
    }

    fn restore(&mut self, unit: &VictimUnit) {
        unit.restore_to(self.transaction);
    }

    fn fits(&mut self) -> bool {
        let savepoint = self.transaction.savepoint();
        let verdict = placement::place(self.transaction, self.cache, self.request, self.steps_max);
        self.transaction.rollback_to(savepoint);
        verdict == Verdict::Placed
    }
}

impl Drop for Mixed<'_, '_> {
    fn drop(&mut self) {
        self.restore_all();
    }
}
