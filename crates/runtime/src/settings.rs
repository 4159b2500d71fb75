//! What the scheduler may be told, in the form that the code uses. The file and the flags are read by `config`.

use std::time::Duration;

use crate::config::Eviction;
use muster_engine::model::company::Spread;

use crate::gates::FeatureGates;
use crate::instruments::Instruments;

/// How a scheduler works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Pods with one of these in `spec.schedulerName` are ours.
    pub scheduler_names: Vec<String>,
    /// Which features are on.
    pub gates: FeatureGates,
    /// How pods are spread that do not say, among those that their service or set selects.
    pub spread_defaults: Spread,
    /// How decisions are made.
    pub engine: muster_engine::Config,
    /// How pods are evicted.
    pub eviction: Eviction,
    /// Who we are, in events and leases: unique to this process.
    pub identity: String,
    /// How many binds and deletes may be on their way at once.
    pub binds_in_flight_max: usize,
    /// How many other writes may be on their way at once.
    pub writes_in_flight_max: usize,
    /// How long a single request may take.
    pub request_timeout: Duration,
    /// How long the writes that are on their way may take when the scheduler is told to stop.
    pub stop_timeout: Duration,
    /// Whether the engine's invariants are checked after every step: for tests, since it is slow.
    pub check_invariants: bool,
    /// Where it tells what it does.
    pub instruments: Instruments,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheduler_names: vec![muster_api::keys::SCHEDULER_NAME.to_owned()],
            gates: FeatureGates::default(),
            spread_defaults: crate::intake::spread::system_defaults(),
            engine: muster_engine::Config::default(),
            eviction: Eviction::default(),
            identity: "muster".to_owned(),
            binds_in_flight_max: 64,
            writes_in_flight_max: 16,
            request_timeout: Duration::from_secs(4),
            stop_timeout: Duration::from_secs(5),
            check_invariants: false,
            instruments: Instruments::default(),
        }
    }
}
