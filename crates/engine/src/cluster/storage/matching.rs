//! Which volumes the claims of a pod would get on a node, and what would be provisioned there.
//!
//! As in kube-scheduler the smallest claim chooses first, and the smallest volume that is large enough; of equally large
//! ones the first by name. A claim that matches no volume is provisioned, if its class and the free capacity allow that.
//! A claim that several pods share is chosen for once: the others go where its volume can be used, and are checked
//! again when it is bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::capacity::CapacityKey;
use super::demand::{StorageDemand, UnboundClaim};
use super::pools::{host_of, matches_any};
use super::{Class, NO_PROVISIONER, Storage};
use crate::cluster::node::Node;
use crate::model::ids::{ClaimId, VolumeId};

/// What is chosen for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It is bound to this volume.
    Volume(VolumeId),
    /// Its volume is provisioned for this node.
    Provision {
        node: Arc<str>,
        /// The published capacity that it is taken from.
        from: Option<FromCapacity>,
    },
}

/// A part of a published capacity of a storage class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FromCapacity {
    pub(super) class: Arc<str>,
    pub(super) key: CapacityKey,
    pub(super) bytes: i64,
}

/// What a placement has chosen for each claim of a pod that is to be bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VolumePlan(pub(crate) Vec<(ClaimId, Choice)>);

/// Why the claims of a pod cannot be bound on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// No volume matches, and none can be provisioned.
    NoVolume,
    /// There is too little storage.
    NoStorage,
}

impl Storage {
    /// What the claims of a demand would get on a node, in their order.
    pub(crate) fn choose(&self, demand: &StorageDemand, node: &Node) -> Result<Vec<Choice>, Mismatch> {
        if demand.selected_nodes.iter().any(|selected| **selected != *node.name) {
            return Err(Mismatch::NoVolume);
        }
        let mut choices: Vec<Choice> = Vec::with_capacity(demand.unbound.len());
        let mut taken = BTreeSet::new();
        let mut to_provision = Vec::new();
        for (index, claim) in demand.unbound.iter().enumerate() {
            let choice = self.existing(claim, node, &taken)?.unwrap_or_else(|| {
                to_provision.push(index);
                Choice::Provision { node: node.name.clone(), from: None }
            });
            if let Choice::Volume(volume) = choice {
                taken.insert(volume);
            }
            choices.push(choice);
        }
        // kube-scheduler begins with the claims whose node is selected; the first that fails gives the reason.
        to_provision.sort_by_key(|index| demand.unbound[*index].selected.unwrap_or(usize::MAX));
        for index in to_provision {
            let from = self.provision(&demand.unbound[index], node)?;
            choices[index] = Choice::Provision { node: node.name.clone(), from };
        }
        Ok(choices)
    }

    /// The existing volume for a claim on a node, or what was chosen for it before.
    fn existing(
        &self,
        claim: &UnboundClaim,
        node: &Node,
        taken: &BTreeSet<VolumeId>,
    ) -> Result<Option<Choice>, Mismatch> {
        if let Some(choice) = claim.claim.and_then(|id| self.chosen(id)) {
            let usable = match choice {
                Choice::Volume(volume) => self.is_accessible(*volume, node),
                Choice::Provision { .. } => self.can_be_provisioned(claim, node).is_some(),
            };
            return if usable { Ok(Some(choice.clone())) } else { Err(Mismatch::NoVolume) };
        }
        if claim.selected.is_some() {
            return Ok(None);
        }
        if let Some(reserved) = claim.claim.and_then(|id| self.reserved_volume(id, claim)) {
            // It is the only volume for the claim, wherever it is.
            let accessible = self.is_accessible(reserved, node) && !taken.contains(&reserved);
            return Ok(accessible.then_some(Choice::Volume(reserved)));
        }
        let Some(class) = self.classes.get(claim.kind.storage_class.as_str()) else { return Ok(None) };
        let volume = class.pools.smallest(&claim.kind, claim.request_bytes.unwrap_or(0), node, |volume| {
            !taken.contains(&volume) && self.is_selected(claim, volume)
        });
        Ok(volume.map(Choice::Volume))
    }

    /// Whether the labels of a volume meet the selector of a claim.
    fn is_selected(&self, claim: &UnboundClaim, volume: VolumeId) -> bool {
        let Some(terms) = claim.selector.as_ref() else { return true };
        let labels = self.volume(volume).spec.as_deref().map(|spec| &spec.labels);
        terms.iter().all(|requirement| labels.is_some_and(|labels| requirement.matches(labels)))
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
        let spec = self.volume(volume).spec.as_deref();
        spec.is_some_and(|spec| matches_any(spec.topology.required_terms.as_deref(), node))
    }

    /// The storage class of a claim, if its volume can be provisioned for a node, regardless of capacity.
    fn can_be_provisioned(&self, claim: &UnboundClaim, node: &Node) -> Option<(&Arc<str>, &Class)> {
        let (name, class) = self.classes.get_key_value(claim.kind.storage_class.as_str())?;
        let spec = class.spec.as_ref()?;
        let provisions = !spec.provisioner.is_empty() && spec.provisioner != NO_PROVISIONER;
        (provisions && matches_any(spec.allowed_topologies.as_deref(), node)).then_some((name, class))
    }

