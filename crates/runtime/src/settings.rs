//! What the scheduler may be told, in the form that the code uses. The file and the flags are read by `config`.

use std::time::Duration;

use crate::config::Eviction;
use muster_api::makers::GangedOwners;
use muster_engine::model::company::Spread;
use muster_engine::model::labels::{NodeTerm, PreferredTerm};

use crate::gates::FeatureGates;
use crate::instruments::Instruments;

/// How a scheduler works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose pods are ours, and what they are judged by: as many as the engine has profiles.
    pub profiles: Vec<Profile>,
    /// Which features are on.
    pub gates: FeatureGates,
    /// How decisions are made.
    pub engine: muster_engine::Config,
    /// How pods are evicted.
    pub eviction: Eviction,
    /// Taints that are taken off a new node when it is ready for its first pods.
    pub startup_taints: Vec<TaintKey>,
    /// Of which owners' pods some are gangs even if they do not say so: such a pod waits until it names its group.
    pub ganged: GangedOwners,
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
            profiles: vec![Profile::default()],
            gates: FeatureGates::default(),
            engine: muster_engine::Config::default(),
            eviction: Eviction::default(),
            startup_taints: TaintKey::usual(),
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
    /// The name that we go by: the first of all.
    pub fn name(&self) -> &str {
        let first = self.profiles.first().and_then(|profile| profile.scheduler_names.first());
        first.map_or(muster_api::keys::SCHEDULER_NAME, String::as_str)
    }

    /// The first name of each profile.
    pub(crate) fn profile_names(&self) -> Vec<String> {
        let first = |profile: &Profile| profile.scheduler_names.first().cloned().unwrap_or_default();
        self.profiles.iter().map(first).collect()
    }

    /// Every name in `spec.schedulerName` whose pods are ours.
    pub fn scheduler_names(&self) -> impl Iterator<Item = &str> {
        self.profiles.iter().flat_map(|profile| &profile.scheduler_names).map(String::as_str)
    }
}

/// The key of a taint, or the start of one if it ends with `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintKey(pub String);

impl TaintKey {
    /// Those of Kubernetes, Cluster Autoscaler and Karpenter.
    pub fn usual() -> Vec<Self> {
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

    /// Whether a taint with this key is meant.
    pub(crate) fn matches(&self, key: &str) -> bool {
        self.0.strip_suffix('*').map_or(self.0 == key, |start| key.starts_with(start))
    }
}

/// Whether pods of any profile are spread that do not say how.
pub(crate) fn spreads_by_default(profiles: &[Profile]) -> bool {
    profiles.iter().any(|profile| !profile.spread_defaults.is_empty())
}

/// Pods with certain names in `spec.schedulerName`, and what is added to what they say.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Pods with one of these in `spec.schedulerName` are meant.
    pub scheduler_names: Vec<String>,
    /// How they are spread if they do not say, among those that their service or set selects.
    pub spread_defaults: Spread,
    /// Terms of which a node must meet one, whatever the pod says.
    pub enforced_terms: Option<Vec<NodeTerm>>,
    /// Terms that are liked beside those of the pod.
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
