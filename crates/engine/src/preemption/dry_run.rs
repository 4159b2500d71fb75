//! What-if evaluation: removes and restores victim units and checks whether the preemptor fits.

use super::victim_unit::VictimUnit;

/// A state from which victim units can be removed and restored.
pub(crate) trait DryRun {
    /// Removes a unit.
    fn remove(&mut self, unit: &VictimUnit);
    /// Restores a unit.
    fn restore(&mut self, unit: &VictimUnit);
    /// Whether the preemptor fits now.
    fn fits(&mut self) -> bool;
}
