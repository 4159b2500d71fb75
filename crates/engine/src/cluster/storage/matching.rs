//! Which volumes the claims of a pod would get on a node, and what would be provisioned there.
//!
//! As in kube-scheduler the smallest claim chooses first, and the smallest volume that is large enough; of equally large
//! ones the first by name. A claim that matches no volume is provisioned, if its class and the free capacity allow that.
//! A claim that several pods share is chosen for once: the others go where its volume can be used, and are checked
//! again when it is bound.

use std::sync::Arc;

use super::capacity::CapacityKey;
use super::demand::{StorageDemand, UnboundClaim};
use super::pools::host_of;
use super::{Class, NO_PROVISIONER, Storage};
use crate::cluster::node::Node;
use crate::model::ids::{ClaimId, VolumeId};
use crate::model::storage::StorageClassSpec;

/// What is chosen for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It is bound to this volume.
    Volume(VolumeId),
    /// Its volume is provisioned for this node.
    Provision {
        node: Arc<str>,
        /// The published capacity that it is taken from, with the number of bytes.
        from: Option<(CapacityKey, i64)>,
    },
}

/// What a placement has chosen for each claim of a pod that is to be bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VolumePlan(pub(crate) Vec<(ClaimId, Choice)>);

impl VolumePlan {
    /// What is chosen for a claim.
    pub(crate) fn of(&self, claim: ClaimId) -> Option<&Choice> {
        self.0.iter().find(|(of, _)| *of == claim).map(|(_, choice)| choice)
    }
}

/// Why the claims of a pod cannot be bound on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// No volume matches, and none can be provisioned.
    NoVolume,
    /// There is too little storage.
    NoStorage,
}

/// What would be chosen for a claim.
enum Found {
    New(Choice),
    /// Another pod of the same placement has chosen already.
    Chosen(Choice),
}

impl Storage {
    /// What the claims of a demand would get on a node, in their order.
    pub(crate) fn choose(&self, demand: &StorageDemand, node: &Node) -> Result<Vec<Choice>, Mismatch> {
        let mut choices: Vec<Choice> = Vec::with_capacity(demand.unbound.len());
        if demand.selected_nodes.iter().any(|selected| **selected != *node.name) {
            return Err(Mismatch::NoVolume);
        }
        let mut taken = Vec::new();
        let mut to_provision = Vec::new();
        for (index, claim) in demand.unbound.iter().enumerate() {
            let choice = match self.existing(claim, node, &taken)? {
                Some(Found::New(choice) | Found::Chosen(choice)) => choice,
                None => {
                    to_provision.push(index);
                    Choice::Provision { node: node.name.clone(), from: None }
                }
            };
            if let Choice::Volume(volume) = choice {
                taken.push(volume);
            }
            choices.push(choice);
        }
        for index in to_provision {
            let from = self.provision(&demand.unbound[index], node)?;
            choices[index] = Choice::Provision { node: node.name.clone(), from };
        }
        Ok(choices)
    }

    /// The existing volume for a claim on a node, or what was chosen for it before.
    fn existing(&self, claim: &UnboundClaim, node: &Node, taken: &[VolumeId]) -> Result<Option<Found>, Mismatch> {
        if let Some((choice, _)) = claim.claim.and_then(|id| self.claim(id).chosen.as_ref()) {
            let usable = match choice {
                Choice::Volume(volume) => self.is_accessible(*volume, node),
                Choice::Provision { .. } => self.can_be_provisioned(claim, node).is_some(),
            };
            return if usable { Ok(Some(Found::Chosen(choice.clone()))) } else { Err(Mismatch::NoVolume) };
        }
        if claim.node_selected {
            return Ok(None);
        }
        if let Some(reserved) = claim.claim.and_then(|id| self.reserved_volume(id, claim)) {
            // It is the only volume for the claim, wherever it is.
            let accessible = self.is_accessible(reserved, node) && !taken.contains(&reserved);
            return Ok(accessible.then_some(Found::New(Choice::Volume(reserved))));
        }
        let Some(class) = self.classes.get(&claim.kind.storage_class) else { return Ok(None) };
        let fits = |volume: VolumeId| {
            let labels = self.volume(volume).spec.as_ref().map(|spec| &spec.labels);
            let selects = |terms: &Vec<_>| {
                let meets = |requirement: &crate::model::labels::Requirement| {
                    labels.is_some_and(|labels| requirement.matches(labels))
                };
                terms.iter().all(meets)
            };
            !taken.contains(&volume) && claim.selector.as_ref().is_none_or(selects)
        };
        let volume = class.pools.smallest(&claim.kind, claim.request_bytes.unwrap_or(0), node, fits);
        Ok(volume.map(|volume| Found::New(Choice::Volume(volume))))
    }

