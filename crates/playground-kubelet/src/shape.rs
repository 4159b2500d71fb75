//! The shape of a cluster as data: pools of identical nodes, laid out over racks, zones and other domains.
//!
//! Invariant: the nodes of a shape that was read have valid names, labels, taints and resources.
//! Must not depend on the API or on how the nodes are run.

use std::collections::BTreeSet;

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::names::{check_dns_subdomain, check_label_key, check_label_value};
use muster_api::quantity::Quantity;
use muster_api::resources::{self, BaseUnits, Place, WrittenResources};
use muster_api::selector::Labels;
use muster_api::toleration::{Taint, WrittenTaint};
use serde::Deserialize;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const RACK: &str = "playground.muster.dev/rack";
/// The maximum number of nodes of a shape; addresses are derived from the index.
const NODES_MAX: u64 = 65_536;

/// Why a shape cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// It cannot be deserialized.
    #[error("{field}: {reason}")]
    Unreadable {
        /// The path of the field.
        field: String,
        /// What is wrong, with the value.
        reason: String,
    },
    /// A value is not allowed.
    #[error(transparent)]
    Invalid(#[from] InvalidField),
}

/// The nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Groups of identical nodes.
    pub pools: Vec<Pool>,
}

/// Identical nodes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// The prefix of the nodes' names.
    pub name: String,
    /// The number of nodes.
    pub count: u32,
    /// The capacity of a node.
    pub capacity: WrittenResources,
    /// The allocatable resources of a node; the capacity if left out.
    #[serde(default)]
    pub allocatable: Option<WrittenResources>,
    /// Labels of every node.
    #[serde(default)]
    pub labels: Labels,
    /// Taints of every node.
    #[serde(default)]
    pub taints: Vec<PoolTaint>,
    /// How the nodes are laid out over domains.
    #[serde(default)]
    pub domains: Vec<Domain>,
    /// The CSI drivers on every node.
    #[serde(default)]
    pub drivers: Vec<PoolDriver>,
    /// The storage that the nodes reach.
    #[serde(default)]
    pub capacities: Vec<PoolCapacity>,
}

/// A CSI driver on every node of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PoolDriver {
    /// The name of the driver.
    pub name: String,
    /// How many volumes of the driver a node takes; any number if left out.
    #[serde(default)]
    pub attach_limit: Option<u32>,
}

/// Storage of a class: a pool for each value of a node label.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PoolCapacity {
    /// The storage class.
    pub storage_class: String,
    /// The size of each pool.
    pub capacity: String,
    /// The largest volume, if there is a limit.
    #[serde(default)]
    pub maximum_volume_size: Option<String>,
    /// The label whose values have a pool each; that of the host name if left out.
    #[serde(default = "hostname")]
    pub per: String,
}

fn hostname() -> String {
    HOSTNAME.to_owned()
}

/// A taint of a pool's nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolTaint {
    /// The key.
    pub key: String,
    /// The value.
    #[serde(default)]
    pub value: String,
    /// The effect.
    pub effect: String,
}

/// A label that divides a pool into blocks of consecutive nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// The label's key; the last part of it is the prefix of the values.
    pub key: String,
    /// The number of blocks.
    pub count: u32,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeShape {
    /// The name.
    pub name: String,
    /// All labels.
    pub labels: Labels,
    /// The initial taints.
    pub taints: Vec<Taint>,
    /// The capacity.
    pub capacity: WrittenResources,
    /// The allocatable resources.
    pub allocatable: WrittenResources,
    /// The allocatable resources in base units.
    pub allocatable_units: BaseUnits,
    /// The CSI drivers.
    pub drivers: Vec<PoolDriver>,
    /// The storage that it reaches.
    pub capacities: Vec<PoolCapacity>,
}

impl Default for Shape {
    /// Sixteen nodes with eight GPUs each, in four racks and two zones.
    fn default() -> Self {
        Self::of_nodes(16)
    }
}

