//! What the claims of a pod require of a node.
//!
//! A claim is named in the demand only if it matters which one it is: if several pods share it, or if a volume is
//! reserved for it. All others are described by what they ask for, so that ten thousand pods with a claim each can be of
//! one class.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Storage;
use super::in_use::Asked;
use crate::model::ids::ClaimId;
use crate::model::labels::{NodeTerm, Requirement};
use crate::model::storage::{AccessMode, ClaimSpec, ClaimUse, VolumeKind, ZoneRequirement};

/// What the claims of a pod require of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StorageDemand {
    /// Of each volume that a claim is bound to, the terms of which a node must match one. kube-scheduler looks at no
    /// volume that comes after a missing one.
    pub(crate) affinities: Vec<Vec<NodeTerm>>,
    /// A claim is bound to a volume that does not exist.
    pub(crate) volume_missing: bool,
    /// The zones and regions of volumes that are not ephemeral.
    pub(crate) zones: Vec<ZoneRequirement>,
    /// The nodes for which volumes of its claims are being provisioned: it can go there only.
    pub(crate) selected_nodes: Vec<Box<str>>,
    /// The claims that are to be bound, the smallest first.
    pub(crate) unbound: Vec<UnboundClaim>,
    /// What these ask of each storage class.
    pub(crate) asked: BTreeMap<Box<str>, Asked>,
    /// The claims of which another pod may not be on any node.
    pub(crate) exclusive: Vec<ClaimId>,
    /// How many volumes of a driver it attaches that no other pod uses, by driver.
    pub(crate) attached: Vec<(Arc<str>, u32)>,
    /// The driver and handle of each volume that it shares with other pods.
    pub(crate) attached_shared: Vec<AttachedVolume>,
}

/// A claim that is bound when a pod that uses it is scheduled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnboundClaim {
    pub(crate) request_bytes: Option<i64>,
    pub(crate) kind: VolumeKind,
    pub(crate) selector: Option<Vec<Requirement>>,
    /// If the node for which it is to be provisioned is selected already, so that it is not bound to an existing
    /// volume: its position among such claims of the pod.
    pub(crate) selected: Option<usize>,
    /// Which claim it is, if that matters.
    pub(crate) claim: Option<ClaimId>,
}

/// A volume that is attached to the node of a pod: its driver and handle.
pub(crate) type AttachedVolume = (Arc<str>, Arc<str>);

impl StorageDemand {
    /// Whether nothing is required of a node.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it attaches volumes.
    pub(crate) fn attaches(&self) -> bool {
        !self.attached.is_empty() || !self.attached_shared.is_empty()
    }

    /// Whether it attaches volumes of this driver.
    pub(crate) fn attaches_with(&self, driver: &str) -> bool {
        self.attached.iter().any(|(of, _)| **of == *driver)
            || self.attached_shared.iter().any(|(of, _)| **of == *driver)
    }

    /// Brings the parts in an order that does not depend on that of the pod.
    fn normalize(&mut self) {
        self.affinities.sort_unstable();
        self.affinities.dedup();
        self.zones.sort_unstable();
        self.zones.dedup();
        self.selected_nodes.sort_unstable();
        self.selected_nodes.dedup();
        for claim in &self.unbound {
            let asked = self.asked.entry(claim.kind.storage_class.as_str().into()).or_default();
            asked.sizes.push(claim.request_bytes.unwrap_or(0));
            asked.selects |= claim.selector.is_some();
        }
        self.attached_shared.sort_unstable();
        self.attached_shared.dedup();
    }
}

impl Storage {
    /// What the claims of a pod require.
    pub(crate) fn demand(&self, uses: &[ClaimUse], claims: &[ClaimId]) -> StorageDemand {
        let mut demand = StorageDemand::default();
        let mut attached: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (used, id) in uses.iter().zip(claims).filter(|(_, id)| seen.insert(**id)) {
            let claim = self.claim(*id);
            let Some(spec) = claim.spec.as_deref() else { continue };
            // Like kube-scheduler: an ephemeral volume belongs to its pod, whichever other pod names its claim.
            let is_for_one_pod = spec.kind.access_modes.contains(&AccessMode::ReadWriteOncePod) && !used.ephemeral;
            if is_for_one_pod && claim.users.len() > 1 {
                demand.exclusive.push(*id);
            }
            self.add_claim(&mut demand, spec, used.ephemeral);
            match self.attached_volume(spec) {
                Some(volume) if claim.users.len() > 1 => demand.attached_shared.push(volume),
                Some((driver, _)) => *attached.entry(driver).or_default() += 1,
                None => {}
            }
        }
        demand.attached = attached.into_iter().collect();
        demand.unbound = self.unbound(claims).into_iter().map(|(unbound, _)| unbound).collect();
        demand.normalize();
        demand
    }

    fn add_claim(&self, demand: &mut StorageDemand, spec: &ClaimSpec, ephemeral: bool) {
        if spec.is_bound() {
            let Some(volume) = self.volume_by_name(&spec.volume) else {
                demand.volume_missing = true;
                return;
            };
            if !demand.volume_missing {
                demand.affinities.extend(volume.topology.required_terms.clone());
            }
            if !ephemeral {
                demand.zones.extend(volume.topology.zones.iter().cloned());
            }
        } else if self.waits_for_pod(spec) && !spec.selected_node.is_empty() {
            demand.selected_nodes.push(spec.selected_node.as_str().into());
        }
    }

    /// Whether a claim is to be bound when a pod that uses it is scheduled.
    pub(super) fn waits_for_pod(&self, spec: &ClaimSpec) -> bool {
        spec.volume.is_empty() && self.waits_for_consumer(spec)
    }

    /// The claims of a pod that are to be bound, and what each asks for, in the order of its demand.
    fn unbound(&self, claims: &[ClaimId]) -> Vec<(UnboundClaim, ClaimId)> {
        let (mut seen, mut selected) = (BTreeSet::new(), 0..);
        let mut unbound = Vec::new();
        for id in claims.iter().filter(|id| seen.insert(**id)) {
            let claim = self.claim(*id);
            let Some(spec) = claim.spec.as_deref().filter(|spec| self.waits_for_pod(spec)) else { continue };
            let key = (spec.id.namespace.clone(), spec.id.name.clone());
            let matters = claim.users.len() > 1 || self.reserved_for.contains_key(&key);
            let what = UnboundClaim {
                request_bytes: spec.request_bytes,
                kind: spec.kind.clone(),
                selector: spec.selector.clone(),
                selected: if spec.selected_node.is_empty() { None } else { selected.next() },
                claim: matters.then_some(*id),
            };
            unbound.push((what, *id));
        }
        unbound.sort_unstable();
        unbound
    }

    /// The claims of a pod that are to be bound, in the order of its demand.
    pub(crate) fn unbound_claims(&self, claims: &[ClaimId]) -> Vec<ClaimId> {
        self.unbound(claims).into_iter().map(|(_, id)| id).collect()
    }

    /// The volume that is attached for a claim, if a CSI driver attaches it.
    pub(super) fn attached_volume(&self, spec: &ClaimSpec) -> Option<AttachedVolume> {
        if let Some(volume) = (!spec.volume.is_empty()).then(|| self.volume_by_name(&spec.volume)).flatten() {
            let (driver, handle) = volume.attached_by.as_ref()?;
            return Some((driver.as_str().into(), handle.as_str().into()));
        }
        let class = self.class_spec(&spec.kind.storage_class)?;
        // Its volume will be one of its own.
        let handle = format!("{}/{}", spec.id.namespace, spec.id.name);
        Some((class.provisioner.as_str().into(), handle.into()))
    }
}
