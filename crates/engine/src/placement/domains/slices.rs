//! Slices: which of the waiting members have to share a domain, among each other and with members that are placed.
//!
//! Members with a rank are divided by it. The others complete the slices of placed members without a rank, and form
//! slices of their own. Without slices every pod is one by itself, as far as spreading is concerned.

use std::collections::{BTreeMap, BTreeSet};

use super::super::request::PlacementRequest;
use super::tree::{DomainId, Tree};
use super::{Target, turns};
use crate::cluster::Cluster;
use crate::model::ids::NodeId;

/// Pods that have to share a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Slice {
    /// As lot and index.
    pub(super) pods: Vec<(usize, usize)>,
    /// The domain of the members of this slice that are placed.
    pub(super) home: Option<DomainId>,
}

/// A slice of members with ranks.
#[derive(Default)]
struct Ranked {
    ranks: BTreeSet<u64>,
    homes: Vec<DomainId>,
    /// Members that are placed, wherever.
    held: usize,
    pods: Vec<(u64, (usize, usize))>,
}

/// The level of slices, or of the domains over which pods are spread one by one, as its depth in the tree.
pub(super) fn unit_depth(target: &Target) -> usize {
    let wanted = &target.topology.wanted;
    let level = wanted.slices.map(|slices| slices.level).or(wanted.spread.map(|spread| spread.level));
    level.or(wanted.required).map_or(0, |level| level + 1)
}

/// The number of pods of a whole slice.
pub(super) fn unit_size(target: &Target) -> usize {
    target.topology.wanted.slices.map_or(1, |slices| slices.size.max(1) as usize)
}

/// The slices of the pods of a request, those with a home first. `room` is how many pods fit into a domain.
pub(super) fn divide(
    cluster: &Cluster,
    request: &PlacementRequest,
    target: &Target,
    room: impl Fn(DomainId) -> i64,
) -> Vec<Slice> {
    let turns = turns(cluster, request);
    let Some(rule) = target.topology.wanted.slices else {
        return turns.into_iter().map(|turn| Slice { pods: vec![turn], home: None }).collect();
    };
    let (size, depth) = (unit_size(target), rule.level + 1);
    let mut ranked: BTreeMap<(u64, u64), Ranked> = BTreeMap::new();
    let mut loose_held: BTreeMap<DomainId, usize> = BTreeMap::new();
    for (node, rank) in target.topology.held.iter().zip(&target.topology.held_ranks) {
        let home = target.tree.domain_at(*node, depth);
        match rank {
            Some(rank) => {
                let slice = ranked.entry(rule.of_rank(*rank)).or_default();
                slice.held += 1;
                slice.ranks.insert(*rank);
                slice.homes.extend(home);
            }
            None => {
                if let Some(home) = home {
                    *loose_held.entry(home).or_default() += 1;
                }
            }
        }
    }
    let mut loose = Vec::new();
    for turn in turns {
        let rank = request.lots[turn.0].pods.get(turn.1).and_then(|pod| cluster.pod(*pod).rank);
        let Some(rank) = rank else {
            loose.push(turn);
            continue;
        };
        let slice = ranked.entry(rule.of_rank(rank)).or_default();
        if slice.held + slice.pods.len() < size && slice.ranks.insert(rank) {
            slice.pods.push((rank, turn));
        } else {
            loose.push(turn);
        }
    }
    let mut slices: Vec<Slice> = ranked.into_values().filter(|slice| !slice.pods.is_empty()).map(by_rank).collect();
    let mut loose = loose.into_iter();
    add_loose(&mut slices, &mut loose, &loose_held, size, room);
    slices.sort_by_key(|slice| slice.home.is_none());
    slices
}

fn by_rank(mut slice: Ranked) -> Slice {
    slice.pods.sort_unstable();
    slice.homes.sort_unstable();
    let runs = slice.homes.chunk_by(|one, other| one == other);
    let home = runs.map(|run| (std::cmp::Reverse(run.len()), run[0])).min().map(|(_, home)| home);
    Slice { pods: slice.pods.into_iter().map(|(_, turn)| turn).collect(), home }
}

/// Pods without a rank complete the slices that are there. A further slice that is not whole begins only if no other is
/// incomplete.
fn add_loose(
    slices: &mut Vec<Slice>,
    loose: &mut impl ExactSizeIterator<Item = (usize, usize)>,
    held: &BTreeMap<DomainId, usize>,
    size: usize,
    room: impl Fn(DomainId) -> i64,
) {
    let mut unfilled = None;
    for (home, count) in held.iter().filter(|(_, count)| !count.is_multiple_of(size)) {
        let missing = size - count % size;
        let fit = missing.min(usize::try_from(room(*home)).unwrap_or(0));
        let pods: Vec<_> = loose.by_ref().take(fit).collect();
        if pods.len() < missing && loose.len() > 0 {
            unfilled = unfilled.or(Some(*home));
        }
        if !pods.is_empty() {
            slices.push(Slice { pods, home: Some(*home) });
        }
    }
    while loose.len() >= size {
        slices.push(Slice { pods: loose.by_ref().take(size).collect(), home: None });
    }
    if loose.len() > 0 {
        slices.push(Slice { pods: loose.collect(), home: unfilled });
    }
}

/// The domains at a depth that members use already.
pub(super) fn used_domains(tree: &Tree, held: &[NodeId], depth: usize) -> BTreeSet<DomainId> {
    held.iter().filter_map(|node| tree.domain_at(*node, depth)).collect()
}
