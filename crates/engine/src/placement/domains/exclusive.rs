//! Exclusive domains: those that a group may not use because another group is there that also excludes others from
//! domains of the same label.
//!
//! Pods of no group, and groups without such a rule, are not excluded. The domains in which a group has members
//! already stay its own, whatever came there since.

use std::collections::BTreeSet;

use super::super::request::TopologyRequest;
use super::tree::{DomainId, Tree};
use crate::cluster::Cluster;
use crate::model::ids::NodeId;

/// The domains of the exclusive level that others use.
pub(super) fn closed_domains(cluster: &Cluster, tree: &Tree, topology: &TopologyRequest) -> BTreeSet<DomainId> {
    let Some(level) = topology.wanted.exclusive else { return BTreeSet::new() };
    let domain = |node: NodeId| tree.domain_at(node, level + 1);
    let own: BTreeSet<DomainId> = topology.held.iter().filter_map(|node| domain(*node)).collect();
    let rivals = topology.rivals.iter().filter_map(|pod| cluster.pod_if_any(*pod));
    let nodes = rivals.filter_map(|pod| pod.state.node().or(pod.nominated));
    nodes.filter_map(domain).filter(|domain| !own.contains(domain)).collect()
}

/// Whether a domain, or one around it, is closed.
pub(super) fn is_closed(tree: &Tree, closed: &BTreeSet<DomainId>, domain: DomainId) -> bool {
    !closed.is_empty() && tree.ancestors(domain).any(|around| closed.contains(&around))
}
