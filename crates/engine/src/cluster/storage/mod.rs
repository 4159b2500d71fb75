//! Storage: claims, volumes, storage classes, drivers and capacity, and what they mean for placement.
//!
//! What the claims of a pod require is its [`StorageDemand`], a part of its class: pods with exchangeable claims share a
//! class, and a claim is named only if it matters which one it is. `demand` derives it, `usability` says which claims
//! cannot be used at all, `pools` lists the volumes that can still be bound, `capacity` what can be provisioned,
//! `matching` decides for a node which volumes a pod would get, `shares` how much of the storage that is, and `attachments` counts what is attached. What a
//! placement takes is reserved in a [`VolumePlan`] until its claims are bound or the placement is given up; `in_use`
//! says which pods that concerns.
//!
//! Must not depend on which pods are scheduled and why.

mod attachments;
mod by_label;
mod capacity;
mod demand;
mod in_use;
mod matching;
mod pools;
mod shares;
mod usability;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use attachments::Attached;
use capacity::Capacities;
pub(crate) use demand::StorageDemand;
use in_use::InUse;
pub(crate) use matching::{Choice, Mismatch, VolumePlan};
use pools::Pools;
pub(crate) use usability::{CLAIMS_PER_POD_MAX, Consumer, Unusable};

use crate::model::ids::{ClaimId, NodeId, PodId, Slab, VolumeId};
use crate::model::storage::{
    AttachmentSpec, BindingMode, ClaimSpec, DriverSpec, NodeDriversSpec, StorageClassSpec, VolumeSpec,
};

/// A provisioner of this name provisions nothing: all volumes of its classes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A claim, as far as it is known: pods can name it before it exists.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Claim {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) spec: Option<Arc<ClaimSpec>>,
    /// The pods that name it and have not finished.
    pub(crate) users: BTreeSet<PodId>,
    /// How many of them are on a node, transactions included.
    placed: u32,
    /// What placements that wait, or a transaction, have chosen for it, and how many.
    chosen: Option<(Choice, u32)>,
    /// The last change after which another node may accept its pods, or no longer.
    revision: u64,
}

/// A volume, as far as it is known: claims can name it before it exists.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Volume {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Option<Arc<VolumeSpec>>,
    /// The claims for which placements that wait, or a transaction, have chosen it.
    reserved_by: BTreeSet<ClaimId>,
}

/// A storage class, as far as it is known: claims and volumes can name it before it exists.
#[derive(Clone, Debug, Default, PartialEq)]
struct Class {
    spec: Option<StorageClassSpec>,
    pools: Pools,
    capacities: Capacities,
    /// What pods ask of it.
    in_use: InUse,
    /// The last change after which another node may accept pods with claims of this class, or no longer, apart from
    /// what `in_use` knows.
    revision: u64,
}

/// All objects of storage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Storage {
    claims: Slab<Claim>,
    claim_ids: BTreeMap<Box<str>, BTreeMap<Box<str>, ClaimId>>,
    volumes: Slab<Volume>,
    volume_ids: BTreeMap<Arc<str>, VolumeId>,
    /// The claims that name a volume, by its name.
    claims_of_volume: BTreeMap<Box<str>, BTreeSet<ClaimId>>,
    /// The volumes that name a claim and are not bound to it yet, by its namespace and name.
    reserved_for: BTreeMap<(String, String), BTreeSet<VolumeId>>,
    classes: BTreeMap<Arc<str>, Class>,
    /// The claims of a storage class that are used, by its name.
    claims_of_class: BTreeMap<String, BTreeSet<ClaimId>>,
    drivers: BTreeMap<String, DriverSpec>,
    node_drivers: BTreeMap<String, NodeDriversSpec>,
    attachments: BTreeMap<String, AttachmentSpec>,
    /// The volumes that are attached to a node, and the nodes that a volume is attached to.
    attached_to: BTreeMap<String, BTreeMap<String, u32>>,
    nodes_of_volume: BTreeMap<String, BTreeSet<String>>,
    /// The storage classes of published capacities.
    class_of_capacity: BTreeMap<(String, String), Arc<str>>,
    /// In a transaction: what no pod on its node uses any more is treated as detached.
    assumes_detached: bool,
    /// The nodes by their label `kubernetes.io/hostname`.
    hosts: BTreeMap<String, BTreeSet<NodeId>>,
    /// Whether a profile scores how much storage is left free: then the volumes that a pod would get on a node matter,
    /// and not only whether it gets some.
    pub(crate) is_scored: bool,
    /// The number of changes so far, and the last one of a driver.
    revisions: u64,
    drivers_revision: u64,
}

