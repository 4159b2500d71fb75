//! Pod classes: everything about a pod that matters to where it may go.
//!
//! Ten thousand identical pods share one class, and work is done per class wherever a class will do.
//! Priority is not part of it: a group's priority overrides its members', so it belongs to whoever asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::company::Company;
use super::labels::{Labels, NodeTerm, PreferredTerm};
use super::port::HostPort;
use super::resources::Requests;
use super::taint::Toleration;
use crate::cluster::neighbours::{Own, Rules, TagSet};
use crate::filter::{FilterName, Skipped};

/// A class as it is observed: names are text, amounts are base units.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassSpec {
    /// What a pod takes from its node: milli-CPUs, bytes, whole devices.
    pub requests: BTreeMap<String, i64>,
    /// The CPU request that scores count: a container that asks for none counts as 100 milli-CPUs.
    pub scoring_cpu_milli: i64,
    /// The memory request that scores count: a container that asks for none counts as 200 MiB.
    pub scoring_memory_bytes: i64,
    /// What the pod counts for in the scores of others once it is on a node, where that differs: with
    /// requests for the whole pod, kube-scheduler counts the two by different rules.
    pub placed_scoring: Option<ScoringRequest>,
    /// The one node that the pod insists on.
    pub node_name: Option<String>,
    /// Labels that the node must have.
    pub node_selector: Labels,
    /// Terms of which the node must meet one; `None` is no demand, an empty list can never be met.
    pub required_terms: Option<Vec<NodeTerm>>,
    /// Terms that would be welcome.
    pub preferred_terms: Vec<PreferredTerm>,
    /// Taints that the pod puts up with.
    pub tolerations: Vec<Toleration>,
    /// Ports that it takes on its host.
    pub host_ports: Vec<HostPort>,
    /// The number of the profile that it is judged by.
    #[serde(skip_serializing_if = "is_first")]
    pub profile: u16,
    /// Terms of which the node must meet one, by the word of whoever runs the scheduler; `None` is no demand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforced_terms: Option<Vec<NodeTerm>>,
    /// Where its volumes are that are somewhere already.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumePlace>,
    /// The images of its containers and volumes, each as often as it is used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Arc<str>>,
    /// Features that the node must declare.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub features: BTreeSet<String>,
    /// The company that it keeps, if it cares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub company: Option<Arc<Company>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_first(profile: &u16) -> bool {
    *profile == 0
}

/// Where a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumePlace {
    /// Terms of which the node must meet one; `None` is no demand.
    pub required_terms: Option<Vec<NodeTerm>>,
    /// Labels of which a node that has zones must have one of these values, by any of the label's names.
    pub zones: Vec<ZoneDemand>,
}

/// A zone or region in which a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ZoneDemand {
    /// The label, by its present and its former name.
    pub keys: Vec<String>,
    /// The values of which the node must have one.
    pub values: BTreeSet<String>,
}

/// The requests that scores count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScoringRequest {
    /// CPU, in milli-CPUs.
    pub cpu_milli: i64,
    /// Memory, in bytes.
    pub memory_bytes: i64,
}

impl ClassSpec {
    /// What a pod on a node counts for in the scores of others.
    pub fn scoring_when_placed(&self) -> ScoringRequest {
        let asked = ScoringRequest { cpu_milli: self.scoring_cpu_milli, memory_bytes: self.scoring_memory_bytes };
        self.placed_scoring.unwrap_or(asked)
    }
}

/// A class ready for use: the observed form with its names taken in.
#[derive(Clone, Debug, PartialEq)]
pub struct PodClass {
    /// The observed form.
    pub spec: Arc<ClassSpec>,
    /// The requests by resource id.
    pub requests: Requests,
    /// The selectors of others that are about its pods.
    pub(crate) tags: TagSet,
    /// Its own terms about others.
    pub(crate) own: Option<Own>,
    /// What it has to mind of others, and where its pods count; `None` if nothing.
    pub(crate) rules: Option<Arc<Rules>>,
    /// Filters that it is not held against.
    pub(crate) skipped: Skipped,
}

impl PodClass {
    /// A class that nobody minds and that minds nobody.
    pub(crate) fn alone(spec: Arc<ClassSpec>, requests: Requests) -> Self {
        Self { spec, requests, tags: TagSet::new(), own: None, rules: None, skipped: Skipped::default() }
    }

    /// Whether a filter is asked about it.
    pub(crate) fn is_held_against(&self, filter: FilterName) -> bool {
        !self.skipped.has(filter)
    }

    /// Whether it matters to a pod of the class who else is near.
    pub(crate) fn minds_others(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| !rules.minds_nothing())
    }

    /// Whether others can keep a pod of the class from a node, beside taking its room.
    pub(crate) fn has_demands(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| !rules.has_no_demands())
    }
}
