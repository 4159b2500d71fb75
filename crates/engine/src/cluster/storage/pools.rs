//! The volumes of a storage class that claims can be bound to.
//!
//! Volumes that the same nodes can access, and that differ in their size alone, are a pool.

use std::collections::{BTreeMap, BTreeSet};

use super::by_label::{ByLabel, anchors_of_terms};
use crate::cluster::node::Node;
use crate::model::ids::{Slab, VolumeId};
use crate::model::labels::{LabelOperator, NodeTerm};
use crate::model::storage::{VolumeKind, VolumeSpec};

/// What the volumes of a pool have in common: their kind, and the nodes that can access them.
type PoolKey = (VolumeKind, Option<Vec<NodeTerm>>);

/// A volume of a pool: its size, its name, and its slot.
type Sized = (i64, Box<str>, VolumeId);

#[derive(Clone, Debug, PartialEq)]
struct Pool {
    kind: VolumeKind,
    terms: Option<Vec<NodeTerm>>,
    volumes: BTreeSet<Sized>,
}

/// The pools of a storage class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pools {
    slots: Slab<Pool>,
    ids: BTreeMap<PoolKey, u32>,
    index: ByLabel<u32>,
}

impl Pools {
    /// Whether there is no volume.
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn add(&mut self, spec: &VolumeSpec, id: VolumeId) {
        let key = key_of(spec);
        let pool = self.ids.get(&key).copied().unwrap_or_else(|| {
            let (kind, terms) = key.clone();
            let pool = self.slots.insert(Pool { kind, terms, volumes: BTreeSet::new() });
            self.index.insert(&pool, anchors_of_terms(key.1.as_deref()).as_deref());
            self.ids.insert(key, pool);
            pool
        });
        self.slots.get_mut(pool).expect("a listed pool exists").volumes.insert(sized(spec, id));
    }

    /// Removes a volume, if it is listed. Returns whether it was.
    pub(super) fn remove(&mut self, spec: &VolumeSpec, id: VolumeId) -> bool {
        let key = key_of(spec);
        let Some(number) = self.ids.get(&key).copied() else { return false };
        let pool = self.slots.get_mut(number).expect("a listed pool exists");
        let was_listed = pool.volumes.remove(&sized(spec, id));
        if pool.volumes.is_empty() {
            self.slots.remove(number);
            self.ids.remove(&key);
            self.index.remove(&number, anchors_of_terms(key.1.as_deref()).as_deref());
        }
        was_listed
    }

    /// The smallest volume of a kind that a node can access, that is large enough, and that `accepts` accepts.
    pub(super) fn smallest(
        &self,
        kind: &VolumeKind,
        request_bytes: i64,
        node: &Node,
        accepts: impl Fn(VolumeId) -> bool,
    ) -> Option<VolumeId> {
        let mut best: Option<&Sized> = None;
        for pool in self.index.of_node(&node.labels) {
            let pool = self.slots.get(*pool).expect("a listed pool exists");
            if offers(&pool.kind, kind) && matches_any(pool.terms.as_deref(), node) {
                let mut large_enough = pool.volumes.range(at_least(request_bytes)..);
                let first = large_enough.find(|(_, _, id)| accepts(*id));
                best = first.into_iter().chain(best).min();
            }
        }
        best.map(|(_, _, id)| *id)
    }

    /// How many volumes there are for claims of a kind, counted up to `enough`.
    pub(super) fn count(&self, kind: &VolumeKind, request_bytes: i64, enough: usize) -> usize {
        let pools = self.slots.iter().map(|(_, pool)| pool).filter(|pool| offers(&pool.kind, kind));
        pools.flat_map(|pool| pool.volumes.range(at_least(request_bytes)..)).take(enough).count()
    }

    /// The same for volumes that a node can access, some of which may be counted more than once.
    pub(super) fn count_on_node(&self, kind: &VolumeKind, request_bytes: i64, node: &Node, enough: usize) -> usize {
        let pools = self.index.of_node(&node.labels).filter_map(|pool| self.slots.get(*pool));
        let usable = pools.filter(|pool| offers(&pool.kind, kind) && matches_any(pool.terms.as_deref(), node));
        usable.flat_map(|pool| pool.volumes.range(at_least(request_bytes)..)).take(enough).count()
    }

    /// How many others that are at least as large are in the pool of a volume, counted up to `enough`.
    pub(super) fn others_like(&self, spec: &VolumeSpec, enough: usize) -> usize {
        let pool = self.ids.get(&key_of(spec)).and_then(|pool| self.slots.get(*pool));
        let others = pool.into_iter().flat_map(|pool| pool.volumes.range(at_least(spec.capacity_bytes)..));
        others.filter(|(_, name, _)| **name != *spec.name).take(enough).count()
    }

    /// How many others of the same size are in the pool of a volume, counted up to `enough`.
    pub(super) fn twins_of(&self, spec: &VolumeSpec, enough: usize) -> usize {
        let pool = self.ids.get(&key_of(spec)).and_then(|pool| self.slots.get(*pool));
        let of_size = pool.into_iter().flat_map(|pool| pool.volumes.range(at_least(spec.capacity_bytes)..));
        let twins = of_size.take_while(|(bytes, ..)| *bytes == spec.capacity_bytes);
        twins.filter(|(_, name, _)| **name != *spec.name).take(enough).count()
    }
}

fn key_of(spec: &VolumeSpec) -> PoolKey {
    (spec.kind.clone(), spec.topology.required_terms.clone())
}

fn sized(spec: &VolumeSpec, id: VolumeId) -> Sized {
    (spec.capacity_bytes, spec.name.as_str().into(), id)
}

fn at_least(bytes: i64) -> Sized {
    (bytes, Box::default(), VolumeId(0))
}

/// Whether a node matches one of the terms, or there are none to match.
pub(super) fn matches_any(terms: Option<&[NodeTerm]>, node: &Node) -> bool {
    terms.is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
}

/// Whether a volume that offers the one kind can be bound to a claim for the other; the storage class is that of the
/// pools.
fn offers(offered: &VolumeKind, asked: &VolumeKind) -> bool {
    offered.storage_class == asked.storage_class
        && offered.block == asked.block
        && offered.attributes_class == asked.attributes_class
        && offered.access_modes.is_superset(&asked.access_modes)
}

/// The only value of the label `kubernetes.io/hostname` with which a node can access a volume, if there is one.
pub(super) fn host_of(spec: &VolumeSpec) -> Option<&str> {
    let [term] = spec.topology.required_terms.as_deref()? else { return None };
    term.labels.iter().find_map(|requirement| match &requirement.operator {
        LabelOperator::In(values) if requirement.key == "kubernetes.io/hostname" && values.len() == 1 => {
            values.first().map(String::as_str)
        }
        _ => None,
    })
}
