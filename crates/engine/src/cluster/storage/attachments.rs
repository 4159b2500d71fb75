//! Volumes that are attached to nodes, by CSI driver.
//!
//! A node can attach a limited number of volumes of a driver. What counts are the volumes of the pods on the node, and
//! volumes that are still attached although no pod there uses them any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::demand::AttachedVolume;
use super::{Storage, StorageDemand};
use crate::cluster::node::Node;
use crate::model::ids::{ClaimId, NodeId};
use crate::model::storage::{AttachmentSpec, CapacitySpec};

/// What the pods of a node attach: a part of its load.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Attached {
    /// Volumes that a single pod uses, by driver.
    own: BTreeMap<Arc<str>, u32>,
    /// Volumes that several pods use, by driver and handle, with the number of their pods on the node.
    shared: BTreeMap<AttachedVolume, u32>,
}

impl Attached {
    /// Adds the volumes of a pod.
    pub(crate) fn add(&mut self, demand: &StorageDemand) {
        for (driver, volumes) in &demand.attached {
            *self.own.entry(driver.clone()).or_default() += volumes;
        }
        for volume in &demand.attached_shared {
            *self.shared.entry(volume.clone()).or_default() += 1;
        }
    }

    /// Removes the volumes of a pod.
    pub(crate) fn sub(&mut self, demand: &StorageDemand) {
        for (driver, volumes) in &demand.attached {
            subtract(&mut self.own, driver, *volumes);
        }
        for volume in &demand.attached_shared {
            subtract(&mut self.shared, volume, 1);
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.is_empty()
    }

    /// Whether a pod uses this volume, which several pods use.
    pub(crate) fn has_shared(&self, volume: &AttachedVolume) -> bool {
        self.shared.contains_key(volume)
    }

    fn of_driver(&self, driver: &str) -> u32 {
        let shared = self.shared.keys().filter(|(of, _)| **of == *driver).count() as u32;
        self.own.get(driver).copied().unwrap_or(0) + shared
    }
}

fn subtract<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K, by: u32) {
    let count = counts.get_mut(key).expect("a removed pod's volumes are counted");
    *count -= by;
    if *count == 0 {
        counts.remove(key);
    }
}

impl Storage {
    /// The volume of a claim that several pods use, if it is attached.
    pub(crate) fn shared_volume(&self, id: ClaimId) -> Option<AttachedVolume> {
        let claim = self.claim(id);
        claim.spec.as_deref().filter(|_| claim.users.len() > 1).and_then(|spec| self.attached_volume(spec))
    }

    /// How many more pods of a demand can have their volumes attached to a node with this load, counted up to `enough`.
    pub(crate) fn attachable_copies(
        &self,
        demand: &StorageDemand,
        node: &Node,
        load: Option<&Attached>,
        in_empty_cluster: bool,
        is_on_node: &dyn Fn(ClaimId) -> bool,
    ) -> i64 {
        let Some(drivers) = self.node_drivers.get(&*node.name) else { return i64::MAX };
        let none = Attached::default();
        let load = load.unwrap_or(&none);
        let mut copies = i64::MAX;
        for (driver, limit) in &drivers.drivers {
            let Some(limit) = limit else { continue };
            let own = demand.attached.iter().find(|(of, _)| **of == **driver).map_or(0, |(_, volumes)| *volumes);
            let shared = demand.attached_shared.iter().filter(|volume| *volume.0 == **driver);
            let new_shared = shared.filter(|volume| !load.shared.contains_key(*volume)).count() as i64;
            if own == 0 && new_shared == 0 {
                continue;
            }
            let attached = if in_empty_cluster {
                load.of_driver(driver)
            } else {
                self.attached_with(driver, node, load, is_on_node)
            };
            let free = i64::from(*limit) - i64::from(attached) - new_shared;
            copies = copies.min(if free < 0 {
                0
            } else if own == 0 {
                i64::MAX
            } else {
                free / i64::from(own)
            });
        }
        copies
    }

    /// How many more volumes of a driver can be attached to a node with this load; `None` if any number.
    pub(crate) fn attachable(
        &self,
        driver: &str,
        node: &Node,
        load: Option<&Attached>,
        is_on_node: &dyn Fn(ClaimId) -> bool,
    ) -> Option<i64> {
        let drivers = &self.node_drivers.get(&*node.name)?.drivers;
        let limit = drivers.iter().find(|(name, _)| **name == *driver).and_then(|(_, limit)| *limit)?;
        let attached = self.attached_with(driver, node, load.unwrap_or(&Attached::default()), is_on_node);
        Some(i64::from(limit) - i64::from(attached))
    }

