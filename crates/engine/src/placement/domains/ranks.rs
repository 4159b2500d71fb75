//! Ranks: hands pods to the chosen places along the tree, so that neighbours in rank are neighbours in the network.
//!
//! Which pods of one class are in which of their places does not matter to feasibility, so this changes no decision. A pod
//! without a rank, or with one that another pod has, comes last and leaves the order of the others alone.

use std::collections::{BTreeMap, BTreeSet};

use super::super::request::PlacementRequest;
use super::tree::{DomainId, Tree};
use super::{Target, slices};
use crate::cluster::Cluster;
use crate::cluster::transaction::{Savepoint, Transaction};
use crate::model::ids::{ClassId, NodeId, PodId};
use crate::model::topology::RankDistance;

/// Exchanges the places of pods of one class that were placed since a savepoint; those of a slice stay in its domain.
pub(super) fn assign(transaction: &mut Transaction<'_>, since: Savepoint, request: &PlacementRequest, target: &Target) {
    let tree = &target.tree;
    let depth = target.topology.wanted.slices.map(|_| slices::unit_depth(target));
    let rank = |transaction: &Transaction<'_>, pod: PodId| transaction.cluster().pod(pod).rank;
    let placed: Vec<_> = transaction.placed_since(since).collect();
    if placed.iter().all(|(pod, _)| rank(transaction, *pod).is_none()) {
        return;
    }
    // A pod that a node refused has no free choice of places.
    let bound = request.lots.iter().filter(|lot| !lot.avoid.is_empty()).flat_map(|lot| lot.pods.iter().copied());
    let bound: BTreeSet<PodId> = bound.collect();
    let mut by_class: BTreeMap<(ClassId, Option<DomainId>), Vec<usize>> = BTreeMap::new();
    for (index, (pod, node)) in placed.iter().enumerate().filter(|(_, (pod, _))| !bound.contains(pod)) {
        let domain = depth.and_then(|depth| tree.domain_at(*node, depth));
        by_class.entry((transaction.cluster().pod(*pod).class, domain)).or_default().push(index);
    }
    let mut ordered = placed.clone();
    for indices in by_class.values() {
        let mut nodes: Vec<_> = indices.iter().map(|index| placed[*index].1).collect();
        nodes.sort_by_key(|node| (tree.position(*node), *node));
        let mut pods: Vec<_> = indices.iter().map(|index| placed[*index].0).collect();
        let ranks: BTreeMap<PodId, u64> = first_of_each_rank(&pods, |pod| rank(transaction, pod));
        pods.sort_by_key(|pod| (!ranks.contains_key(pod), ranks.get(pod)));
        for (index, place) in indices.iter().zip(pods.into_iter().zip(nodes)) {
            ordered[*index] = place;
        }
    }
    if ordered == placed {
        return;
    }
    let occupied = transaction.occupied_since(since);
    transaction.rollback_to(since);
    for (pod, node) in ordered {
        transaction.place(pod, node);
    }
    for (class, node) in occupied {
        transaction.occupy(class, node);
    }
}

/// How far apart neighbours in rank are, of these pods; `None` if fewer than two have a rank.
pub(super) fn distance(cluster: &Cluster, placed: &[(PodId, NodeId)], tree: &Tree) -> Option<RankDistance> {
    let pods: Vec<PodId> = placed.iter().map(|(pod, _)| *pod).collect();
    let ranks = first_of_each_rank(&pods, |pod| cluster.pod(pod).rank);
    let ranked = placed.iter().filter_map(|(pod, node)| Some((*ranks.get(pod)?, *node)));
    let nodes: Vec<NodeId> = ranked.collect::<BTreeMap<u64, NodeId>>().into_values().collect();
    let levels = nodes.windows(2).map(|pair| tree.levels_between(pair[0], pair[1]) as u64).sum();
    let pairs = u32::try_from(nodes.len().checked_sub(1)?).unwrap_or(u32::MAX);
    (pairs > 0).then_some(RankDistance { pairs, levels })
}

/// The pods that have a rank of their own: of several with the same rank, the first.
fn first_of_each_rank(pods: &[PodId], rank: impl Fn(PodId) -> Option<u64>) -> BTreeMap<PodId, u64> {
    let mut seen = BTreeSet::new();
    let ranked = pods.iter().filter_map(|pod| Some((*pod, rank(*pod)?)));
    ranked.filter(|(_, rank)| seen.insert(*rank)).collect()
}