impl Storage {
    // Reading.

    /// A claim in use.
    pub(crate) fn claim(&self, id: ClaimId) -> &Claim {
        self.claims.get(id.0).expect("a claim in use exists")
    }

    /// A claim, if it still exists.
    pub(crate) fn claim_if_any(&self, id: ClaimId) -> Option<&Claim> {
        self.claims.get(id.0)
    }

    /// The claim of this name, if it is known.
    pub(crate) fn claim_id(&self, namespace: &str, name: &str) -> Option<ClaimId> {
        self.claim_ids.get(namespace)?.get(name).copied()
    }

    /// The provisioner of a claim's storage class; empty if there is none.
    pub(crate) fn provisioner_of(&self, id: ClaimId) -> &str {
        let spec = self.claim(id).spec.as_deref();
        let class = spec.and_then(|spec| self.class_spec(&spec.kind.storage_class));
        class.map_or("", |class| &class.provisioner)
    }

    /// What placements that wait, or a transaction, have chosen for a claim.
    pub(crate) fn chosen(&self, id: ClaimId) -> Option<&Choice> {
        self.claim(id).chosen.as_ref().map(|(choice, _)| choice)
    }

    /// Whether a pod that uses a claim is on a node.
    pub(crate) fn is_placed(&self, id: ClaimId) -> bool {
        self.claim(id).placed > 0
    }

    /// A volume in use.
    pub(crate) fn volume(&self, id: VolumeId) -> &Volume {
        self.volumes.get(id.0).expect("a volume in use exists")
    }

    /// The volume of this name, if it is known.
    pub(crate) fn volume_id(&self, name: &str) -> Option<VolumeId> {
        self.volume_ids.get(name).copied()
    }

    /// The volume of this name, if it exists.
    pub(crate) fn volume_by_name(&self, name: &str) -> Option<&VolumeSpec> {
        self.volume(*self.volume_ids.get(name)?).spec.as_deref()
    }

    fn class_spec(&self, name: &str) -> Option<&StorageClassSpec> {
        self.classes.get(name)?.spec.as_ref()
    }

    /// Whether a claim waits until a pod that uses it is scheduled.
    fn waits_for_consumer(&self, spec: &ClaimSpec) -> bool {
        let mode = self.class_spec(&spec.kind.storage_class).and_then(|class| class.binding_mode);
        mode == Some(BindingMode::WaitForFirstConsumer)
    }

    /// Changes whenever what a class demands may be met by other nodes than before, apart from changes of nodes and of
    /// what is on them.
    pub(crate) fn revision(&self, demand: &StorageDemand) -> u64 {
        let classes = demand.asked.iter().filter_map(|(name, asked)| {
            let class = self.classes.get(&**name)?;
            Some(class.revision.max(class.in_use.revision(asked)))
        });
        let claims = demand.unbound.iter().filter_map(|claim| claim.claim).chain(demand.exclusive.iter().copied());
        let claims = claims.filter_map(|claim| self.claims.get(claim.0)).map(|claim| claim.revision);
        classes.chain(claims).fold(self.drivers_revision, u64::max)
    }

    fn next_revision(&mut self) -> u64 {
        self.revisions += 1;
        self.revisions
    }

    /// Pods of this demand are in use.
    pub(super) fn note_demand(&mut self, demand: &StorageDemand) {
        for (name, asked) in &demand.asked {
            let revision = self.next_revision();
            self.class_mut(name).in_use.add(asked, revision);
        }
    }

    /// No pods of this demand are in use any more.
    pub(super) fn forget_demand(&mut self, demand: &StorageDemand) {
        for (name, asked) in &demand.asked {
            self.class_mut(name).in_use.remove(asked);
        }
    }

    // Users.

