//! The settings of the scheduler as the code uses them. The file and the flags are parsed by `config`.

use std::time::Duration;

use crate::config::Eviction;
use muster_api::owners::GangedOwners;
use muster_engine::model::inter_pod::Spread;
use muster_engine::model::labels::{NodeTerm, PreferredTerm};

use crate::gates::FeatureGates;
use crate::instruments::Instruments;

/// The settings of a scheduler.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The profiles: as many as the engine has.
    pub profiles: Vec<Profile>,
    /// The feature gates.
    pub gates: FeatureGates,
    /// The configuration of the engine.
    pub engine: muster_engine::Config,
    /// How pods are evicted.
    pub eviction: Eviction,
    /// Taints that are removed from a new node when it is ready for its first pods.
    pub startup_taints: Vec<TaintKey>,
    /// The owner kinds whose pods may be gangs without naming a group: such a pod waits until it names its group.
    pub ganged: GangedOwners,
    /// The identity of this process in events and leases; must be unique.
    pub identity: String,
    /// How many binds and deletions may be in flight at once.
    pub binds_in_flight_max: usize,
    /// How many other writes may be in flight at once.
    pub writes_in_flight_max: usize,
    /// The timeout of a single request.
    pub request_timeout: Duration,
    /// How long a stop may wait for the writes in flight.
    pub stop_timeout: Duration,
    /// Whether the engine's invariants are checked after every step: for tests, since it is slow.
    pub check_invariants: bool,
    /// Metrics, health and the decision record.
    pub instruments: Instruments,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            profiles: vec![Profile::default()],
            gates: FeatureGates::default(),
            engine: muster_engine::Config::default(),
            eviction: Eviction::default(),
            startup_taints: TaintKey::well_known(),
            ganged: GangedOwners::default(),
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

impl Settings {
    /// The main scheduler name: the first of the first profile.
    pub fn name(&self) -> &str {
        let first = self.profiles.first().and_then(|profile| profile.scheduler_names.first());
        first.map_or(muster_api::keys::SCHEDULER_NAME, String::as_str)
    }

    /// The first name of each profile.
    pub(crate) fn profile_names(&self) -> Vec<String> {
        let first = |profile: &Profile| profile.scheduler_names.first().cloned().unwrap_or_default();
        self.profiles.iter().map(first).collect()
    }

    /// All values of `spec.schedulerName` that Muster schedules.
    pub fn scheduler_names(&self) -> impl Iterator<Item = &str> {
        self.profiles.iter().flat_map(|profile| &profile.scheduler_names).map(String::as_str)
    }
}

/// The key of a taint, or a prefix if it ends with `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintKey(pub String);

impl TaintKey {
    /// The startup taints of Kubernetes, Cluster Autoscaler and Karpenter.
    pub fn well_known() -> Vec<Self> {
        let keys = [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/network-unavailable",
            "node.cloudprovider.kubernetes.io/uninitialized",
            "startup-taint.cluster-autoscaler.kubernetes.io/*",
            "ignore-taint.cluster-autoscaler.kubernetes.io/*",
            "karpenter.sh/unregistered",
        ];
        keys.map(|key| Self(key.to_owned())).to_vec()
    }

    /// Whether a taint has this key.
    pub(crate) fn matches(&self, key: &str) -> bool {
        self.0.strip_suffix('*').map_or(self.0 == key, |start| key.starts_with(start))
    }
}

/// Whether any profile has default topology spread constraints.
pub(crate) fn spreads_by_default(profiles: &[Profile]) -> bool {
    profiles.iter().any(|profile| !profile.spread_defaults.is_empty())
}

/// A scheduling profile: its scheduler names, and what it adds to the specs of its pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The values of `spec.schedulerName`.
    pub scheduler_names: Vec<String>,
    /// The default topology spread constraints; the selector is that of the pod's service or controller.
    pub spread_defaults: Spread,
    /// Node selector terms of which a node must match one, in addition to the pod's own.
    pub enforced_terms: Option<Vec<NodeTerm>>,
    /// Preferred node selector terms in addition to the pod's own.
    pub preferred_terms: Vec<PreferredTerm>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            scheduler_names: vec![muster_api::keys::SCHEDULER_NAME.to_owned()],
            spread_defaults: crate::intake::spread::system_defaults(),
            enforced_terms: None,
            preferred_terms: Vec::new(),
        }
    }
}
