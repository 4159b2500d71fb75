//! The observability of a scheduler: metrics, health, and the record of its decisions.

use crate::health::Health;
use crate::metrics::Metrics;
use crate::record::Record;

/// Cheap to clone; clones share everything. The default is not exposed anywhere.
#[derive(Clone, Debug, Default)]
pub struct Instruments {
    /// Metrics for Prometheus.
    pub metrics: Metrics,
    /// The state that probes read.
    pub health: Health,
    /// The record of decisions, if there is one.
    pub record: Option<Record>,
}
