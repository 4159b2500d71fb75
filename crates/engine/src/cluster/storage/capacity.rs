//! How much can still be provisioned of a storage class, as its driver publishes it.
//!
//! What placements that wait have chosen to provision is deducted until it is bound. kube-scheduler deducts nothing, so
//! that all members of a gang can pass against storage that only one of them gets.

use std::collections::BTreeMap;

use crate::cluster::node::Node;
use crate::model::storage::CapacitySpec;

/// Namespace and name of a published capacity.
pub(crate) type CapacityKey = (String, String);

#[derive(Clone, Debug, PartialEq)]
struct Capacity {
    spec: CapacitySpec,
    /// What is to be provisioned from it.
    planned_bytes: i64,
}

/// The published capacities of a storage class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Capacities(BTreeMap<CapacityKey, Capacity>);

impl Capacities {
    pub(super) fn set(&mut self, spec: CapacitySpec) {
        let planned_bytes = self.0.get(&spec.key).map_or(0, |known| known.planned_bytes);
        self.0.insert(spec.key.clone(), Capacity { spec, planned_bytes });
    }

    pub(super) fn remove(&mut self, key: &CapacityKey) -> bool {
        self.0.remove(key).is_some()
    }

    /// The first capacity, by name, from which a volume of this size can be provisioned for a node.
    pub(super) fn for_volume(&self, request_bytes: i64, node: &Node) -> Option<&CapacityKey> {
        let has = |(_, capacity): &(&CapacityKey, &Capacity)| capacity.serves(node) && capacity.has(request_bytes);
        self.0.iter().find(has).map(|(key, _)| key)
    }

    /// Deducts what is to be provisioned, or no longer. Returns whether a volume of the largest size in use may not fit
    /// any more, or may fit again.
    pub(super) fn deduct(&mut self, key: &CapacityKey, bytes: i64, largest_bytes: i64) -> bool {
        let Some(capacity) = self.0.get_mut(key) else { return false };
        let before = capacity.left_bytes();
        capacity.planned_bytes = capacity.planned_bytes.saturating_add(bytes).max(0);
        before.into_iter().chain(capacity.left_bytes()).any(|left| left < largest_bytes)
    }

    /// Whether anything is published.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is to be provisioned from each.
    pub(super) fn planned(&self) -> impl Iterator<Item = (&CapacityKey, i64)> {
        self.0.iter().map(|(key, capacity)| (key, capacity.planned_bytes))
    }
}

impl Capacity {
    fn serves(&self, node: &Node) -> bool {
        let terms = self.spec.nodes.as_ref();
        terms.is_some_and(|terms| terms.iter().all(|requirement| requirement.matches(&node.labels)))
    }

    fn has(&self, request_bytes: i64) -> bool {
        let limit = self.spec.volume_bytes_max.or(self.spec.capacity_bytes);
        let left_bytes = self.left_bytes().filter(|_| self.planned_bytes > 0);
        limit.is_some_and(|limit| limit >= request_bytes) && left_bytes.is_none_or(|left| left >= request_bytes)
    }

    fn left_bytes(&self) -> Option<i64> {
        Some(self.spec.capacity_bytes?.saturating_sub(self.planned_bytes))
    }
}
