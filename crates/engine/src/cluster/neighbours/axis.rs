//! A label of nodes whose values part the nodes into domains.
//!
//! Nodes without the label are in none. A domain that has no nodes any more is forgotten, and its number is used again.

use std::collections::BTreeMap;

use crate::model::ids::NodeId;

/// The domain of nodes without the label.
const NOWHERE: u32 = u32::MAX;

/// The domains of one label.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Axis {
    pub(super) key: String,
    pub(super) users: u32,
    numbers: BTreeMap<String, u32>,
    /// By node slot.
    of: Vec<u32>,
    /// By domain, its value and its nodes, those in no order.
    domains: Vec<(String, Vec<NodeId>)>,
    /// Domains without nodes.
    free: Vec<u32>,
}

impl Axis {
    pub(super) fn new(key: String) -> Self {
        Self { key, ..Self::default() }
    }

    /// The domain of a node.
    pub(crate) fn domain(&self, node: NodeId) -> Option<u32> {
        self.of.get(node.slot()).copied().filter(|domain| *domain != NOWHERE)
    }

    /// One past the highest node slot that is known.
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

    /// Whether every domain is a single node.
    pub(crate) fn is_of_single_nodes(&self) -> bool {
        self.domains.iter().all(|(_, nodes)| nodes.len() <= 1)
    }

    /// Puts a node where its label says; nowhere if it has none.
    pub(super) fn settle(&mut self, node: NodeId, value: Option<&str>) {
        if self.of.len() <= node.slot() {
            self.of.resize(node.slot() + 1, NOWHERE);
        }
        let old = self.of[node.slot()];
        let new = value.map_or(NOWHERE, |value| self.number(value));
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
    fn nodes_move_and_empty_domains_are_used_again() {
        let mut axis = Axis::new("zone".to_owned());
        for (node, zone) in [(0, Some("a")), (1, Some("b")), (2, Some("a")), (3, None)] {
            axis.settle(NodeId(node), zone);
        }
        assert_eq!([0, 1, 2, 3, 9].map(|node| axis.domain(NodeId(node))), [Some(0), Some(1), Some(0), None, None]);
        assert!(!axis.is_of_single_nodes());
        axis.settle(NodeId(1), Some("a"));
        assert_eq!(axis.domains().collect::<Vec<_>>(), [0]);
        axis.settle(NodeId(2), Some("c"));
        assert_eq!((axis.domain(NodeId(2)), axis.nodes(1)), (Some(1), &[NodeId(2)][..]));
        axis.settle(NodeId(0), None);
        assert_eq!(axis.nodes(0), [NodeId(1)]);
        assert!(axis.is_of_single_nodes());
    }
}
