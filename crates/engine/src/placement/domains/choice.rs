//! The choice of a domain: which domains a group may be placed in, best first.

use std::cmp::Reverse;
use std::sync::Arc;

use super::super::cache::Cache;
use super::super::request::{Lot, PlacementRequest, TopologyRequest};
use super::super::requirements;
use super::tree::{DomainId, Tree};
use crate::cluster::Cluster;
use crate::model::ids::NodeId;
use crate::model::topology::DomainChoice;

/// A domain, and what fits into it by the sums of its nodes: an upper bound, exact for pods of equal requirements
/// without
/// inter-pod terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainRoom {
    pub(super) domain: DomainId,
    /// How many of the pods fit.
    pub(super) pods: i64,
    /// By how much the room exceeds the pods, for those for which it does the least.
    pub(super) slack: i64,
    /// Whether the minimums may fit.
    pub(super) may_hold_minimum: bool,
    /// kube-scheduler's placement scores, if they decide.
    score: i64,
}

impl DomainRoom {
    pub(super) fn holds_all(&self) -> bool {
        self.slack >= 0
    }
}

/// The domains at a depth within a domain that a request may use: the one of the members that are placed, if there are
/// any in such a domain, else all.
pub(super) fn open_domains(tree: &Tree, topology: &TopologyRequest, inside: DomainId, depth: usize) -> Vec<DomainId> {
    match domain_of_most(tree, &topology.held, depth).filter(|domain| tree.is_inside(*domain, inside)) {
        Some(domain) => vec![domain],
        None => tree.within_at_depth(inside, depth),
    }
}

/// The domain at a depth that most of these nodes are in; the first among equals.
pub(in crate::placement) fn domain_of_most(tree: &Tree, nodes: &[NodeId], depth: usize) -> Option<DomainId> {
    let mut domains: Vec<DomainId> = nodes.iter().filter_map(|node| tree.domain_at(*node, depth)).collect();
    domains.sort_unstable();
    let runs = domains.chunk_by(|one, other| one == other);
    runs.map(|run| (Reverse(run.len()), run[0])).min().map(|(_, domain)| domain)
}

/// These domains with their rooms, best first.
pub(super) fn best_first(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    (tree, topology): (&Arc<Tree>, &TopologyRequest),
    domains: Vec<DomainId>,
) -> Vec<DomainRoom> {
    let mut rooms: Vec<DomainRoom> = domains.into_iter().map(empty).collect();
    if rooms.is_empty() || request.lots.is_empty() {
        return rooms;
    }
    add_rooms(cluster, cache, request, tree, &mut rooms);
    match topology.wanted.choice {
        DomainChoice::TightestFit => {
            // What holds all pods comes first, tightest first; then what holds the most.
            let key = |room: &DomainRoom| (Reverse(room.holds_all()), Reverse(room.pods), room.slack, room.domain);
            rooms.sort_by_key(key);
        }
        DomainChoice::MostAllocated => {
            add_scores(cluster, cache, request, (tree, topology), &mut rooms);
            rooms.sort_by_key(|room| (Reverse(room.may_hold_minimum), Reverse(room.score), room.domain));
        }
    }
    rooms
}

fn empty(domain: DomainId) -> DomainRoom {
    DomainRoom { domain, pods: 0, slack: i64::MAX, may_hold_minimum: false, score: 0 }
}

fn add_rooms(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    tree: &Arc<Tree>,
    rooms: &mut [DomainRoom],
) {
    let mut reachable = vec![vec![0_i64; request.needs.len()]; rooms.len()];
    // Lots of one class share its room, and so do those of classes with equal requirements.
    let alike = requirements::have_equal_requirements(cluster, request);
    let mut classes: Vec<_> = request.lots.iter().map(|lot| lot.class).collect();
    classes.sort_unstable();
    classes.dedup();
    classes.truncate(if alike { 1 } else { classes.len() });
    for class in classes {
        let lots: Vec<&Lot> = request.lots.iter().filter(|lot| alike || lot.class == class).collect();
        let pods: i64 = lots.iter().map(|lot| lot.len() as i64).sum();
        let of_class = cache.rooms(cluster, tree, (class, request.priority));
        for (room, reachable) in rooms.iter_mut().zip(&mut reachable) {
            let fit = of_class.room(room.domain);
            room.pods += fit.min(pods);
            room.slack = room.slack.min(fit - pods);
            for lot in &lots {
                reachable[lot.subset] += fit.min(lot.len() as i64);
            }
        }
    }
    let needed = i64::try_from(request.needs_total()).unwrap_or(i64::MAX);
    for (room, reachable) in rooms.iter_mut().zip(&reachable) {
        let subsets = reachable.iter().zip(&request.needs);
        room.may_hold_minimum = room.pods >= needed && subsets.into_iter().all(|(fit, need)| *fit >= i64::from(*need));
    }
}

/// The two scores by which kube-scheduler compares placements: how many pods of the group there would be, relative to
/// the
/// best placement, and how much would be allocated.
fn add_scores(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    (tree, topology): (&Arc<Tree>, &TopologyRequest),
    rooms: &mut [DomainRoom],
) {
    let held = topology.held.len() as i64;
    let most = rooms.iter().map(|room| held + room.pods).max().unwrap_or(0).max(1);
    let first = request.lots[0].class;
    for room in rooms {
        // Of different pods that do not all fit, it is not known which would be there; then the count decides.
        let mut left = room.pods;
        let placed: Vec<_> = request
            .lots
            .iter()
            .map(|lot| {
                let pods = left.min(lot.len() as i64);
                left -= pods;
                (cluster.class(lot.class), pods)
            })
            .collect();
        let usage = cache.rooms(cluster, tree, (first, request.priority)).usage(room.domain).to_vec();
        let share = cache.scorer(cluster, first).allocated_share(&usage, &placed);
        room.score = (held + room.pods) * 100 / most + share;
    }
}
