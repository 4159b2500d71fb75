//! The nodes of a scenario, from the short form or from Node manifests, as shapes for simulated kubelets.
//!
//! Must not depend on the cluster.

use std::collections::BTreeSet;

use muster_playground::components::{NodeShape, Pool, PoolTaint, Shape};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::manifest::numbered_text;
use super::model::{Nodes, Taint};

const HOSTNAME: &str = "kubernetes.io/hostname";
/// The maximum number of nodes of one list.
const NODES_MAX: u32 = 10_000;

/// The nodes of a list, or an error with field, value and reason.
pub(super) fn shapes(list: &[Nodes]) -> Result<Vec<NodeShape>, String> {
    let mut names = BTreeSet::new();
    let mut shapes = Vec::new();
    for (index, nodes) in list.iter().enumerate() {
        let field = format!("nodes[{index}]");
        if nodes.count > NODES_MAX {
            return Err(format!("{field}.count: {}: at most {NODES_MAX}", nodes.count));
        }
        for number in 0..nodes.count {
            let name = numbered_text(&nodes.name, number);
            if !names.insert(name.clone()) {
                let hint = "another node has this name; {i} in it stands for the number of the node";
                return Err(format!("{field}.name: {:?}: {hint}", nodes.name));
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
            };
            shapes.push(named(pool, name).map_err(|why| why.replacen("pools[0]", &field, 1))?);
        }
    }
    Ok(shapes)
}

/// The node that a manifest describes.
pub(super) fn shape_of(node: &Value) -> Result<NodeShape, String> {
    let name = node["metadata"]["name"].as_str().ok_or("metadata.name: must be set for a node")?;
    if node["status"]["capacity"].is_null() {
        return Err("status.capacity: must be set: the simulated kubelet needs it".to_owned());
    }
    let part = |field: &str, value: &Value| format!("{field}: {value}: cannot be read");
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
    };
    named(pool, name.to_owned()).map_err(|why| why.replacen("pools[0].", "", 1))
}

/// A part of a manifest; the default if it is absent.
fn read<T: DeserializeOwned + Default>(value: &Value) -> Option<T> {
    if value.is_null() { Some(T::default()) } else { serde_json::from_value(value.clone()).ok() }
}

fn pool_taint(taint: &Taint) -> PoolTaint {
    PoolTaint { key: taint.key.clone(), value: taint.value.clone(), effect: taint.effect.clone() }
}

/// The only node of a pool, renamed.
fn named(pool: Pool, name: String) -> Result<NodeShape, String> {
    muster_api::names::check_dns_subdomain(&name).map_err(|why| format!("pools[0].name: {name:?}: {why}"))?;
    let shape = Shape { pools: vec![pool] };
    let mut nodes = shape.nodes().map_err(|error| error.to_string())?;
    let mut node = nodes.pop().ok_or("pools[0].count: 0: there is no node")?;
    node.labels.insert(HOSTNAME.to_owned(), name.clone());
    node.name = name;
    Ok(node)
}
