//! The topology domains of the groups of a tree: each group keeps to the domain of its parent, and to one of its own in
//! it.
//!
//! Domains are paths: the labels of a group continue those of its ancestors, so that equal values in different domains
//! of
//! the ancestor are different domains.

use std::sync::Arc;

use super::super::domains::{self, DomainId};
use super::super::request::{LeafState, PlacementRequest, TopologyRequest};
use super::super::within::Within;
use super::{Forest, Part};
use crate::cluster::Cluster;
use crate::model::ids::NodeId;
use crate::model::topology::{GroupTopology, WhenFull};
use crate::model::tree::GroupTree;
use crate::placement::cache::Cache;

/// Where a group of a tree may be placed.
pub(super) struct Options {
    /// Best first.
    pub(super) domains: Vec<Option<Within>>,
    /// Its own constraint, on the labels of its path.
    pub(super) topology: Option<Arc<TopologyRequest>>,
    /// Whether it has a constraint of its own.
    pub(super) is_constrained: bool,
}

impl Options {
    pub(super) fn of(forest: &mut Forest<'_, '_>, node: usize, within: Option<&Within>, part: &Part) -> Self {
        let Some(topology) = constraint(forest.request, node) else {
            return Self { domains: vec![within.cloned()], topology: None, is_constrained: false };
        };
        if node == 0 && within.is_some() {
            // The domain of the root is chosen already.
            return Self { domains: vec![within.cloned()], topology: Some(topology), is_constrained: true };
        }
        let labels = forest.cache.tree(forest.transaction.cluster(), &topology.wanted.levels);
        let inside = within.map_or(DomainId::ROOT, |within| within.in_tree(&labels));
        let below = lots_below(forest, node, part);
        let is_leaf = forest.tree.tree.subset(node).is_some();
        let cluster = forest.transaction.cluster();
        let found = domains::options(cluster, forest.cache, &below, (&labels, &topology), inside, is_leaf);
        let domains =
            found.into_iter().map(|domain| (domain != DomainId::ROOT).then(|| Within { tree: labels.clone(), domain }));
        Self { domains: domains.collect(), topology: Some(topology), is_constrained: true }
    }
}

/// The constraint of a group on the labels of its path; `None` if it has none.
fn constraint(request: &PlacementRequest, node: usize) -> Option<Arc<TopologyRequest>> {
    if node == 0 {
        return request.topology.clone().filter(|topology| topology.wanted.is_constraint());
    }
    let tree = request.tree.as_deref()?;
    let own = tree.tree.nodes()[node].topology.as_ref().filter(|own| own.is_constraint())?;
    let levels = labels_above(request, &tree.tree, node);
    let held = tree.held.get(&node).cloned().unwrap_or_default();
    Some(Arc::new(TopologyRequest {
        wanted: Arc::new(own.below(&levels)),
        held,
        held_ranks: Vec::new(),
        rivals: Vec::new(),
    }))
}

/// The labels down to the narrowest that an ancestor requires.
fn labels_above(request: &PlacementRequest, tree: &GroupTree, node: usize) -> Vec<String> {
    let mut path: Vec<usize> = tree.path(node).skip(1).collect();
    path.reverse();
    let mut labels: Vec<String> = Vec::new();
    for at in path {
        let root = request.topology.as_ref().map(|topology| &topology.wanted).filter(|_| at == 0);
        let Some(own) = root.or(tree.nodes()[at].topology.as_ref()) else { continue };
        if let Some(required) = own.required {
            let own = own.below(&labels);
            let narrowest = own.required.unwrap_or(required);
            labels = own.levels[..=narrowest].to_vec();
        }
    }
    labels
}