impl Shape {
    /// This many nodes with eight GPUs each, in four racks and two zones.
    pub fn of_nodes(count: u32) -> Self {
        let capacity = [("cpu", "64"), ("memory", "512Gi"), ("pods", "110"), ("nvidia.com/gpu", "8")];
        let domain = |key: &str, count| Domain { key: key.to_owned(), count };
        Self {
            pools: vec![Pool {
                name: "node".to_owned(),
                count,
                capacity: capacity.into_iter().map(|(name, amount)| (name.to_owned(), amount.into())).collect(),
                allocatable: None,
                labels: Labels::new(),
                taints: Vec::new(),
                domains: vec![domain(RACK, 4), domain(ZONE, 2)],
                drivers: Vec::new(),
                capacities: Vec::new(),
            }],
        }
    }
}

impl Shape {
    /// Reads a shape from JSON.
    pub fn from_json(text: &str) -> Result<Self, ShapeError> {
        let unreadable =
            |error: serde_json::Error| ShapeError::Unreadable { field: ".".to_owned(), reason: error.to_string() };
        Self::from_value(serde_json::from_str(text).map_err(unreadable)?)
    }

    /// Reads a shape from a deserialized JSON or YAML value.
    pub fn from_value(value: serde_json::Value) -> Result<Self, ShapeError> {
        let shape: Self = serde_path_to_error::deserialize(value).map_err(|error| ShapeError::Unreadable {
            field: error.path().to_string(),
            reason: error.inner().to_string(),
        })?;
        shape.nodes()?;
        Ok(shape)
    }

    /// The nodes, pool by pool, in the order of their names.
    pub fn nodes(&self) -> Result<Vec<NodeShape>, ShapeError> {
        let root = FieldPath::Root("pools");
        let total: u64 = self.pools.iter().map(|pool| u64::from(pool.count)).sum();
        if total > NODES_MAX {
            return Err(root.invalid(&total, format_args!("must have at most {NODES_MAX} nodes")).into());
        }
        let mut names = BTreeSet::new();
        let mut nodes = Vec::new();
        for (index, pool) in self.pools.iter().enumerate() {
            let path = root.index(index);
            if !names.insert(&pool.name) {
                return Err(path.child("name").invalid(&pool.name, "another pool has this name").into());
            }
            nodes.extend(pool.nodes(&path)?);
        }
        Ok(nodes)
    }
}

impl Pool {
    fn nodes(&self, path: &FieldPath<'_>) -> Result<Vec<NodeShape>, InvalidField> {
        let digits = self.count.saturating_sub(1).to_string().len();
        let name_of = |index: u32| format!("{}-{index:0digits$}", self.name);
        check_dns_subdomain(&name_of(0)).map_err(|reason| path.child("name").invalid(&self.name, reason))?;
        self.check_labels(path)?;
        let taints = self.checked_taints(&path.child("taints"))?;
        self.check_storage(path)?;
        let capacity_path = path.child("capacity");
        let capacity = resources::validate(&self.capacity, Place::Node, &capacity_path)?;
        let capacity = resources::list_in_base_units(&capacity, &capacity_path)?;
        let allocatable = self.allocatable.as_ref().unwrap_or(&self.capacity);
        let allocatable_path = path.child(if self.allocatable.is_some() { "allocatable" } else { "capacity" });
        let units = resources::validate(allocatable, Place::Node, &allocatable_path)?;
        let units = resources::list_in_base_units(&units, &allocatable_path)?;
        if let Some((name, _)) =
            units.iter().find(|(name, amount)| **amount > capacity.get(*name).copied().unwrap_or(0))
        {
            return Err(allocatable_path.key(name).invalid(&allocatable.get(name), "is more than the capacity"));
        }
        Ok((0..self.count)
            .map(|index| NodeShape {
                name: name_of(index),
                labels: self.labels_of(index, &name_of(index)),
                taints: taints.clone(),
                capacity: self.capacity.clone(),
                allocatable: allocatable.clone(),
                allocatable_units: units.clone(),
                drivers: self.drivers.clone(),
                capacities: self.capacities.clone(),
            })
            .collect())
    }

