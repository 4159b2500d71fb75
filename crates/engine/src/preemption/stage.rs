//! A place to try things out: units are taken away and put back, and whoever asks has room or not.

use super::unit::Unit;

/// Somewhere that units can be taken from and put back to.
pub(crate) trait Stage {
    /// Takes a unit away.
    fn remove(&mut self, unit: &Unit);
    /// Puts it back.
    fn restore(&mut self, unit: &Unit);
    /// Whether whoever asks has room now.
    fn fits(&mut self) -> bool;
}