/// The lots of a group, as far as they are not placed.
fn lots_below(forest: &Forest<'_, '_>, node: usize, part: &Part) -> PlacementRequest {
    let tree = &forest.tree.tree;
    let is_below = |subset: usize| tree.path(tree.leaves()[subset]).any(|at| at == node);
    let open = |subset: usize| forest.tree.leaves[subset] != LeafState::Incomplete && !part.met[subset];
    let subsets: Vec<bool> = (0..part.met.len()).map(|subset| is_below(subset) && open(subset)).collect();
    let lots = forest.request.lots.iter().filter(|lot| subsets[lot.subset]).cloned().collect();
    let needs = forest.request.needs.iter().zip(&subsets);
    PlacementRequest {
        lots,
        needs: needs.map(|(need, below)| if *below { *need } else { 0 }).collect(),
        topology: None,
        tree: None,
        within: None,
        ..forest.request.clone()
    }
}

/// The domain that a group has which has started: that of the pods on nodes of the nearest group on its path, itself
/// included, that requires one.
pub(super) fn of_started(forest: &mut Forest<'_, '_>, node: usize, part: &Part) -> Option<Within> {
    let path: Vec<usize> = forest.tree.tree.path(node).collect();
    for at in path {
        let Some(topology) = constraint(forest.request, at) else { continue };
        let Some(required) = topology.wanted.required else { continue };
        if let Some(within) = part_within(forest, at, part, &topology, required + 1) {
            return Some(within);
        }
    }
    forest.request.within.clone()
}

fn part_within(
    forest: &mut Forest<'_, '_>,
    node: usize,
    part: &Part,
    topology: &TopologyRequest,
    depth: usize,
) -> Option<Within> {
    let tree = forest.tree.tree.clone();
    let labels = forest.cache.tree(forest.transaction.cluster(), &topology.wanted.levels);
    let cluster = forest.transaction.cluster();
    let is_below = |subset: usize| part.met[subset] && tree.path(tree.leaves()[subset]).any(|at| at == node);
    let pods = forest.request.lots.iter().filter(|lot| is_below(lot.subset)).flat_map(|lot| &lot.pods);
    let placed = pods.filter_map(|pod| cluster.pod(*pod).state.node());
    let nodes: Vec<NodeId> = topology.held.iter().copied().chain(placed).collect();
    let domain = domains::domain_of_most(&labels, &nodes, depth)?;
    Some(Within { tree: labels, domain })
}

/// Whether these pods on these nodes are in the domains that the groups of the tree require, given where their other
/// members
/// are.
pub(crate) fn allows(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    places: &[(usize, NodeId)],
) -> bool {
    let Some(tree) = request.tree.as_deref() else { return true };
    (0..tree.tree.nodes().len()).all(|node| {
        let Some(topology) = constraint(request, node) else { return true };
        let Some(required) = topology.wanted.required else { return true };
        let is_below = |subset: usize| tree.tree.path(tree.tree.leaves()[subset]).any(|at| at == node);
        let placed = places.iter().filter(|(subset, _)| is_below(*subset)).map(|(_, place)| *place);
        let placed: Vec<NodeId> = placed.collect();
        let labels = cache.tree(cluster, &topology.wanted.levels);
        let held = domains::domain_of_most(&labels, &topology.held, required + 1);
        let domain = held.or_else(|| labels.domain_at(*placed.first()?, required + 1));
        placed.iter().all(|node| domain.is_some_and(|domain| labels.contains(domain, *node)))
    })
}

impl GroupTopology {
    /// The same constraint on labels that continue these.
    fn below(&self, labels: &[String]) -> Self {
        let mut levels = labels.to_vec();
        levels.extend(self.levels.iter().filter(|level| !labels.contains(level)).cloned());
        let position = |level: usize| levels.iter().position(|label| *label == self.levels[level]);
        Self {
            required: self.required.and_then(position),
            preferred: self.preferred.and_then(position),
            choice: self.choice,
            levels: levels.clone(),
            // A group of a tree has none of these.
            slices: None,
            spread: None,
            exclusive: None,
            when_full: WhenFull::Wait,
        }
    }
}