    fn check_labels(&self, path: &FieldPath<'_>) -> Result<(), InvalidField> {
        let labels = path.child("labels");
        for (key, value) in &self.labels {
            check_label_key(key).map_err(|reason| labels.key(key).invalid(key, reason))?;
            check_label_value(value).map_err(|reason| labels.key(key).invalid(value, reason))?;
        }
        let domains = path.child("domains");
        let mut keys = BTreeSet::new();
        for (index, domain) in self.domains.iter().enumerate() {
            let path = domains.index(index);
            check_label_key(&domain.key).map_err(|reason| path.child("key").invalid(&domain.key, reason))?;
            if domain.count == 0 {
                return Err(path.child("count").invalid(&domain.count, "must be at least 1"));
            }
            if self.labels.contains_key(&domain.key) || !keys.insert(&domain.key) {
                return Err(path.child("key").invalid(&domain.key, "the pool has this label already"));
            }
            let longest = value_of(&domain.key, domain.count);
            check_label_value(&longest).map_err(|reason| path.child("key").invalid(&domain.key, reason))?;
        }
        Ok(())
    }

    fn check_storage(&self, path: &FieldPath<'_>) -> Result<(), InvalidField> {
        let drivers = path.child("drivers");
        let mut names = BTreeSet::new();
        for (index, driver) in self.drivers.iter().enumerate() {
            let path = drivers.index(index);
            let name = path.child("name");
            check_dns_subdomain(&driver.name.to_lowercase()).map_err(|reason| name.invalid(&driver.name, reason))?;
            if !names.insert(&driver.name) {
                return Err(name.invalid(&driver.name, "the pool has this driver already"));
            }
        }
        let capacities = path.child("capacities");
        for (index, pool) in self.capacities.iter().enumerate() {
            let path = capacities.index(index);
            let class = path.child("storageClass");
            check_dns_subdomain(&pool.storage_class).map_err(|reason| class.invalid(&pool.storage_class, reason))?;
            for (field, amount) in
                [("capacity", Some(&pool.capacity)), ("maximumVolumeSize", pool.maximum_volume_size.as_ref())]
            {
                let Some(amount) = amount else { continue };
                let is_valid = amount.parse::<Quantity>().is_ok_and(|amount| !amount.is_negative());
                if !is_valid {
                    return Err(path.child(field).invalid(amount, "must be a quantity such as 100Gi"));
                }
            }
            if !self.labels_of(0, "").contains_key(&pool.per) {
                return Err(path.child("per").invalid(&pool.per, "the nodes have no such label"));
            }
        }
        Ok(())
    }

    fn checked_taints(&self, path: &FieldPath<'_>) -> Result<Vec<Taint>, InvalidField> {
        let written = self.taints.iter().cloned();
        let written = written.map(|taint| WrittenTaint { key: taint.key, value: taint.value, effect: taint.effect });
        WrittenTaint::validate_all(&written.collect::<Vec<_>>(), path)
    }

