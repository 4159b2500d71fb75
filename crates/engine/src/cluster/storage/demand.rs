//! What the claims of a pod require of a node.
//!
//! A claim is named in the demand only if it matters which one it is: if several pods share it, or if a volume is
//! reserved for it. All others are described by what they ask for, so that ten thousand pods with a claim each can be of
//! one class.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Claim, Storage};
use crate::model::ids::ClaimId;
use crate::model::labels::Requirement;
use crate::model::pod::{PodRefusal, RefusalKind};
use crate::model::storage::{AccessMode, ClaimSpec, ClaimUse, VolumeKind, VolumeTopology};

/// What the claims of a pod require of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StorageDemand {
    /// Of the volumes that its claims are bound to.
    pub(crate) topologies: Vec<VolumeTopology>,
    /// A claim is bound to a volume that does not exist.
    pub(crate) volume_missing: bool,
    /// The nodes for which volumes of its claims are being provisioned: it can go there only.
    pub(crate) selected_nodes: Vec<Box<str>>,
    /// The claims that are to be bound, the smallest first.
    pub(crate) unbound: Vec<UnboundClaim>,
    /// The claims of which another pod may not be on any node.
    pub(crate) exclusive: Vec<ClaimId>,
    /// How many volumes of a driver it attaches that no other pod uses, by driver.
    pub(crate) attached: Vec<(Arc<str>, u32)>,
    /// The driver and handle of each volume that it shares with other pods.
    pub(crate) attached_shared: Vec<(Arc<str>, Arc<str>)>,
}

/// A claim that is bound when a pod that uses it is scheduled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnboundClaim {
    pub(crate) request_bytes: Option<i64>,
    pub(crate) kind: VolumeKind,
    pub(crate) selector: Option<Vec<Requirement>>,
    /// The node for which it is to be provisioned is selected already: it is not bound to an existing volume.
    pub(crate) node_selected: bool,
    /// Which claim it is, if that matters.
    pub(crate) claim: Option<ClaimId>,
}

/// Why a claim of a pod cannot be used.
pub(crate) type Unusable = Arc<PodRefusal>;

impl StorageDemand {
    /// Whether nothing is required of a node.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it attaches volumes.
    pub(crate) fn attaches(&self) -> bool {
        !self.attached.is_empty() || !self.attached_shared.is_empty()
    }
}

impl Storage {
    /// What the claims of a pod require, and why the first unusable one cannot be used.
    pub(crate) fn demand(
        &self,
        pod: &str,
        (namespace, uid): (&str, &str),
        uses: &[ClaimUse],
        claims: &[ClaimId],
    ) -> (StorageDemand, Option<Unusable>) {
        let (mut demand, mut unusable) = (StorageDemand::default(), None);
        let mut attached: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        // kube-scheduler looks for the claims that a pod names before anything else.
        let is_missing = |(used, id): &(&ClaimUse, &ClaimId)| !used.ephemeral && self.claim(**id).spec.is_none();
        if let Some((used, id)) = uses.iter().zip(claims).find(is_missing) {
            unusable = self.unusable(pod, (namespace, uid), used, self.claim(*id));
        }
        for (index, (used, id)) in uses.iter().zip(claims).enumerate() {
            let claim = self.claim(*id);
            if unusable.is_none() {
                unusable = self.unusable(pod, (namespace, uid), used, claim);
            }
            if claims[..index].contains(id) {
                continue;
            }
            let Some(spec) = claim.spec.as_deref() else { continue };
            // Like kube-scheduler: an ephemeral volume belongs to its pod, whichever other pod names its claim.
            let is_for_one_pod = spec.kind.access_modes.contains(&AccessMode::ReadWriteOncePod) && !used.ephemeral;
            if is_for_one_pod && claim.users.len() > 1 {
                demand.exclusive.push(*id);
            }
            self.add_claim(&mut demand, *id, claim, spec);
            match self.attachment(spec) {
                Some((driver, Some(handle))) if claim.users.len() > 1 => demand.attached_shared.push((driver, handle)),
                Some((driver, _)) => *attached.entry(driver).or_default() += 1,
                None => {}
            }
        }
        demand.attached = attached.into_iter().collect();
        demand.attached_shared.sort_unstable();
        demand.attached_shared.dedup();
        demand.unbound.sort_unstable();
        demand.topologies.sort_unstable();
        demand.topologies.dedup();
        demand.selected_nodes.sort_unstable();
        demand.selected_nodes.dedup();
        (demand, unusable)
    }

