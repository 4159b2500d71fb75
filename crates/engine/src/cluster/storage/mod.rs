//! Storage: claims, volumes, storage classes, drivers and capacity, and what they mean for placement.
//!
//! What the claims of a pod require is its [`StorageDemand`], a part of its class: pods with exchangeable claims share a
//! class, and a claim is named only if it matters which one it is. `demand` derives it, `pools` lists the volumes that
//! can still be bound, `matching` decides for a node which of them a pod would get or what would be provisioned, and
//! `attachments` counts what is attached. What a placement takes is reserved in a [`VolumePlan`] until its claims are
//! bound or the placement is given up.
//!
//! Must not depend on which pods are scheduled and why.

mod attachments;
mod capacity;
mod demand;
mod matching;
mod pools;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use attachments::Attached;
use capacity::Capacities;
pub(crate) use demand::{StorageDemand, Unusable};
pub(crate) use matching::{Choice, Mismatch, VolumePlan};
use pools::Pools;

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
    /// Increases whenever another node may accept its pods, or no longer.
    revision: u64,
}

/// A volume, as far as it is known: claims can name it before it exists.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Volume {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Option<Arc<VolumeSpec>>,
    /// How many placements that wait, or a transaction, have chosen it.
    reserved: u32,
}

/// A storage class, as far as it is known: claims and volumes can name it before it exists.
#[derive(Clone, Debug, Default, PartialEq)]
struct Class {
    spec: Option<StorageClassSpec>,
    pools: Pools,
    capacities: Capacities,
    /// The most claims of this class that a pod has had to be bound, and the largest size.
    claims_max: usize,
    largest_bytes: i64,
    /// Increases whenever another node may accept pods with claims of this class, or no longer.
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
    classes: BTreeMap<String, Class>,
    /// The claims of a storage class that are used, by its name.
    claims_of_class: BTreeMap<String, BTreeSet<ClaimId>>,
    drivers: BTreeMap<String, DriverSpec>,
    node_drivers: BTreeMap<String, NodeDriversSpec>,
    attachments: BTreeMap<String, AttachmentSpec>,
    /// The volumes that are attached to a node.
    attached_to: BTreeMap<String, BTreeMap<String, u32>>,
    /// In a transaction: what no pod on its node uses any more is treated as detached.
    assumes_detached: bool,
    /// The nodes by their label `kubernetes.io/hostname`.
    hosts: BTreeMap<String, BTreeSet<NodeId>>,
}

impl Storage {
    // Reading.

    /// A claim in use.
    pub(crate) fn claim(&self, id: ClaimId) -> &Claim {
        self.claims.get(id.0).expect("a claim in use exists")
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
        let classes = demand.unbound.iter().filter_map(|claim| self.classes.get(&claim.kind.storage_class));
        let claims = demand.unbound.iter().filter_map(|claim| claim.claim).chain(demand.exclusive.iter().copied());
        let claims = claims.filter_map(|claim| self.claims.get(claim.0));
        classes.map(|class| class.revision).chain(claims.map(|claim| claim.revision)).sum()
    }

    /// Pods of this demand are in use.
    pub(super) fn note_demand(&mut self, demand: &StorageDemand) {
        for claim in &demand.unbound {
            let name = &claim.kind.storage_class;
            let claims = demand.unbound.iter().filter(|other| other.kind.storage_class == *name).count();
            let class = self.class_mut(name);
            class.claims_max = class.claims_max.max(claims);
            class.largest_bytes = class.largest_bytes.max(claim.request_bytes.unwrap_or(0));
        }
    }

    // Users.

    /// A pod uses the claim of this name.
    pub(super) fn add_user(&mut self, namespace: &str, name: &str, pod: PodId) -> ClaimId {
        let id = self.ensure_claim(namespace, name);
        self.claim_mut(id).users.insert(pod);
        id
    }

    /// A pod does not use the claim any more.
    pub(super) fn remove_user(&mut self, id: ClaimId, pod: PodId) {
        self.claim_mut(id).users.remove(&pod);
        self.remove_claim_if_unused(id);
    }

    /// A pod that uses the claim is on a node now, or no longer.
    pub(super) fn count_placed(&mut self, id: ClaimId, placed: bool) {
        let claim = self.claim_mut(id);
        let was_placed = claim.placed > 0;
        claim.placed = if placed { claim.placed + 1 } else { claim.placed - 1 };
        claim.revision += u64::from(was_placed != (claim.placed > 0));
    }

