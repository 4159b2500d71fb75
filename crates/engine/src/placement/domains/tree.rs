//! The domains of a list of node labels as a tree: each label divides the domains of the label before it.
//!
//! A domain is identified by its path: `rack-1` of one block and `rack-1` of another are different domains. The nodes
//! are
//! listed in the order of the tree, so every domain is a range of that list. Nodes without a label come after the
//! domains of that label.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::cluster::node::Node;
use crate::model::ids::NodeId;

/// The position of a node that is not in the tree: one that does not exist.
const NOWHERE: u32 = u32::MAX;

/// The index of a domain in its tree. Of a level, domains are in the order of their paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DomainId(u32);

impl DomainId {
    /// The whole cluster.
    pub(crate) const ROOT: Self = Self(0);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A domain.
#[derive(Clone, Debug)]
struct Domain {
    /// The value of its label; empty for the root.
    value: Arc<str>,
    parent: DomainId,
    /// The number of labels on its path.
    depth: usize,
    nodes: Range<u32>,
    children: Vec<DomainId>,
}

/// The tree of domains for a list of labels.
#[derive(Debug)]
pub(crate) struct Tree {
    labels: Vec<String>,
    domains: Vec<Domain>,
    /// All nodes that exist, in the order of the tree.
    nodes: Vec<NodeId>,
    /// By node slot: its position in `nodes` and its narrowest domain.
    places: Vec<(u32, DomainId)>,
}

/// The values of a node's labels, up to the first label that it lacks.
type Path<'a> = SmallVec<[&'a str; 4]>;