    /// How many volumes of a driver are attached to a node with this load.
    fn attached_with(&self, driver: &str, node: &Node, load: &Attached, is_on_node: &dyn Fn(ClaimId) -> bool) -> u32 {
        let used = load.of_driver(driver);
        if self.assumes_detached {
            return used;
        }
        let Some(attached) = self.attached_to.get(&*node.name) else { return used };
        let volumes = attached.keys().filter_map(|volume| self.volume_by_name(volume));
        let of_driver = volumes.filter(|volume| volume.attached_by.as_ref().is_some_and(|(of, _)| of == driver));
        let (mut all, mut left_over) = (0, 0);
        for volume in of_driver {
            all += 1;
            let claim = volume.claim.as_ref().and_then(|claim| self.claim_id(&claim.namespace, &claim.name));
            left_over += u32::from(!claim.is_some_and(is_on_node));
        }
        // Without some of its pods the node has a smaller load, but what they attached stays attached for a while.
        all.max(used + left_over)
    }

    /// The first driver of a demand that must be on the node of its pods and is not.
    pub(crate) fn missing_driver<'d>(&self, demand: &'d StorageDemand, node: &Node) -> Option<&'d Arc<str>> {
        let shared = demand.attached_shared.iter().map(|(driver, _)| driver);
        let mut drivers = demand.attached.iter().map(|(driver, _)| driver).chain(shared);
        let known = self.node_drivers.get(&*node.name).map(|known| &known.drivers);
        drivers.find(|driver| {
            self.is_required_on_node(driver) && !known.is_some_and(|known| known.contains_key(&***driver))
        })
    }

    /// A volume is attached to a node. Returns the nodes that are concerned, by name.
    pub(in crate::cluster) fn set_attachment(&mut self, spec: AttachmentSpec) -> Vec<String> {
        if self.attachments.get(&spec.name) == Some(&spec) {
            return Vec::new();
        }
        let mut concerned = self.remove_attachment(&spec.name);
        let volumes = self.attached_to.entry(spec.node.clone()).or_default();
        *volumes.entry(spec.volume.clone()).or_default() += 1;
        self.nodes_of_volume.entry(spec.volume.clone()).or_default().insert(spec.node.clone());
        concerned.push(spec.node.clone());
        self.attachments.insert(spec.name.clone(), spec);
        concerned
    }

    pub(in crate::cluster) fn remove_attachment(&mut self, name: &str) -> Vec<String> {
        let Some(spec) = self.attachments.remove(name) else { return Vec::new() };
        if let Some(volumes) = self.attached_to.get_mut(&spec.node) {
            subtract(volumes, &spec.volume, 1);
            if !volumes.contains_key(&spec.volume) {
                super::remove_from(&mut self.nodes_of_volume, &spec.volume, &spec.node);
            }
            if volumes.is_empty() {
                self.attached_to.remove(&spec.node);
            }
        }
        vec![spec.node]
    }

    /// The nodes, by name, to which volumes are attached, with the claims that these volumes are bound to.
    pub(in crate::cluster) fn attached(&self) -> impl Iterator<Item = (&str, Option<ClaimId>)> {
        self.attached_to.iter().flat_map(|(node, volumes)| {
            volumes.keys().map(|volume| {
                let claim = self.volume_by_name(volume).and_then(|volume| volume.claim.as_ref());
                (node.as_str(), claim.and_then(|claim| self.claim_id(&claim.namespace, &claim.name)))
            })
        })
    }

    pub(in crate::cluster) fn assume_detached(&mut self, assume: bool) {
        self.assumes_detached = assume;
    }

    /// The nodes to which a volume is attached.
    pub(in crate::cluster) fn nodes_with(&self, volume: &str) -> Vec<String> {
        self.nodes_of_volume.get(volume).into_iter().flatten().cloned().collect()
    }

    // Capacity.

    /// Free capacity is published. Returns its storage class if more may be provisioned now.
    pub(in crate::cluster) fn set_capacity(&mut self, spec: CapacitySpec) -> Option<Arc<str>> {
        let name: Arc<str> = spec.storage_class.as_str().into();
        if self.class_of_capacity.get(&spec.key).is_some_and(|known| *known != name) {
            self.remove_capacity(&spec.key);
        }
        self.class_of_capacity.insert(spec.key.clone(), name.clone());
        let revision = self.next_revision();
        let class = self.class_mut(&name);
        class.revision = revision;
        class.capacities.set(spec).then_some(name)
    }

    pub(in crate::cluster) fn remove_capacity(&mut self, key: &(String, String)) {
        let Some(name) = self.class_of_capacity.remove(key) else { return };
        let revision = self.next_revision();
        let class = self.class_mut(&name);
        class.capacities.remove(key);
        class.revision = revision;
    }

    // Hosts.

    /// Which nodes have this value of the label `kubernetes.io/hostname`, which need not be unique.
    pub(in crate::cluster) fn set_host(&mut self, node: NodeId, old: Option<&String>, new: Option<&String>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            super::remove_from(&mut self.hosts, old, &node);
        }
        if let Some(new) = new {
            self.hosts.entry(new.clone()).or_default().insert(node);
        }
    }
}
