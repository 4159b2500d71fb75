//! Pools: how much the volumes of a class may have together in one place, and what is left of it.
//!
//! A pool is a CSIStorageCapacity with the annotation for its size. Its `capacity` is what is left, which the scheduler
//! reads; nothing is kept that the objects do not show.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use muster_api::invalid::FieldPath;
use muster_api::quantity::Quantity;
use muster_api::selector::{LabelSelector, Labels, WrittenLabelSelector};
use muster_api::wire::Node;
use muster_playground_client::api_errors::{is_conflict, is_not_found};
use serde_json::json;

use super::StorageController;
use super::provisioner::{POOL, attribute};
use super::settings::{POOL_SIZE, Settings, is_ours, pool_size_of};
use crate::owners::controlled_by;
use crate::volumes::fresh_cache;
use crate::volumes::objects::{amount, capacity};

/// The namespace of the pools that the provisioner publishes.
const NAMESPACE: &str = "kube-system";

/// Where a volume is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement {
    /// The value of the topology label.
    pub(super) value: Option<String>,
    /// The pool that it takes its space from.
    pub(super) pool: Option<String>,
}

fn pool_name(pool: &CSIStorageCapacity) -> String {
    format!("{}/{}", pool.namespace().unwrap_or_default(), pool.name_any())
}

impl StorageController {
    /// The pools of a class.
    fn pools_of(&self, class: &str) -> impl Iterator<Item = &CSIStorageCapacity> {
        let pools = self.pools.all().map(|pool| &**pool);
        pools.filter(move |pool| pool.storage_class_name == class && pool_size_of(*pool).is_some())
    }

    pub(super) fn has_pools(&self, class: &str) -> bool {
        self.pools_of(class).next().is_some()
    }

    /// What is left of a pool, also without the volumes that are being written.
    fn left(&self, pool: &CSIStorageCapacity) -> i128 {
        let name = pool_name(pool);
        let is_in = |volume: &PersistentVolume| attribute(volume, POOL) == Some(&name);
        let written = self.operations.values().filter_map(|operation| operation.written());
        // An answer may arrive after the event that shows the volume.
        let written = written.filter(|volume| self.volumes.find("", &volume.name_any()).is_none());
        let all = self.volumes.all().map(|volume| &**volume).chain(written);
        let used: i128 = all.filter(|volume| is_in(volume)).map(|volume| capacity(volume).nanos()).sum();
        (pool_size_of(pool).unwrap_or_default().nanos() - used).max(0)
    }

    /// Where a volume of this size is made; the error says why nowhere.
    pub(super) fn place(
        &self,
        class: &StorageClass,
        settings: &Settings,
        node: Option<&Node>,
        size: Quantity,
    ) -> Result<Placement, String> {
        let candidates = self.candidates(class, settings, node)?;
        if let Some(max) = settings.volume_size_max.filter(|max| *max < size) {
            let (size, max) = (printed(size.nanos()), printed(max.nanos()));
            return Err(format!("{size} is more than the largest volume, {max}"));
        }
        if !self.has_pools(&class.name_any()) {
            let value = candidates.into_iter().next().and_then(|(value, _)| value);
            return Ok(Placement { value, pool: None });
        }
        let mut why = Vec::new();
        for (value, labels) in candidates {
            for pool in self.pools_of(&class.name_any()).filter(|pool| is_reachable(pool, &labels)) {
                let left = self.left(pool);
                let max = pool.maximum_volume_size.as_ref().map(|max| amount(Some(max)));
                if left >= size.nanos() && max.is_none_or(|max| max >= size) {
                    return Ok(Placement { value, pool: Some(pool_name(pool)) });
                }
                why.push(format!("pool {} has {} left", pool_name(pool), printed(left)));
            }
        }
        let why = if why.is_empty() { "no pool can be reached".to_owned() } else { why.join(", ") };
        Err(format!("no room for {}: {why}", printed(size.nanos())))
    }

    /// The places in question: values of the topology label, with the labels by which pools are found.
    fn candidates(
        &self,
        class: &StorageClass,
        settings: &Settings,
        node: Option<&Node>,
    ) -> Result<Vec<(Option<String>, Labels)>, String> {
        let labels = node.map(|node| node.metadata.labels.clone().unwrap_or_default());
        let Some(key) = &settings.topology else { return Ok(vec![(None, labels.unwrap_or_default())]) };
        let at = |labels: &Labels, value: &str| {
            let mut labels = labels.clone();
            labels.insert(key.clone(), value.to_owned());
            (Some(value.to_owned()), labels)
        };
        if let Some(place) = &settings.place {
            return Ok(vec![at(&labels.unwrap_or_default(), place)]);
        }
        if let (Some(node), Some(labels)) = (node, labels) {
            return match labels.get(key) {
                Some(value) => Ok(vec![at(&labels, value)]),
                None => Err(format!("node {:?} has no label {key}", node.name_any())),
            };
        }
        // Without a node any place will do that the class allows.
        let nodes = self.nodes.all().filter_map(|node| node.metadata.labels.as_ref());
        let allowed = nodes.filter(|labels| allows(class, labels));
        let values: BTreeMap<&String, &Labels> =
            allowed.filter_map(|labels| Some((labels.get(key)?, labels))).collect();
        let places: Vec<_> = values.into_iter().map(|(value, labels)| at(labels, value)).collect();
        if places.is_empty() { Err(format!("no node has the label {key}")) } else { Ok(places) }
    }

