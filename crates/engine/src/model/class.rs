//! Pod classes: everything about a pod that matters to its placement.
//!
//! Identical pods share one class, and work is done once per class where possible. Priority is not part of a class: a
//! group's priority overrides that of its members, so every query passes its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::inter_pod::InterPodConstraints;
use super::labels::{Labels, NodeTerm, PreferredTerm};
use super::port::HostPort;
use super::storage::NamedDisk;
use super::taint::Toleration;

/// A class as observed: names are text, amounts are base units.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassSpec {
    /// The resource requests of a pod: milli-CPUs, bytes, whole devices.
    pub requests: BTreeMap<String, i64>,
    /// The CPU request used for scoring: a container without one counts as 100 milli-CPUs.
    pub scoring_cpu_milli: i64,
    /// The memory request used for scoring: a container without one counts as 200 MiB.
    pub scoring_memory_bytes: i64,
    /// The scoring requests of the pod once it is on a node, where they differ: with pod-level requests, kube-scheduler
    /// computes the two by different rules.
    pub placed_scoring: Option<ScoringRequest>,
    /// The only node that the pod may go to, if it names one.
    pub node_name: Option<String>,
    /// The pod's `nodeSelector`.
    pub node_selector: Labels,
    /// Required node affinity terms, of which the node must match one; `None` is no requirement, an empty list never
    /// matches.
    pub required_terms: Option<Vec<NodeTerm>>,
    /// Preferred node affinity terms.
    pub preferred_terms: Vec<PreferredTerm>,
    /// The pod's tolerations.
    pub tolerations: Vec<Toleration>,
    /// The pod's host ports.
    pub host_ports: Vec<HostPort>,
    /// The index of its scheduler profile.
    #[serde(skip_serializing_if = "is_first")]
    pub profile: u16,
    /// Node affinity added by the scheduler configuration (`addedAffinity`): the node must match one of these terms;
    /// `None` is no requirement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforced_terms: Option<Vec<NodeTerm>>,
    /// Disks that it names itself, without a claim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<NamedDisk>,
    /// The images of its containers and volumes, repeated as often as they are used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Arc<str>>,
    /// Features that the node must declare.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub features: BTreeSet<String>,
    /// Inter-pod affinity and topology spread constraints, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "company")]
    pub inter_pod: Option<Arc<InterPodConstraints>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
fn is_first(profile: &u16) -> bool {
    *profile == 0
}

/// Resource requests used for scoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScoringRequest {
    /// CPU, in milli-CPUs.
    pub cpu_milli: i64,
    /// Memory, in bytes.
    pub memory_bytes: i64,
}

impl ClassSpec {
    /// The scoring requests of a pod that is on a node.
    pub fn scoring_when_placed(&self) -> ScoringRequest {
        let asked = ScoringRequest { cpu_milli: self.scoring_cpu_milli, memory_bytes: self.scoring_memory_bytes };
        self.placed_scoring.unwrap_or(asked)
    }
}