    fn add_claim(&self, demand: &mut StorageDemand, id: ClaimId, claim: &Claim, spec: &ClaimSpec) {
        let is_shared = claim.users.len() > 1;
        if spec.bind_completed && !spec.volume.is_empty() {
            match self.volume_by_name(&spec.volume) {
                Some(volume) => demand.topologies.push(volume.topology.clone()),
                None => demand.volume_missing = true,
            }
        } else if spec.volume.is_empty() && self.waits_for_consumer(spec) {
            let key = (spec.id.namespace.clone(), spec.id.name.clone());
            let matters = is_shared || self.reserved_for.contains_key(&key);
            if !spec.selected_node.is_empty() {
                demand.selected_nodes.push(spec.selected_node.as_str().into());
            }
            demand.unbound.push(unbound_claim(spec, matters.then_some(id)));
        }
    }

    /// The claims of a pod that are to be bound, in the order of its demand.
    pub(crate) fn unbound_claims(&self, claims: &[ClaimId]) -> Vec<ClaimId> {
        let mut unbound = Vec::new();
        for (_, id) in claims.iter().enumerate().filter(|(index, id)| !claims[..*index].contains(id)) {
            let mut demand = StorageDemand::default();
            let claim = self.claim(*id);
            if let Some(spec) = claim.spec.as_deref() {
                self.add_claim(&mut demand, *id, claim, spec);
            }
            unbound.extend(demand.unbound.pop().map(|found| (found, *id)));
        }
        unbound.sort_unstable();
        unbound.into_iter().map(|(_, id)| id).collect()
    }

    /// The CSI driver that attaches the volume of a claim, with the handle of the volume if there is one.
    fn attachment(&self, spec: &ClaimSpec) -> Option<(Arc<str>, Option<Arc<str>>)> {
        if let Some(volume) = (!spec.volume.is_empty()).then(|| self.volume_by_name(&spec.volume)).flatten() {
            let (driver, handle) = volume.attached_by.as_ref()?;
            return Some((driver.as_str().into(), Some(handle.as_str().into())));
        }
        let class = self.class_spec(&spec.kind.storage_class)?;
        // Its volume will be one of its own.
        let handle = format!("{}/{}", spec.id.namespace, spec.id.name);
        Some((class.provisioner.as_str().into(), Some(handle.as_str().into())))
    }

    /// Why a claim cannot be used, in the words of kube-scheduler.
    fn unusable(&self, pod: &str, (namespace, uid): (&str, &str), used: &ClaimUse, claim: &Claim) -> Option<Unusable> {
        let name = &used.claim;
        let reason = match claim.spec.as_deref() {
            None if used.ephemeral => {
                format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
            }
            None => format!("persistentvolumeclaim {name:?} not found"),
            Some(spec) if spec.lost => {
                format!("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {:?}", spec.volume)
            }
            Some(spec) if spec.terminating => format!("persistentvolumeclaim {name:?} is being deleted"),
            Some(spec) if used.ephemeral && spec.owner_pod != uid => {
                format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)")
            }
            Some(spec) => self.unusable_class(spec)?,
        };
        let (field, value) = (used.field.clone(), name.clone());
        Some(Arc::new(PodRefusal { kind: RefusalKind::Volume, field, value, reason }))
    }

    fn unusable_class(&self, spec: &ClaimSpec) -> Option<String> {
        if spec.bind_completed && !spec.volume.is_empty() {
            return None;
        }
        let name = &spec.kind.storage_class;
        match self.class_spec(name) {
            Some(class) if class.binding_mode.is_none() => {
                Some(format!("VolumeBindingMode not set for StorageClass {name:?}"))
            }
            _ if spec.volume.is_empty() && self.waits_for_consumer(spec) => None,
            _ => Some("pod has unbound immediate PersistentVolumeClaims".to_owned()),
        }
    }
}

fn unbound_claim(spec: &ClaimSpec, claim: Option<ClaimId>) -> UnboundClaim {
    UnboundClaim {
        request_bytes: spec.request_bytes,
        kind: spec.kind.clone(),
        selector: spec.selector.clone(),
        node_selected: !spec.selected_node.is_empty(),
        claim,
    }
}