    /// A pod uses the claim of this name. Returns also the other pod if only that has used it until now.
    pub(super) fn add_user(&mut self, namespace: &str, name: &str, pod: PodId) -> (ClaimId, Option<PodId>) {
        let id = self.ensure_claim(namespace, name);
        let users = &mut self.claim_mut(id).users;
        let alone = users.first().copied().filter(|one| users.len() == 1 && *one != pod);
        users.insert(pod);
        (id, alone)
    }

    /// A pod does not use the claim any more. Returns the other pod if only that uses it now.
    pub(super) fn remove_user(&mut self, id: ClaimId, pod: PodId) -> Option<PodId> {
        let users = &mut self.claim_mut(id).users;
        users.remove(&pod);
        let alone = users.first().copied().filter(|_| users.len() == 1);
        self.remove_claim_if_unused(id);
        alone
    }

    /// A pod that uses the claim is on a node now, or no longer.
    pub(super) fn count_placed(&mut self, id: ClaimId, placed: bool) {
        let revision = self.next_revision();
        let claim = self.claim_mut(id);
        let was_placed = claim.placed > 0;
        claim.placed = if placed { claim.placed + 1 } else { claim.placed - 1 };
        if was_placed != (claim.placed > 0) {
            claim.revision = revision;
        }
    }

    // Objects.

    pub(super) fn set_claim(&mut self, spec: ClaimSpec) -> Concerned {
        let id = self.ensure_claim(&spec.id.namespace, &spec.id.name);
        let known = self.claim(id).spec.as_deref();
        let only_version =
            known.is_some_and(|known| ClaimSpec { version: known.version.clone(), ..spec.clone() } == *known);
        if only_version {
            self.claim_mut(id).spec = Some(Arc::new(spec));
            return Concerned { claims: vec![id], only_version };
        }
        self.unlist_claim(id);
        let spec = Arc::new(spec);
        if !spec.volume.is_empty() {
            self.claims_of_volume.entry(spec.volume.as_str().into()).or_default().insert(id);
        }
        self.claims_of_class.entry(spec.kind.storage_class.clone()).or_default().insert(id);
        self.claim_mut(id).spec = Some(spec);
        self.changed(vec![id])
    }

    pub(super) fn remove_claim(&mut self, namespace: &str, name: &str) -> Concerned {
        let Some(id) = self.claim_id(namespace, name) else { return Concerned::default() };
        self.unlist_claim(id);
        self.claim_mut(id).spec = None;
        let is_used = !self.remove_claim_if_unused(id);
        self.changed(if is_used { vec![id] } else { Vec::new() })
    }

    /// These claims have changed, or what they depend on.
    fn changed(&mut self, claims: Vec<ClaimId>) -> Concerned {
        let revision = self.next_revision();
        for claim in &claims {
            self.claim_mut(*claim).revision = revision;
        }
        Concerned { claims, only_version: false }
    }

    fn unlist_claim(&mut self, id: ClaimId) {
        let Some(spec) = self.claim(id).spec.clone() else { return };
        remove_from(&mut self.claims_of_volume, spec.volume.as_str(), &id);
        remove_from(&mut self.claims_of_class, &spec.kind.storage_class, &id);
    }

    fn ensure_claim(&mut self, namespace: &str, name: &str) -> ClaimId {
        if let Some(id) = self.claim_id(namespace, name) {
            return id;
        }
        let claim = Claim { namespace: namespace.into(), name: name.into(), ..Claim::default() };
        let id = ClaimId(self.claims.insert(claim));
        self.claim_ids.entry(namespace.into()).or_default().insert(name.into(), id);
        id
    }

    fn claim_mut(&mut self, id: ClaimId) -> &mut Claim {
        self.claims.get_mut(id.0).expect("a claim in use exists")
    }

    fn remove_claim_if_unused(&mut self, id: ClaimId) -> bool {
        let claim = self.claim(id);
        if claim.spec.is_some() || !claim.users.is_empty() || claim.chosen.is_some() {
            return false;
        }
        let claim = self.claims.remove(id.0).expect("just seen");
        if let Some(names) = self.claim_ids.get_mut(&claim.namespace) {
            names.remove(&claim.name);
            if names.is_empty() {
                self.claim_ids.remove(&claim.namespace);
            }
        }
        true
    }