    /// The published capacity from which the volume of a claim is provisioned for a node; `None` if nothing is
    /// published, so that nothing limits it.
    fn provision(&self, claim: &UnboundClaim, node: &Node) -> Result<Option<FromCapacity>, Mismatch> {
        let (name, class) = self.can_be_provisioned(claim, node).ok_or(Mismatch::NoVolume)?;
        let provisioner = class.spec.as_ref().map_or("", |spec| &spec.provisioner);
        let publishes = self.drivers.get(provisioner).is_some_and(|driver| driver.publishes_capacity);
        let Some(bytes) = claim.request_bytes.filter(|_| publishes) else { return Ok(None) };
        let key = class.capacities.for_volume(bytes, node).ok_or(Mismatch::NoStorage)?;
        Ok(Some(FromCapacity { class: name.clone(), key: key.clone(), bytes }))
    }

    /// An upper bound of how many pods of a demand fit at the same time, counted up to `enough`.
    pub(crate) fn copies_max(&self, demand: &StorageDemand, enough: usize) -> usize {
        let single = if demand.exclusive.is_empty() { enough } else { 1 };
        let bound_of = |claim: &UnboundClaim| {
            let class = self.classes.get(claim.kind.storage_class.as_str());
            let provisioner = class.and_then(|class| class.spec.as_ref()).map_or("", |spec| &spec.provisioner);
            if claim.claim.is_some() || !(provisioner.is_empty() || provisioner == NO_PROVISIONER) {
                return enough;
            }
            class.map_or(0, |class| class.pools.count(&claim.kind, claim.request_bytes.unwrap_or(0), enough))
        };
        demand.unbound.iter().map(bound_of).fold(single, usize::min)
    }

    /// The same for one node, by the volumes that it can access.
    pub(crate) fn copies_on_node_max(&self, demand: &StorageDemand, node: &Node, enough: usize) -> usize {
        let bound_of = |claim: &UnboundClaim| {
            if claim.claim.is_some() || self.can_be_provisioned(claim, node).is_some() {
                return enough;
            }
            let class = self.classes.get(claim.kind.storage_class.as_str());
            let bytes = claim.request_bytes.unwrap_or(0);
            class.map_or(0, |class| class.pools.count_on_node(&claim.kind, bytes, node, enough))
        };
        let single = if demand.exclusive.is_empty() { enough } else { 1 };
        demand.unbound.iter().map(bound_of).fold(single, usize::min)
    }

    /// Whether the nodes that a demand may use depend on each other: volumes or capacity are taken from all at once.
    pub(crate) fn has_shared_limits(&self, demand: &StorageDemand) -> bool {
        let limited = |claim: &UnboundClaim| {
            let class = self.classes.get(claim.kind.storage_class.as_str());
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
        self.change(claim, choice, true);
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
        self.change(claim, &choice, false);
        self.bump_if_shared(claim);
        self.remove_claim_if_unused(claim);
    }

    /// What was chosen for a shared claim limits where its other pods may go.
    fn bump_if_shared(&mut self, id: ClaimId) {
        let revision = self.next_revision();
        let claim = self.claim_mut(id);
        if claim.users.len() > 1 {
            claim.revision = revision;
        }
    }

    fn change(&mut self, claim: ClaimId, choice: &Choice, take: bool) {
        match choice {
            Choice::Volume(volume) => self.change_volume(*volume, claim, take),
            Choice::Provision { from: Some(from), .. } => self.change_capacity(from, take),
            Choice::Provision { from: None, .. } => {}
        }
    }

    fn change_volume(&mut self, id: VolumeId, claim: ClaimId, take: bool) {
        let Some(volume) = self.volumes.get_mut(id.0) else { return };
        _ = if take { volume.reserved_by.insert(claim) } else { volume.reserved_by.remove(&claim) };
        let spec = volume.spec.clone();
        if let Some(spec) = spec {
            // A volume of one host matters to the node alone on which it is placed.
            let of_one_host = host_of(&spec).is_some_and(|host| self.hosts.get(host).is_none_or(|on| on.len() <= 1));
            let (revision, is_scored) = (self.next_revision(), self.is_scored);
            let class = self.class_mut(&spec.kind.storage_class);
            if take {
                class.pools.remove(&spec, id);
            }
            if !of_one_host {
                let enough = class.in_use.count_max();
                // Where it is scored how much of a volume is used, only a volume of the same size is as good.
                let left = if is_scored {
                    class.pools.twins_of(&spec, enough)
                } else {
                    class.pools.others_like(&spec, enough)
                };
                class.in_use.volumes_left(left, revision);
            }
            self.offer_if_free(id);
        }
        self.remove_volume_if_unused(id);
    }

    fn change_capacity(&mut self, from: &FromCapacity, take: bool) {
        let revision = self.next_revision();
        let class = self.class_mut(&from.class);
        let before = class.capacities.left_bytes(&from.key);
        class.capacities.deduct(&from.key, if take { i128::from(from.bytes) } else { -i128::from(from.bytes) });
        if let (Some(before), Some(after)) = (before, class.capacities.left_bytes(&from.key)) {
            class.in_use.capacity_changed(before, after, revision);
        }
    }
}