impl Tree {
    pub(crate) fn new(cluster: &Cluster, labels: &[String]) -> Self {
        let present = cluster.nodes().filter(|(_, node)| node.present);
        let mut paths: Vec<(Path<'_>, NodeId)> = present.map(|(id, node)| (path(node, labels), id)).collect();
        cluster.steps.add(paths.len());
        paths.sort_by(|(one, id), (other, other_id)| by_path(one, other).then(id.cmp(other_id)));
        let root = Domain {
            value: "".into(),
            parent: DomainId::ROOT,
            depth: 0,
            nodes: 0..paths.len() as u32,
            children: Vec::new(),
        };
        let mut tree = Self {
            labels: labels.to_vec(),
            domains: vec![root],
            nodes: paths.iter().map(|(_, id)| *id).collect(),
            places: vec![(NOWHERE, DomainId::ROOT); cluster.node_slots()],
        };
        // Level by level, so that the domains of a level follow each other.
        for depth in 0..labels.len() {
            for parent in tree.at_depth(depth) {
                tree.divide(parent, depth, &paths);
            }
        }
        for (position, id) in tree.nodes.iter().enumerate() {
            tree.places[id.slot()] = (position as u32, DomainId::ROOT);
        }
        for (index, domain) in tree.domains.iter().enumerate() {
            for position in domain.nodes.clone() {
                tree.places[tree.nodes[position as usize].slot()].1 = DomainId(index as u32);
            }
        }
        tree
    }

    /// Adds the domains of the next label within a domain.
    fn divide(&mut self, parent: DomainId, depth: usize, paths: &[(Path<'_>, NodeId)]) {
        let range = self.domains[parent.index()].nodes.clone();
        let mut first = range.start;
        while let Some(value) = paths[..range.end as usize].get(first as usize).and_then(|(path, _)| path.get(depth)) {
            let same =
                paths[first as usize..range.end as usize].partition_point(|(path, _)| path.get(depth) == Some(value));
            let (end, id) = (first + same as u32, DomainId(self.domains.len() as u32));
            let value = Arc::from(*value);
            self.domains.push(Domain { value, parent, depth: depth + 1, nodes: first..end, children: Vec::new() });
            self.domains[parent.index()].children.push(id);
            first = end;
        }
    }

    /// How many levels have the same labels in another tree.
    pub(crate) fn common_depth(&self, other: &Self) -> usize {
        self.labels.iter().zip(&other.labels).take_while(|(one, other)| one == other).count()
    }

    pub(crate) fn has_labels(&self, labels: &[String]) -> bool {
        self.labels == labels
    }

    /// Whether a node is where its labels say.
    pub(crate) fn is_current_for(&self, cluster: &Cluster, id: NodeId) -> bool {
        let node = cluster.node_if_any(id).filter(|node| node.present);
        let Some(node) = node else { return self.position(id).is_none() };
        let Some(narrowest) = self.narrowest(id) else { return false };
        path(node, &self.labels).iter().copied().eq(self.path(narrowest).iter().map(|value| &**value))
    }

    /// The domains with this number of labels, in the order of their paths.
    pub(crate) fn at_depth(&self, depth: usize) -> Vec<DomainId> {
        self.level(depth).map(|index| DomainId(index as u32)).collect()
    }

    /// The indices of the domains with this number of labels.
    fn level(&self, depth: usize) -> Range<usize> {
        let first = self.domains.partition_point(|domain| domain.depth < depth);
        first..self.domains.partition_point(|domain| domain.depth <= depth)
    }

    /// The domains at a depth within a domain, itself included, in the order of their paths.
    pub(crate) fn within_at_depth(&self, domain: DomainId, depth: usize) -> Vec<DomainId> {
        let range = self.range(domain);
        let level = self.level(depth);
        let of_level = &self.domains[level.clone()];
        let first = level.start + of_level.partition_point(|domain| domain.nodes.start < range.start);
        let end = level.start + of_level.partition_point(|domain| domain.nodes.end <= range.end);
        (first..end).map(|index| DomainId(index as u32)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.domains.len()
    }

    pub(crate) fn depth(&self, domain: DomainId) -> usize {
        self.domains[domain.index()].depth
    }

    pub(super) fn children(&self, domain: DomainId) -> &[DomainId] {
        &self.domains[domain.index()].children
    }

    fn range(&self, domain: DomainId) -> Range<u32> {
        self.domains[domain.index()].nodes.clone()
    }

    /// The nodes of a domain.
    pub(crate) fn nodes(&self, domain: DomainId) -> &[NodeId] {
        let range = self.range(domain);
        &self.nodes[range.start as usize..range.end as usize]
    }

    /// The position of a node in the order of the tree.
    pub(crate) fn position(&self, node: NodeId) -> Option<usize> {
        self.places
            .get(node.slot())
            .filter(|(position, _)| *position != NOWHERE)
            .map(|(position, _)| *position as usize)
    }

    /// The narrowest domain of a node.
    pub(super) fn narrowest(&self, node: NodeId) -> Option<DomainId> {
        self.places.get(node.slot()).filter(|(position, _)| *position != NOWHERE).map(|(_, domain)| *domain)
    }

    /// The domain of a node at a depth, if it has all labels down to there.
    pub(crate) fn domain_at(&self, node: NodeId, depth: usize) -> Option<DomainId> {
        let mut domain = self.narrowest(node)?;
        while self.depth(domain) > depth {
            domain = self.domains[domain.index()].parent;
        }
        (self.depth(domain) == depth).then_some(domain)
    }

    /// The domain around a domain at a depth, or itself.
    pub(super) fn ancestor_at(&self, domain: DomainId, depth: usize) -> Option<DomainId> {
        self.ancestors(domain).find(|around| self.depth(*around) == depth)
    }

    /// The levels up to the narrowest domain that two nodes share; 0 for one node.
    pub(super) fn levels_between(&self, one: NodeId, other: NodeId) -> usize {
        if one == other {
            return 0;
        }
        let around = |node: NodeId| self.narrowest(node).into_iter().flat_map(|domain| self.ancestors(domain));
        let shared = around(one).find(|domain| self.contains(*domain, other));
        self.labels.len() + 1 - shared.map_or(0, |domain| self.depth(domain))
    }

    /// A domain and those around it, narrowest first.
    pub(super) fn ancestors(&self, domain: DomainId) -> impl Iterator<Item = DomainId> + '_ {
        let parent = |domain: &DomainId| (*domain != DomainId::ROOT).then(|| self.domains[domain.index()].parent);
        std::iter::successors(Some(domain), parent)
    }

    /// Whether a domain is another one or within it.
    pub(super) fn is_inside(&self, domain: DomainId, other: DomainId) -> bool {
        self.ancestors(domain).any(|around| around == other)
    }

    /// Whether a node is in a domain.
    pub(crate) fn contains(&self, domain: DomainId, node: NodeId) -> bool {
        let range = self.range(domain);
        self.position(node).is_some_and(|position| range.contains(&(position as u32)))
    }

    /// The values of the labels of a domain, widest first.
    pub(crate) fn path(&self, domain: DomainId) -> Vec<Arc<str>> {
        let mut path: Vec<_> =
            self.ancestors(domain).map(|domain| self.domains[domain.index()].value.clone()).collect();
        path.pop();
        path.reverse();
        path
    }
}

fn path<'n>(node: &'n Node, labels: &[String]) -> Path<'n> {
    labels.iter().map_while(|label| node.labels.get(label).map(String::as_str)).collect()
}

/// By values; a node that lacks a label comes after those that have it.
fn by_path(one: &Path<'_>, other: &Path<'_>) -> Ordering {
    let shared = one.len().min(other.len());
    one[..shared].cmp(&other[..shared]).then(other.len().cmp(&one.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node::NodeSpec;

    fn cluster(nodes: &[(&str, &[(&str, &str)])]) -> Cluster {
        let mut cluster = Cluster::default();
        for (name, labels) in nodes {
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            cluster.set_node(&NodeSpec { name: (*name).into(), labels, ..NodeSpec::default() });
        }
        cluster
    }

    fn names(cluster: &Cluster, tree: &Tree, domain: DomainId) -> Vec<String> {
        tree.nodes(domain).iter().map(|node| cluster.node(*node).name.to_string()).collect()
    }

    #[test]
    fn domains_are_paths_and_nodes_without_a_label_are_in_none() {
        let cluster = cluster(&[
            ("n0", &[("block", "b"), ("rack", "1")]),
            ("n1", &[("block", "a"), ("rack", "1")]),
            ("n2", &[("block", "a")]),
            ("n3", &[("rack", "1")]),
            ("n4", &[("block", "a"), ("rack", "0")]),
            ("n5", &[("block", "a"), ("rack", "1")]),
        ]);
        let tree = Tree::new(&cluster, &["block".to_owned(), "rack".to_owned()]);
        let paths = |depth| tree.at_depth(depth).iter().map(|domain| tree.path(*domain).join("/")).collect::<Vec<_>>();
        assert_eq!(paths(1), ["a", "b"]);
        assert_eq!(paths(2), ["a/0", "a/1", "b/1"]);
        assert_eq!(names(&cluster, &tree, DomainId::ROOT), ["n4", "n1", "n5", "n2", "n0", "n3"]);
        let [a, _] = tree.at_depth(1)[..] else { panic!("two blocks") };
        assert_eq!(names(&cluster, &tree, a), ["n4", "n1", "n5", "n2"]);
        assert_eq!(tree.within_at_depth(a, 2).len(), 2);
        assert_eq!(tree.domain_at(NodeId(2), 2), None);
        assert_eq!(tree.domain_at(NodeId(2), 1), Some(a));
        assert_eq!(tree.domain_at(NodeId(3), 1), None);
        let levels = |other| tree.levels_between(NodeId(1), NodeId(other));
        assert_eq!([1, 5, 4, 2, 0, 3].map(levels), [0, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn tree_is_current_until_a_label_of_it_changes() {
        let mut cluster = cluster(&[("n0", &[("rack", "1")]), ("n1", &[])]);
        let tree = Tree::new(&cluster, &["rack".to_owned()]);
        let mut set = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            cluster.set_node(&NodeSpec { name: "n0".into(), labels, ..NodeSpec::default() });
            tree.is_current_for(&cluster, NodeId(0))
        };
        assert!(set(&[("rack", "1"), ("other", "x")]));
        assert!(!set(&[("rack", "2")]));
        assert!(!set(&[]));
        cluster.remove_node("n1");
        assert!(!tree.is_current_for(&cluster, NodeId(1)));
    }
}