    // Objects. Each returns the claims whose pods are concerned.

    pub(super) fn set_claim(&mut self, spec: ClaimSpec) -> Vec<ClaimId> {
        let id = self.ensure_claim(&spec.id.namespace, &spec.id.name);
        self.unlist_claim(id);
        let spec = Arc::new(spec);
        if !spec.volume.is_empty() {
            self.claims_of_volume.entry(spec.volume.as_str().into()).or_default().insert(id);
        }
        self.claims_of_class.entry(spec.kind.storage_class.clone()).or_default().insert(id);
        let claim = self.claim_mut(id);
        claim.spec = Some(spec);
        claim.revision += 1;
        vec![id]
    }

    pub(super) fn remove_claim(&mut self, namespace: &str, name: &str) -> Vec<ClaimId> {
        let Some(id) = self.claim_id(namespace, name) else { return Vec::new() };
        self.unlist_claim(id);
        let claim = self.claim_mut(id);
        claim.spec = None;
        claim.revision += 1;
        if self.remove_claim_if_unused(id) { Vec::new() } else { vec![id] }
    }

    fn unlist_claim(&mut self, id: ClaimId) {
        let Some(spec) = self.claim(id).spec.clone() else { return };
        remove_from(&mut self.claims_of_volume, &Box::<str>::from(spec.volume.as_str()), &id);
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

    pub(super) fn set_volume(&mut self, spec: VolumeSpec) -> Vec<ClaimId> {
        let id = self.ensure_volume(&spec.name);
        let mut concerned = self.unlist_volume(id);
        if let Some(claim) = &spec.claim {
            let key = (claim.namespace.clone(), claim.name.clone());
            self.reserved_for.entry(key).or_default().insert(id);
        }
        self.class_mut(&spec.kind.storage_class).revision += 1;
        self.volumes.get_mut(id.0).expect("just ensured").spec = Some(Arc::new(spec));
        self.offer_if_free(id);
        concerned.extend(self.concerned_by(id));
        concerned.sort_unstable();
        concerned.dedup();
        concerned
    }

    pub(super) fn remove_volume(&mut self, name: &str) -> Vec<ClaimId> {
        let Some(id) = self.volume_ids.get(name).copied() else { return Vec::new() };
        let concerned = self.unlist_volume(id);
        let volume = self.volumes.get_mut(id.0).expect("a listed volume exists");
        if let Some(spec) = volume.spec.take() {
            self.class_mut(&spec.kind.storage_class).revision += 1;
        }
        self.remove_volume_if_unused(id);
        concerned
    }

    /// Removes a volume from everything that lists it. Returns the claims that it concerned.
    fn unlist_volume(&mut self, id: VolumeId) -> Vec<ClaimId> {
        let Some(spec) = self.volume(id).spec.clone() else { return Vec::new() };
        let concerned = self.concerned_by(id);
        if let Some(claim) = &spec.claim {
            remove_from(&mut self.reserved_for, &(claim.namespace.clone(), claim.name.clone()), &id);
        }
        self.class_mut(&spec.kind.storage_class).pools.remove(&spec, id);
        concerned
    }

    /// The claims that name a volume, or that it names.
    fn concerned_by(&self, id: VolumeId) -> Vec<ClaimId> {
        let volume = self.volume(id);
        let named = volume.spec.as_ref().and_then(|spec| spec.claim.as_ref());
        let named = named.and_then(|claim| self.claim_id(&claim.namespace, &claim.name));
        self.claims_of_volume.get(&*volume.name).into_iter().flatten().copied().chain(named).collect()
    }

    fn ensure_volume(&mut self, name: &str) -> VolumeId {
        if let Some(id) = self.volume_ids.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let id = VolumeId(self.volumes.insert(Volume { name: name.clone(), spec: None, reserved: 0 }));
        self.volume_ids.insert(name, id);
        id
    }

    fn remove_volume_if_unused(&mut self, id: VolumeId) {
        let volume = self.volume(id);
        if volume.spec.is_none() && volume.reserved == 0 {
            let volume = self.volumes.remove(id.0).expect("just seen");
            self.volume_ids.remove(&volume.name);
        }
    }

    /// Lists a volume in its pool if a claim can be bound to it.
    fn offer_if_free(&mut self, id: VolumeId) {
        let volume = self.volume(id);
        let Some(spec) = volume.spec.clone() else { return };
        if volume.reserved == 0 && spec.claim.is_none() && spec.available && !spec.terminating {
            self.class_mut(&spec.kind.storage_class).pools.add(&spec, id);
        }
    }

    fn class_mut(&mut self, name: &str) -> &mut Class {
        if !self.classes.contains_key(name) {
            self.classes.insert(name.to_owned(), Class::default());
        }
        self.classes.get_mut(name).expect("just ensured")
    }

    pub(super) fn set_class(&mut self, spec: StorageClassSpec) -> Vec<ClaimId> {
        let name = spec.name.clone();
        let class = self.class_mut(&name);
        class.spec = Some(spec);
        class.revision += 1;
        self.claims_of_class.get(&name).into_iter().flatten().copied().collect()
    }

    pub(super) fn remove_class(&mut self, name: &str) -> Vec<ClaimId> {
        let class = self.class_mut(name);
        class.spec = None;
        class.revision += 1;
        self.claims_of_class.get(name).into_iter().flatten().copied().collect()
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

    /// Returns the storage classes whose provisioner has changed what it publishes.
    pub(super) fn set_driver(&mut self, name: &str, spec: Option<DriverSpec>) -> Vec<String> {
        if self.drivers.get(name) == spec.as_ref() {
            return Vec::new();
        }
        match spec {
            Some(spec) => _ = self.drivers.insert(name.to_owned(), spec),
            None => _ = self.drivers.remove(name),
        }
        let of_driver = |class: &&mut Class| class.spec.as_ref().is_some_and(|spec| spec.provisioner == name);
        for class in self.classes.values_mut().filter(of_driver) {
            class.revision += 1;
        }
        let classes =
            self.classes.iter().filter(|(_, class)| class.spec.as_ref().is_some_and(|spec| spec.provisioner == name));
        classes.map(|(name, _)| name.clone()).collect()
    }

    /// The claims whose volumes a driver provisions.
    pub(super) fn claims_of_driver(&self, driver: &str) -> Vec<ClaimId> {
        let of_driver =
            |(_, class): &(&String, &Class)| class.spec.as_ref().is_some_and(|spec| spec.provisioner == driver);
        let classes = self.classes.iter().filter(of_driver).map(|(name, _)| name);
        classes.flat_map(|name| self.claims_of_class.get(name).into_iter().flatten().copied()).collect()
    }

    /// Whether what is chosen is exactly this, with the number of pods that have chosen it.
    pub(super) fn audit(&self, chosen: &BTreeMap<ClaimId, (Choice, u32)>) -> bool {
        let known = self.claims.iter().filter_map(|(slot, claim)| Some((ClaimId(slot), claim.chosen.clone()?)));
        let mut reserved: BTreeMap<VolumeId, u32> = BTreeMap::new();
        let mut planned: BTreeMap<capacity::CapacityKey, i64> = BTreeMap::new();
        for (choice, _) in chosen.values() {
            match choice {
                Choice::Volume(volume) => *reserved.entry(*volume).or_default() += 1,
                Choice::Provision { from: Some((key, bytes)), .. } => *planned.entry(key.clone()).or_default() += bytes,
                Choice::Provision { from: None, .. } => {}
            }
        }
        let volumes = self.volumes.iter().filter(|(_, volume)| volume.reserved > 0);
        let capacities = self.classes.values().flat_map(|class| class.capacities.planned());
        known.collect::<BTreeMap<_, _>>() == *chosen
            && volumes.map(|(slot, volume)| (VolumeId(slot), volume.reserved)).eq(reserved)
            && capacities.filter(|(_, bytes)| *bytes != 0).all(|(key, bytes)| planned.get(key) == Some(&bytes))
    }

    /// Whether pods may go only to nodes that have this driver.
    pub(crate) fn is_required_on_node(&self, driver: &str) -> bool {
        self.drivers.get(driver).is_some_and(|driver| driver.is_required_on_node)
    }
}

/// Removes a value from the set of a key.
fn remove_from<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(values) = map.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            map.remove(key);
        }
    }
}