    /// The first volume that is reserved for a claim and suits it.
    fn reserved_volume(&self, id: ClaimId, claim: &UnboundClaim) -> Option<VolumeId> {
        let spec = self.claim(id).spec.as_deref()?;
        let key = (spec.id.namespace.clone(), spec.id.name.clone());
        let suits = |volume: &VolumeId| {
            self.volume(*volume).spec.as_deref().is_some_and(|offered| {
                let reserved = offered.claim.as_ref().is_some_and(|of| of.uid.is_empty() || of.uid == spec.id.uid);
                let same = offered.kind.block == claim.kind.block
                    && offered.kind.storage_class == claim.kind.storage_class
                    && offered.kind.attributes_class == claim.kind.attributes_class;
                reserved && same && !offered.terminating && offered.capacity_bytes >= claim.request_bytes.unwrap_or(0)
            })
        };
        let mut volumes: Vec<VolumeId> = self.reserved_for.get(&key)?.iter().copied().filter(suits).collect();
        volumes.sort_by(|one, other| self.volume(*one).name.cmp(&self.volume(*other).name));
        volumes.first().copied()
    }

    /// Whether a node can access a volume.
    pub(crate) fn is_accessible(&self, volume: VolumeId, node: &Node) -> bool {
        let Some(spec) = self.volume(volume).spec.as_deref() else { return false };
        let terms = spec.topology.required_terms.as_ref();
        terms.is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
    }

    /// The storage class of a claim, if its volume can be provisioned for a node, regardless of capacity.
    fn can_be_provisioned(&self, claim: &UnboundClaim, node: &Node) -> Option<&Class> {
        let class = self.classes.get(&claim.kind.storage_class)?;
        let spec = class.spec.as_ref()?;
        (!spec.provisioner.is_empty() && spec.provisioner != NO_PROVISIONER && is_allowed(spec, node)).then_some(class)
    }

    /// The published capacity from which the volume of a claim is provisioned for a node; `None` if nothing is
    /// published, so that nothing limits it.
    fn provision(&self, claim: &UnboundClaim, node: &Node) -> Result<Option<(CapacityKey, i64)>, Mismatch> {
        let class = self.can_be_provisioned(claim, node).ok_or(Mismatch::NoVolume)?;
        let provisioner = class.spec.as_ref().map_or("", |spec| &spec.provisioner);
        let publishes = self.drivers.get(provisioner).is_some_and(|driver| driver.publishes_capacity);
        let Some(request_bytes) = claim.request_bytes.filter(|_| publishes) else { return Ok(None) };
        let found = class.capacities.for_volume(request_bytes, node).ok_or(Mismatch::NoStorage)?;
        Ok(Some((found.clone(), request_bytes)))
    }

