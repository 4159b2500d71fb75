//! How much can still be provisioned of a storage class, as its driver publishes it.
//!
//! What placements that wait have chosen to provision is deducted until it is bound. kube-scheduler deducts nothing, so
//! that all members of a gang can pass against storage that only one of them gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::by_label::{ByLabel, anchors_of_requirements};
use crate::cluster::node::Node;
use crate::model::storage::CapacitySpec;

/// Namespace and name of a published capacity.
pub(crate) type CapacityKey = Arc<(String, String)>;

/// The published capacities of a storage class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Capacities {
    published: BTreeMap<CapacityKey, CapacitySpec>,
    index: ByLabel<CapacityKey>,
    /// What is to be provisioned from each, also while it is not published.
    planned_bytes: BTreeMap<CapacityKey, i128>,
}

impl Capacities {
    /// Publishes a capacity. Returns whether volumes may be provisioned now that could not be before.
    pub(super) fn set(&mut self, spec: CapacitySpec) -> bool {
        let key = Arc::new(spec.key.clone());
        let former = self.remove(&spec.key);
        let helps = former.is_none_or(|former| {
            former.nodes != spec.nodes || limit(&spec) > limit(&former) || spec.capacity_bytes > former.capacity_bytes
        });
        if let Some(nodes) = &spec.nodes {
            self.index.insert(&key, anchors_of_requirements(nodes).as_deref());
        }
        self.published.insert(key, spec);
        helps
    }

    pub(super) fn remove(&mut self, key: &(String, String)) -> Option<CapacitySpec> {
        let (key, spec) = self.published.remove_entry(key)?;
        if let Some(nodes) = &spec.nodes {
            self.index.remove(&key, anchors_of_requirements(nodes).as_deref());
        }
        Some(spec)
    }

    /// The first capacity, by name, from which a volume of this size can be provisioned for a node.
    pub(super) fn for_volume(&self, request_bytes: i64, node: &Node) -> Option<&CapacityKey> {
        let serves = |key: &&CapacityKey| {
            let spec = &self.published[*key];
            spec.nodes.as_ref().is_some_and(|terms| terms.iter().all(|term| term.matches(&node.labels)))
                && self.has(key, spec, request_bytes)
        };
        let (key, _) = self.published.get_key_value(self.index.of_node(&node.labels).filter(serves).min()?)?;
        Some(key)
    }

    fn has(&self, key: &CapacityKey, spec: &CapacitySpec, request_bytes: i64) -> bool {
        let fits = limit(spec).is_some_and(|limit| limit >= request_bytes);
        let is_planned = self.planned_bytes.contains_key(key);
        fits && (!is_planned || self.left_bytes(key).is_none_or(|left| left >= request_bytes))
    }

    /// What is published of a capacity; zero if nothing is.
    pub(super) fn published_bytes(&self, key: &CapacityKey) -> i64 {
        self.published.get(key).and_then(|spec| spec.capacity_bytes).unwrap_or(0)
    }

    /// What is left of a capacity, if that is known.
    pub(super) fn left_bytes(&self, key: &CapacityKey) -> Option<i64> {
        let planned_bytes = self.planned_bytes.get(key).copied().unwrap_or(0);
        let left_bytes = i128::from(self.published.get(key)?.capacity_bytes?) - planned_bytes;
        Some(i64::try_from(left_bytes).unwrap_or(i64::MIN))
    }

    /// Deducts what is to be provisioned, or no longer.
    pub(super) fn deduct(&mut self, key: &CapacityKey, bytes: i128) {
        let planned_bytes = self.planned_bytes.entry(key.clone()).or_default();
        *planned_bytes += bytes;
        if *planned_bytes == 0 {
            self.planned_bytes.remove(key);
        }
    }

    /// Whether nothing is published.
    pub(super) fn is_empty(&self) -> bool {
        self.published.is_empty()
    }

    /// What is to be provisioned from each.
    pub(super) fn planned(&self) -> impl Iterator<Item = (&CapacityKey, i128)> {
        self.planned_bytes.iter().map(|(key, bytes)| (key, *bytes))
    }
}

/// The size of the largest volume that can be provisioned.
fn limit(spec: &CapacitySpec) -> Option<i64> {
    spec.volume_bytes_max.or(spec.capacity_bytes)
}
