//! Where a scheduler tells what it does: numbers, signs of life, and the record of its decisions.

use crate::health::Health;
use crate::metrics::Metrics;
use crate::record::Record;

/// Cheap to clone; clones share everything. The default is seen by nobody.
#[derive(Clone, Debug, Default)]
pub struct Instruments {
    /// Numbers for Prometheus.
    pub metrics: Metrics,
    /// Signs of life for probes.
    pub health: Health,
    /// The record of decisions, if there is one.
    pub record: Option<Record>,
}
