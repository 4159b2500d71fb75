//! A topology key: a node label whose values divide the nodes into domains.
//!
//! Nodes without the label are in no domain. A domain without nodes is removed, and its number is reused.

use std::collections::BTreeMap;

use crate::model::ids::NodeId;

/// The domain of nodes without the label.
const NO_DOMAIN: u32 = u32::MAX;

/// The domains of one topology key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TopologyKey {
    pub(super) key: String,
    /// Tells it from a topology key that had the same id before.
    pub(super) serial: u64,
    pub(super) users: u32,
    numbers: BTreeMap<String, u32>,
    /// By node slot.
    of: Vec<u32>,
    /// By domain, its value and its nodes, unsorted.
    domains: Vec<(String, Vec<NodeId>)>,
    /// Domains without nodes.
    free: Vec<u32>,
}

impl TopologyKey {
    pub(super) fn new(key: String, serial: u64) -> Self {
        Self { key, serial, ..Self::default() }
    }

    /// The domain of a node.
    pub(crate) fn domain(&self, node: NodeId) -> Option<u32> {
        self.of.get(node.slot()).copied().filter(|domain| *domain != NO_DOMAIN)
    }

    /// One past the highest known node slot.
    pub(super) fn node_slots(&self) -> usize {
        self.of.len()
    }

    /// The nodes of a domain.
    pub(crate) fn nodes(&self, domain: u32) -> &[NodeId] {
        self.domains.get(domain as usize).map_or(&[], |(_, nodes)| nodes.as_slice())
    }

    /// The domains that have nodes.
    pub(crate) fn domains(&self) -> impl Iterator<Item = u32> + '_ {
        self.numbers.values().copied()
    }

    /// Whether any node is in a domain.
    pub(super) fn has_domains(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Whether every domain has a single node.
    pub(crate) fn has_single_node_domains(&self) -> bool {
        self.domains.iter().all(|(_, nodes)| nodes.len() <= 1)
    }

    /// Moves a node to the domain of its label value; to none if it has no such label.
    pub(super) fn set_domain(&mut self, node: NodeId, value: Option<&str>) {
        if self.of.len() <= node.slot() {
            // A label that no node has costs no memory per node: users can name any.
            if value.is_none() {
                return;
            }
            self.of.resize(node.slot() + 1, NO_DOMAIN);
        }
        let old = self.of[node.slot()];
        let new = value.map_or(NO_DOMAIN, |value| self.number(value));
        if old == new {
            return;
        }
        self.of[node.slot()] = new;
        if let Some((_, nodes)) = self.domains.get_mut(new as usize) {
            nodes.push(node);
        }
        if let Some((value, nodes)) = self.domains.get_mut(old as usize) {
            nodes.retain(|other| *other != node);
            if nodes.is_empty() {
                self.numbers.remove(value);
                self.free.push(old);
            }
        }
    }

    fn number(&mut self, value: &str) -> u32 {
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.domains.push((String::new(), Vec::new()));
            (self.domains.len() - 1) as u32
        });
        value.clone_into(&mut self.domains[number as usize].0);
        self.numbers.insert(value.to_owned(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_move_and_numbers_of_empty_domains_are_reused() {
        let mut topology_key = TopologyKey::new("zone".to_owned(), 0);
        for (node, zone) in [(0, Some("a")), (1, Some("b")), (2, Some("a")), (3, None)] {
            topology_key.set_domain(NodeId(node), zone);
        }
        assert_eq!(
            [0, 1, 2, 3, 9].map(|node| topology_key.domain(NodeId(node))),
            [Some(0), Some(1), Some(0), None, None]
        );
        assert!(!topology_key.has_single_node_domains());
        topology_key.set_domain(NodeId(1), Some("a"));
        assert_eq!(topology_key.domains().collect::<Vec<_>>(), [0]);
        topology_key.set_domain(NodeId(2), Some("c"));
        assert_eq!((topology_key.domain(NodeId(2)), topology_key.nodes(1)), (Some(1), &[NodeId(2)][..]));
        topology_key.set_domain(NodeId(0), None);
        assert_eq!(topology_key.nodes(0), [NodeId(1)]);
        assert!(topology_key.has_single_node_domains());
    }
}