    /// Also returns whether claims can be bound to the volume.
    pub(super) fn set_volume(&mut self, spec: VolumeSpec) -> (Concerned, bool) {
        let id = self.ensure_volume(&spec.name);
        let known = self.volume(id).spec.as_deref();
        let only_version =
            known.is_some_and(|known| VolumeSpec { version: known.version.clone(), ..spec.clone() } == *known);
        if only_version {
            self.volumes.get_mut(id.0).expect("just ensured").spec = Some(Arc::new(spec));
            return (Concerned { claims: self.concerned_by(id), only_version }, false);
        }
        let mut concerned = self.unlist_volume(id);
        if let Some(claim) = &spec.claim {
            let key = (claim.namespace.clone(), claim.name.clone());
            self.reserved_for.entry(key).or_default().insert(id);
        }
        let class = spec.kind.storage_class.clone();
        self.volumes.get_mut(id.0).expect("just ensured").spec = Some(Arc::new(spec));
        let is_offered = self.offer_if_free(id);
        if is_offered {
            let revision = self.next_revision();
            self.class_mut(&class).revision = revision;
        }
        concerned.extend(self.concerned_by(id));
        concerned.sort_unstable();
        concerned.dedup();
        (self.changed(concerned), is_offered)
    }

    pub(super) fn remove_volume(&mut self, name: &str) -> Concerned {
        let Some(id) = self.volume_ids.get(name).copied() else { return Concerned::default() };
        let concerned = self.unlist_volume(id);
        self.volumes.get_mut(id.0).expect("a listed volume exists").spec = None;
        self.remove_volume_if_unused(id);
        self.changed(concerned)
    }

    /// Removes a volume from everything that lists it. Returns the claims that it concerned.
    fn unlist_volume(&mut self, id: VolumeId) -> Vec<ClaimId> {
        let Some(spec) = self.volume(id).spec.clone() else { return Vec::new() };
        let concerned = self.concerned_by(id);
        if let Some(claim) = &spec.claim {
            remove_from(&mut self.reserved_for, &(claim.namespace.clone(), claim.name.clone()), &id);
        }
        let revision = self.next_revision();
        let class = self.class_mut(&spec.kind.storage_class);
        if class.pools.remove(&spec, id) {
            class.revision = revision;
        }
        concerned
    }

    /// The claims that name a volume, that it names, or for which it was chosen.
    fn concerned_by(&self, id: VolumeId) -> Vec<ClaimId> {
        let volume = self.volume(id);
        let named = volume.spec.as_ref().and_then(|spec| spec.claim.as_ref());
        let named = named.and_then(|claim| self.claim_id(&claim.namespace, &claim.name));
        self.claims_of_volume
            .get(&*volume.name)
            .into_iter()
            .flatten()
            .chain(&volume.reserved_by)
            .copied()
            .chain(named)
            .collect()
    }

    fn ensure_volume(&mut self, name: &str) -> VolumeId {
        if let Some(id) = self.volume_ids.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let id = VolumeId(self.volumes.insert(Volume { name: name.clone(), spec: None, reserved_by: BTreeSet::new() }));
        self.volume_ids.insert(name, id);
        id
    }

    fn remove_volume_if_unused(&mut self, id: VolumeId) {
        let volume = self.volume(id);
        if volume.spec.is_none() && volume.reserved_by.is_empty() {
            let volume = self.volumes.remove(id.0).expect("just seen");
            self.volume_ids.remove(&volume.name);
        }
    }

    /// Lists a volume in its pool if a claim can be bound to it. Returns whether it can.
    fn offer_if_free(&mut self, id: VolumeId) -> bool {
        let volume = self.volume(id);
        let Some(spec) = volume.spec.clone() else { return false };
        let is_free = volume.reserved_by.is_empty() && spec.claim.is_none() && spec.available && !spec.terminating;
        if is_free {
            self.class_mut(&spec.kind.storage_class).pools.add(&spec, id);
        }
        is_free
    }

    fn class_mut(&mut self, name: &str) -> &mut Class {
        if !self.classes.contains_key(name) {
            self.classes.insert(name.into(), Class::default());
        }
        self.classes.get_mut(name).expect("just ensured")
    }

