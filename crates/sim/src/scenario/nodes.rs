//! The nodes of a scenario, from the short form or from Node manifests, as shapes for simulated kubelets.
//!
//! Must not depend on the cluster.

use std::collections::BTreeSet;

use muster_api::invalid::InvalidField;
use muster_playground::components::{NodeShape, Pool, PoolTaint, Shape, ShapeError};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::field_error::FieldError;
use super::manifest::numbered_text;
use super::model::{Nodes, Taint};

const HOSTNAME: &str = "kubernetes.io/hostname";
/// The maximum number of nodes of one list.
const NODES_MAX: u32 = 10_000;

/// The nodes of a list.
pub(super) fn shapes(list: &[Nodes]) -> Result<Vec<NodeShape>, FieldError> {
    let mut names = BTreeSet::new();
    let mut shapes = Vec::new();
    for (index, nodes) in list.iter().enumerate() {
        let field = format!("nodes[{index}]");
        if nodes.count > NODES_MAX {
            return Err(FieldError::new("count", format!("{}: at most {NODES_MAX}", nodes.count)).below(&field));
        }
        for number in 0..nodes.count {
            let name = numbered_text(&nodes.name, number);
            if !names.insert(name.clone()) {
                let hint = "another node has this name; {i} in it stands for the number of the node";
                return Err(FieldError::new("name", format!("{:?}: {hint}", nodes.name)).below(&field));
            }
            let labels = nodes.labels.iter().map(|(key, value)| (key.clone(), numbered_text(value, number)));
            let pool = Pool {
                name: "node".to_owned(),
                count: 1,
                capacity: nodes.capacity.clone(),
                allocatable: None,
                labels: labels.collect(),
                taints: nodes.taints.iter().map(pool_taint).collect(),
                domains: Vec::new(),
                drivers: nodes.drivers.clone(),
                capacities: nodes.capacities.clone(),
            };
            shapes.push(named(pool, name).map_err(|error| error.below(&field))?);
        }
    }
    Ok(shapes)
}

/// The node that a manifest describes.
pub(super) fn shape_of(node: &Value) -> Result<NodeShape, FieldError> {
    let name = node["metadata"]["name"].as_str();
    let name = name.ok_or_else(|| FieldError::new("metadata.name", "must be set for a node"))?;
    if node["status"]["capacity"].is_null() {
        return Err(FieldError::new("status.capacity", "must be set: the simulated kubelet needs it"));
    }
    let part = |field: &str, value: &Value| FieldError::new(field, format!("{value}: cannot be read"));
    let capacity = &node["status"]["capacity"];
    let allocatable = &node["status"]["allocatable"];
    let (labels, taints) = (&node["metadata"]["labels"], &node["spec"]["taints"]);
    let taints: Vec<Taint> = read(taints).ok_or_else(|| part("spec.taints", taints))?;
    let pool = Pool {
        name: "node".to_owned(),
        count: 1,
        capacity: read(capacity).ok_or_else(|| part("status.capacity", capacity))?,
        allocatable: read(allocatable).ok_or_else(|| part("status.allocatable", allocatable))?,
        labels: read(labels).ok_or_else(|| part("metadata.labels", labels))?,
        taints: taints.iter().map(pool_taint).collect(),
        domains: Vec::new(),
        drivers: Vec::new(),
        capacities: Vec::new(),
    };
    named(pool, name.to_owned())
}

/// A part of a manifest; the default if it is absent.
fn read<T: DeserializeOwned + Default>(value: &Value) -> Option<T> {
    if value.is_null() { Some(T::default()) } else { serde_json::from_value(value.clone()).ok() }
}

fn pool_taint(taint: &Taint) -> PoolTaint {
    PoolTaint { key: taint.key.clone(), value: taint.value.clone(), effect: taint.effect.clone() }
}

/// The only node of a pool, renamed. Fields in errors are relative to the node.
fn named(pool: Pool, name: String) -> Result<NodeShape, FieldError> {
    muster_api::names::check_dns_subdomain(&name).map_err(|why| FieldError::new("name", format!("{name:?}: {why}")))?;
    let mut nodes = Shape { pools: vec![pool] }.nodes().map_err(|error| {
        let (field, reason) = match error {
            ShapeError::Unreadable { field, reason } => (field, reason),
            ShapeError::Invalid(InvalidField { field, value, reason }) => (field, format!("{value}: {reason}")),
        };
        FieldError::new(field.strip_prefix("pools[0].").unwrap_or(&field), reason)
    })?;
    let mut node = nodes.pop().ok_or_else(|| FieldError::new("count", "0: there is no node"))?;
    node.labels.insert(HOSTNAME.to_owned(), name.clone());
    node.name = name;
    Ok(node)
}