    /// An upper bound of how many pods of a demand fit at the same time, counted up to `enough`.
    pub(crate) fn copies_max(&self, demand: &StorageDemand, enough: usize) -> usize {
        let single = if demand.exclusive.is_empty() { enough } else { 1 };
        let bound_of = |claim: &UnboundClaim| {
            let class = self.classes.get(&claim.kind.storage_class);
            let provisioner = class.and_then(|class| class.spec.as_ref()).map_or("", |spec| &spec.provisioner);
            if claim.claim.is_some() || !(provisioner.is_empty() || provisioner == NO_PROVISIONER) {
                return enough;
            }
            class.map_or(0, |class| class.pools.count(&claim.kind, claim.request_bytes.unwrap_or(0), enough))
        };
        demand.unbound.iter().map(bound_of).fold(single, usize::min)
    }

    /// Whether the nodes that a demand may use depend on each other: volumes or capacity are taken from all at once.
    pub(crate) fn has_shared_limits(&self, demand: &StorageDemand) -> bool {
        let limited = |claim: &UnboundClaim| {
            let class = self.classes.get(&claim.kind.storage_class);
            claim.claim.is_some() || class.is_some_and(|class| !class.pools.is_empty() || !class.capacities.is_empty())
        };
        !demand.exclusive.is_empty() || demand.unbound.iter().any(limited)
    }

    // Reserving.

    /// Reserves what is chosen for a claim of a placed pod.
    pub(in crate::cluster) fn reserve(&mut self, claim: ClaimId, choice: &Choice) {
        let chosen = &mut self.claim_mut(claim).chosen;
        match chosen {
            Some((_, users)) => {
                *users += 1;
                return;
            }
            None => *chosen = Some((choice.clone(), 1)),
        }
        self.change(choice, true);
        self.bump_if_shared(claim);
    }

    /// Releases what was chosen for a claim of a pod that is not placed any more, or whose claim is bound.
    pub(in crate::cluster) fn release(&mut self, claim: ClaimId) {
        let chosen = &mut self.claim_mut(claim).chosen;
        let Some((choice, users)) = chosen.take() else { return };
        if users > 1 {
            *chosen = Some((choice, users - 1));
            return;
        }
        self.change(&choice, false);
        self.bump_if_shared(claim);
        self.remove_claim_if_unused(claim);
    }

    /// What was chosen for a shared claim limits where its other pods may go.
    fn bump_if_shared(&mut self, id: ClaimId) {
        let claim = self.claim_mut(id);
        if claim.users.len() > 1 {
            claim.revision += 1;
        }
    }

    fn change(&mut self, choice: &Choice, take: bool) {
        match choice {
            Choice::Volume(volume) => self.change_volume(*volume, take),
            Choice::Provision { from: Some((key, bytes)), .. } => {
                let bytes = if take { *bytes } else { bytes.saturating_neg() };
                let of_key = |class: &&mut Class| class.capacities.planned().any(|(one, _)| one == key);
                if let Some(class) = self.classes.values_mut().find(of_key)
                    && class.capacities.deduct(key, bytes, class.largest_bytes)
                {
                    class.revision += 1;
                }
            }
            Choice::Provision { from: None, .. } => {}
        }
    }

    fn change_volume(&mut self, id: VolumeId, take: bool) {
        let Some(volume) = self.volumes.get_mut(id.0) else { return };
        volume.reserved = if take { volume.reserved + 1 } else { volume.reserved - 1 };
        let spec = volume.spec.clone();
        if let Some(spec) = spec {
            let class = self.class_mut(&spec.kind.storage_class);
            let most = class.claims_max;
            if take {
                class.pools.remove(&spec, id);
            }
            // With so many others in its pool, no pod misses this one. A volume of one host matters to the node alone on
            // which it is placed.
            let of_one_host = host_of(&spec).is_some_and(|host| self.hosts.get(host).is_none_or(|on| on.len() <= 1));
            let class = self.class_mut(&spec.kind.storage_class);
            if !of_one_host && !class.pools.has_more_like(&spec, most) {
                class.revision += 1;
            }
            self.offer_if_free(id);
        }
        self.remove_volume_if_unused(id);
    }
}

fn is_allowed(class: &StorageClassSpec, node: &Node) -> bool {
    let terms = class.allowed_topologies.as_ref();
    terms.is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
}
