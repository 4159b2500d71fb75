//! The volumes of a storage class that claims can be bound to.
//!
//! Volumes that the same nodes can access, and that differ in their size alone, are a pool. A pool is found by the labels
//! of a node: most volumes are of one zone or one host, so that only the pools of that zone and host are looked at.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::node::Node;
use crate::model::ids::VolumeId;
use crate::model::labels::{LabelOperator, NameRequirement, NodeTerm};
use crate::model::storage::{VolumeKind, VolumeSpec};

/// What the volumes of a pool have in common: their kind, and the nodes that can access them.
type PoolKey = (VolumeKind, Option<Vec<NodeTerm>>);

/// A volume of a pool: its size, its name, and its slot.
type Sized = (i64, Box<str>, VolumeId);

/// The pools of a storage class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pools {
    volumes: BTreeMap<PoolKey, BTreeSet<Sized>>,
    /// The pools that only nodes with one of these values of a label can access, by key and value.
    by_label: BTreeMap<String, BTreeMap<String, BTreeSet<PoolKey>>>,
    /// The pools that only the node of a name can access.
    by_name: BTreeMap<String, BTreeSet<PoolKey>>,
    /// All others.
    anywhere: BTreeSet<PoolKey>,
}

impl Pools {
    /// Whether there is no volume.
    pub(super) fn is_empty(&self) -> bool {
        self.volumes.is_empty()
    }

    pub(super) fn add(&mut self, spec: &VolumeSpec, id: VolumeId) {
        let key = key_of(spec);
        if !self.volumes.contains_key(&key) {
            self.list(&key, true);
        }
        self.volumes.entry(key).or_default().insert((spec.capacity_bytes, spec.name.as_str().into(), id));
    }

    /// Removes a volume, if it is listed.
    pub(super) fn remove(&mut self, spec: &VolumeSpec, id: VolumeId) {
        let key = key_of(spec);
        let Some(pool) = self.volumes.get_mut(&key) else { return };
        pool.remove(&(spec.capacity_bytes, spec.name.as_str().into(), id));
        if pool.is_empty() {
            self.volumes.remove(&key);
            self.list(&key, false);
        }
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
        for key in self.accessible_from(node).filter(|(offered, _)| offers(offered, kind)) {
            let large_enough = self.volumes[key].range((request_bytes, Box::<str>::default(), VolumeId(0))..);
            let first = large_enough.into_iter().find(|(_, _, id)| accepts(*id));
            best = first.into_iter().chain(best).min();
        }
        best.map(|(_, _, id)| *id)
    }

    /// How many volumes there are for claims of a kind, counted up to `enough`.
    pub(super) fn count(&self, kind: &VolumeKind, request_bytes: i64, enough: usize) -> usize {
        let pools = self.volumes.iter().filter(|((offered, _), _)| offers(offered, kind));
        let from = (request_bytes, Box::<str>::default(), VolumeId(0));
        pools.flat_map(|(_, pool)| pool.range(from.clone()..)).take(enough).count()
    }

    /// Whether, without this volume, its pool still has so many others that are at least as large.
    pub(super) fn has_more_like(&self, spec: &VolumeSpec, many: usize) -> bool {
        let from = (spec.capacity_bytes, Box::<str>::default(), VolumeId(0));
        let others = self.volumes.get(&key_of(spec)).into_iter().flat_map(|pool| pool.range(from.clone()..));
        others.filter(|(_, name, _)| **name != *spec.name).take(many).count() == many
    }

    fn accessible_from<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a PoolKey> {
        let by_label = self.by_label.iter().filter_map(|(key, values)| values.get(node.labels.get(key)?)).flatten();
        let by_name = self.by_name.get(&*node.name).into_iter().flatten();
        let listed = by_label.chain(by_name).chain(&self.anywhere);
        listed.filter(|(_, terms)| {
            terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
        })
    }

    /// Adds a pool to the lists by which it is found, or removes it.
    fn list(&mut self, key: &PoolKey, add: bool) {
        let Some(terms) = key.1.as_ref() else { return change(&mut self.anywhere, key, add) };
        if terms.is_empty() || !terms.iter().all(|term| anchor(term).is_some()) {
            return change(&mut self.anywhere, key, add);
        }
        for anchor in terms.iter().filter_map(anchor) {
            match anchor {
                Anchor::Name(name) => {
                    change(self.by_name.entry(name.to_owned()).or_default(), key, add);
                    self.by_name.retain(|_, pools| !pools.is_empty());
                }
                Anchor::Label(label, values) => {
                    let by_value = self.by_label.entry(label.to_owned()).or_default();
                    for value in values {
                        let pools = by_value.entry(value.clone()).or_default();
                        change(pools, key, add);
                        if pools.is_empty() {
                            by_value.remove(value);
                        }
                    }
                    if by_value.is_empty() {
                        self.by_label.remove(label);
                    }
                }
            }
        }
    }
}

fn change(pools: &mut BTreeSet<PoolKey>, key: &PoolKey, add: bool) {
    if add {
        pools.insert(key.clone());
    } else {
        pools.remove(key);
    }
}

/// The requirement of a term by which the nodes that may match it are found.
enum Anchor<'a> {
    Name(&'a str),
    Label(&'a str, &'a [String]),
}

fn anchor(term: &NodeTerm) -> Option<Anchor<'_>> {
    let name = term.names.iter().find_map(|name| match name {
        NameRequirement::Is(name) => Some(Anchor::Name(name)),
        NameRequirement::IsNot(_) => None,
    });
    let label = || {
        term.labels.iter().find_map(|requirement| match &requirement.operator {
            LabelOperator::In(values) => Some(Anchor::Label(&requirement.key, values)),
            _ => None,
        })
    };
    name.or_else(label)
}

fn key_of(spec: &VolumeSpec) -> PoolKey {
    (spec.kind.clone(), spec.topology.required_terms.clone())
}

/// Whether a volume that offers the one kind can be bound to a claim for the other; the storage class is that of the
/// pools.
pub(super) fn offers(offered: &VolumeKind, asked: &VolumeKind) -> bool {
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