    pub(super) fn set_class(&mut self, spec: StorageClassSpec) -> Concerned {
        let name = spec.name.clone();
        self.replace_class(&name, Some(spec))
    }

    pub(super) fn remove_class(&mut self, name: &str) -> Concerned {
        self.replace_class(name, None)
    }

    fn replace_class(&mut self, name: &str, spec: Option<StorageClassSpec>) -> Concerned {
        let revision = self.next_revision();
        let class = self.class_mut(name);
        class.spec = spec;
        class.revision = revision;
        let claims = self.claims_of_class.get(name).into_iter().flatten().copied().collect();
        self.changed(claims)
    }

    /// The drivers of a node. Returns whether they have changed.
    pub(super) fn set_node_drivers(&mut self, spec: NodeDriversSpec) -> bool {
        let node = spec.node.clone();
        self.node_drivers.get(&node) != Some(&spec) && {
            self.node_drivers.insert(node, spec);
            true
        }
    }

    pub(super) fn remove_node_drivers(&mut self, node: &str) -> bool {
        self.node_drivers.remove(node).is_some()
    }

    /// Returns whether the driver has changed.
    pub(super) fn set_driver(&mut self, name: &str, spec: Option<DriverSpec>) -> bool {
        if self.drivers.get(name) == spec.as_ref() {
            return false;
        }
        match spec {
            Some(spec) => _ = self.drivers.insert(name.to_owned(), spec),
            None => _ = self.drivers.remove(name),
        }
        self.drivers_revision = self.next_revision();
        true
    }

    /// Whether pods of a demand depend on a driver.
    pub(crate) fn depends_on_driver(&self, demand: &StorageDemand, driver: &str) -> bool {
        let mut classes = demand.asked.keys().filter_map(|class| self.class_spec(class));
        demand.attaches_with(driver) || classes.any(|class| class.provisioner == driver)
    }

    /// Whether what is chosen is exactly this, with the number of pods that have chosen it.
    pub(super) fn audit(&self, chosen: &BTreeMap<ClaimId, (Choice, u32)>) -> bool {
        let known = self.claims.iter().filter_map(|(slot, claim)| Some((ClaimId(slot), claim.chosen.clone()?)));
        let mut reserved: BTreeMap<VolumeId, BTreeSet<ClaimId>> = BTreeMap::new();
        let mut planned: BTreeMap<(&str, &capacity::CapacityKey), i128> = BTreeMap::new();
        for (claim, (choice, _)) in chosen {
            match choice {
                Choice::Volume(volume) => _ = reserved.entry(*volume).or_default().insert(*claim),
                Choice::Provision { from: Some(from), .. } => {
                    *planned.entry((&from.class, &from.key)).or_default() += i128::from(from.bytes);
                }
                Choice::Provision { from: None, .. } => {}
            }
        }
        let volumes = self.volumes.iter().filter(|(_, volume)| !volume.reserved_by.is_empty());
        planned.retain(|_, bytes| *bytes != 0);
        let capacities = self
            .classes
            .iter()
            .flat_map(|(name, class)| class.capacities.planned().map(move |(key, bytes)| ((&**name, key), bytes)));
        known.collect::<BTreeMap<_, _>>() == *chosen
            && volumes.map(|(slot, volume)| (VolumeId(slot), volume.reserved_by.clone())).eq(reserved)
            && capacities.eq(planned)
    }

    /// Whether pods may go only to nodes that have this driver.
    pub(crate) fn is_required_on_node(&self, driver: &str) -> bool {
        self.drivers.get(driver).is_some_and(|driver| driver.is_required_on_node)
    }
}

/// What a change of an object concerns.
#[derive(Debug, Default)]
pub(crate) struct Concerned {
    /// The claims whose pods have to be looked at.
    pub(crate) claims: Vec<ClaimId>,
    /// Only the version has changed: nothing that pods require depends on it.
    pub(crate) only_version: bool,
}

/// Removes a value from the set of a key.
fn remove_from<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &Q, value: &V) {
    if let Some(values) = map.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            map.remove(key);
        }
    }
}