    /// Publishes the pools of a class, and what is left of each.
    pub(super) async fn sync_pools(&mut self, name: &str) -> Result<(), kube::Error> {
        if let Some(class) = self.classes.find("", name).filter(|class| is_ours(class)).cloned()
            && let Ok(settings) = Settings::of_class(&class)
            && let Some(size) = settings.pool_size
        {
            let values: BTreeSet<String> = match &settings.topology {
                None => BTreeSet::from([String::new()]),
                Some(key) => {
                    let labels = self.nodes.all().filter_map(|node| node.metadata.labels.as_ref());
                    labels.filter_map(|labels| labels.get(key).cloned()).collect()
                }
            };
            for value in values {
                let pool = new_pool(&class, &settings, &value, size);
                if self.pools.find(NAMESPACE, &pool.name_any()).is_none() {
                    let pools: Api<CSIStorageCapacity> = Api::namespaced(self.client.clone(), NAMESPACE);
                    match pools.create(&PostParams::default(), &pool).await {
                        Ok(pool) => drop(fresh_cache::store(&mut self.pools, pool)),
                        Err(error) if is_conflict(&error) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        let changes = self.pools_of(name).map(|pool| (pool.clone(), self.left(pool)));
        let changes = changes.filter(|(pool, left)| amount(pool.capacity.as_ref()).nanos() != *left);
        for (pool, left) in changes.collect::<Vec<_>>() {
            let pools: Api<CSIStorageCapacity> =
                Api::namespaced(self.client.clone(), &pool.namespace().unwrap_or_default());
            let patch = Patch::Merge(json!({"capacity": printed(left)}));
            match pools.patch(&pool.name_any(), &PatchParams::default(), &patch).await {
                Ok(pool) => drop(fresh_cache::store(&mut self.pools, pool)),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// An amount in whole bytes, rounded down, with the largest binary suffix that needs no fraction.
fn printed(nanos: i128) -> String {
    let mut number = nanos / 1_000_000_000;
    let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti"].into_iter().peekable();
    let mut suffix = suffixes.next().unwrap_or_default();
    while number != 0 && number % 1024 == 0 && suffixes.peek().is_some() {
        number /= 1024;
        suffix = suffixes.next().unwrap_or_default();
    }
    format!("{number}{suffix}")
}

fn new_pool(class: &StorageClass, settings: &Settings, value: &str, size: Quantity) -> CSIStorageCapacity {
    let name = if value.is_empty() { class.name_any() } else { format!("{}-{value}", class.name_any()) };
    let valid = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    let name: String = name.to_lowercase().chars().map(valid).collect();
    let topology = match &settings.topology {
        None => json!({}),
        Some(key) => json!({"matchLabels": {key: value}}),
    };
    let mut pool: CSIStorageCapacity = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {POOL_SIZE: printed(size.nanos())}},
        "storageClassName": class.name_any(), "nodeTopology": topology, "capacity": printed(size.nanos()),
        "maximumVolumeSize": settings.volume_size_max.map(|max| printed(max.nanos())),
    }))
    .unwrap_or_default();
    pool.metadata.owner_references = Some(vec![controlled_by(class)]);
    pool
}

/// Whether nodes with these labels reach the pool.
fn is_reachable(pool: &CSIStorageCapacity, labels: &Labels) -> bool {
    let Some(topology) = &pool.node_topology else { return false };
    let written = serde_json::to_value(topology).and_then(serde_json::from_value::<WrittenLabelSelector>);
    let path = FieldPath::Root("nodeTopology");
    let read = written.ok().and_then(|written| WrittenLabelSelector::validate(Some(&written), &path).ok());
    read.unwrap_or(LabelSelector::Nothing).matches(labels)
}

/// Whether a class allows nodes with these labels.
fn allows(class: &StorageClass, labels: &Labels) -> bool {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    terms.is_empty()
        || terms.iter().any(|term| {
            let expressions = term.match_label_expressions.as_deref().unwrap_or_default();
            let holds = |key: &str, values: &[String]| labels.get(key).is_some_and(|label| values.contains(label));
            !expressions.is_empty() && expressions.iter().all(|one| holds(&one.key, &one.values))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_printed_in_the_largest_unit() {
        for (written, expected) in
            [("0", "0"), ("1000", "1000"), ("1536", "1536"), ("2Ki", "2Ki"), ("3072Mi", "3Gi"), ("2048Ti", "2048Ti")]
        {
            assert_eq!(printed(written.parse::<Quantity>().unwrap().nanos()), expected);
        }
        assert_eq!(printed("1500m".parse::<Quantity>().unwrap().nanos()), "1");
    }
}