    fn labels_of(&self, index: u32, name: &str) -> Labels {
        let standard = [(HOSTNAME, name), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")];
        let mut labels: Labels = standard.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        for domain in &self.domains {
            let block = u64::from(index) * u64::from(domain.count) / u64::from(self.count);
            labels.insert(domain.key.clone(), value_of(&domain.key, block as u32));
        }
        labels.extend(self.labels.clone());
        labels
    }
}

/// The label value of a block: the last part of the key and the block's index.
fn value_of(key: &str, block: u32) -> String {
    let last = key.rsplit('/').next().unwrap_or(key);
    format!("{last}-{block}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_has_racks_inside_zones() {
        let nodes = Shape::default().nodes().unwrap();
        assert_eq!(nodes.len(), 16);
        let place = |index: usize| (nodes[index].labels[RACK].as_str(), nodes[index].labels[ZONE].as_str());
        assert_eq!(place(0), ("rack-0", "zone-0"));
        assert_eq!(place(3), ("rack-0", "zone-0"));
        assert_eq!(place(4), ("rack-1", "zone-0"));
        assert_eq!(place(15), ("rack-3", "zone-1"));
        assert_eq!(nodes[9].name, "node-09");
        assert_eq!(nodes[9].labels[HOSTNAME], "node-09");
        assert!(nodes.is_sorted_by_key(|node| &node.name));
        let units: Vec<_> = nodes[0].allocatable_units.iter().map(|(name, amount)| (name.as_str(), *amount)).collect();
        assert_eq!(units, [("cpu", 64_000), ("memory", 512 << 30), ("nvidia.com/gpu", 8), ("pods", 110)]);
    }

    #[test]
    fn nodes_follow_the_shape() {
        let shape = Shape::from_json(
            r#"{"pools": [{"name": "cpu", "count": 2, "capacity": {"cpu": 4, "pods": "10"},
                "allocatable": {"cpu": "3500m", "pods": 10}, "labels": {"kubernetes.io/arch": "arm64"},
                "taints": [{"key": "spot", "effect": "NoSchedule"}], "domains": [{"key": "block", "count": 2}]}]}"#,
        );
        let nodes = shape.unwrap().nodes().unwrap();
        assert_eq!(nodes[1].name, "cpu-1");
        assert_eq!(nodes[1].labels["block"], "block-1");
        assert_eq!(nodes[1].labels["kubernetes.io/arch"], "arm64");
        assert_eq!(nodes[1].allocatable_units["cpu"], 3500);
        assert_eq!(nodes[1].taints[0].key, "spot");
    }

    #[test]
    fn errors_name_field_and_value() {
        let pool = |more: &str| format!(r#"{{"pools": [{{"name": "a", "count": 1, "capacity": {{}}{more}}}]}}"#);
        for (text, expected) in [
            (pool(r#", "colour": 1"#), "pools[0].colour: unknown field `colour`"),
            (
                pool(r#", "domains": [{"key": "z", "count": "x"}]"#),
                "pools[0].domains[0].count: invalid type: string \"x\"",
            ),
            (pool(r#", "domains": [{"key": "z", "count": 0}]"#), "pools[0].domains[0].count: 0: must be at least 1"),
            (pool(r#", "allocatable": {"cpu": "4x"}"#), "pools[0].allocatable[cpu]: \"4x\""),
            (
                pool(r#", "allocatable": {"cpu": "4000"}"#),
                "pools[0].allocatable[cpu]: \"4000\": is more than the capacity",
            ),
            (pool(r#", "labels": {"a b": "c"}"#), "pools[0].labels[a b]: \"a b\""),
            (pool(r#", "taints": [{"key": "t", "effect": "Never"}]"#), "pools[0].taints[0].effect: \"Never\""),
            (pool(r#"}, {"name": "a", "count": 1, "capacity": {}"#), "pools[1].name: \"a\": another pool"),
            (r#"{"pools": [{"name": "A_", "count": 1, "capacity": {}}]}"#.to_owned(), "pools[0].name: \"A_\""),
            (r#"{"pools": [{"name": "a", "count": 70000, "capacity": {}}]}"#.to_owned(), "pools: 70000: must have"),
            (
                pool(r#", "drivers": [{"name": "a", "attachLimit": -1}]"#),
                "pools[0].drivers[0].attachLimit: invalid value: integer `-1`",
            ),
            (pool(r#", "drivers": [{"name": "a"}, {"name": "a"}]"#), "pools[0].drivers[1].name: \"a\": the pool has"),
            (
                pool(r#", "capacities": [{"storageClass": "c", "capacity": "big"}]"#),
                "pools[0].capacities[0].capacity: \"big\": must be a quantity",
            ),
            (
                pool(r#", "capacities": [{"storageClass": "c", "capacity": "1Gi", "per": "zone"}]"#),
                "pools[0].capacities[0].per: \"zone\": the nodes have no such label",
            ),
            (r#"{"pools": []} x"#.to_owned(), ".: trailing characters"),
        ] {
            let error = Shape::from_json(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}\nexpected {expected}");
        }
    }
}
