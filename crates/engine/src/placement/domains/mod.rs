//! Placement in topology domains.
//!
//! `tree` keeps the domains of a list of labels, `rooms` how much fits into each. For pods of equal requirements
//! without inter-pod terms that is exact: `choice` takes the best domain without trying any, and `split` spreads the pods over
//! the fewest narrower domains. Other groups are tried domain by domain, in the order of that bound. `slices` divides
//! a group of which parts have to share domains, `assignment` and `structure` place them; `exclusive` finds the domains
//! that other groups have for themselves. `ranks` then hands the places to the pods in the order of their ranks.

mod assignment;
mod choice;
mod exclusive;
mod ranks;
mod rooms;
mod slices;
mod split;
mod structure;
mod tree;
mod verification;

use std::cmp::Reverse;
use std::sync::Arc;

use super::cache::Cache;
use super::request::{PlacementRequest, TopologyRequest, Verdict};
use super::within::Within;
use super::{bounds, requirements};
use crate::cluster::Cluster;
use crate::cluster::transaction::Transaction;
use crate::model::ids::{NodeId, PodId};
use crate::model::topology::{GroupTopology, RankDistance};
use choice::DomainRoom;
pub(super) use choice::domain_of_most;
pub(crate) use rooms::Rooms;
pub(crate) use tree::{DomainId, Tree};

/// So many domains are tried for a group whose room is only known by a bound.
const TRIES_MAX: usize = 64;

/// Where a group is to be placed.
struct Target {
    tree: Arc<Tree>,
    topology: Arc<TopologyRequest>,
}

impl Target {
    fn of(cluster: &Cluster, cache: &mut Cache, request: &PlacementRequest) -> Option<Self> {
        let topology = request.topology.clone()?;
        let tree = match &request.within {
            Some(within) => within.tree.clone(),
            None => cache.tree(cluster, &topology.wanted.levels),
        };
        Some(Self { tree, topology })
    }

    /// The domains of which one has to hold the group.
    fn domains(&self, request: &PlacementRequest) -> Vec<DomainId> {
        match (&request.within, self.topology.wanted.required) {
            (Some(within), _) => vec![within.domain],
            (None, Some(level)) => choice::open_domains(&self.tree, &self.topology, DomainId::ROOT, level + 1),
            (None, None) => vec![DomainId::ROOT],
        }
    }

    /// Those of them that no other group has for itself.
    fn open_domains(&self, cluster: &Cluster, request: &PlacementRequest) -> Vec<DomainId> {
        let closed = exclusive::closed_domains(cluster, &self.tree, &self.topology);
        let mut domains = self.domains(request);
        domains.retain(|domain| !exclusive::is_closed(&self.tree, &closed, *domain));
        domains
    }

    /// Whether parts of the group have domains of their own.
    fn has_parts(&self) -> bool {
        self.topology.wanted.slices.is_some() || self.topology.wanted.spread.is_some()
    }

    fn best_first(
        &self,
        cluster: &Cluster,
        cache: &mut Cache,
        request: &PlacementRequest,
        domains: Vec<DomainId>,
    ) -> Vec<DomainRoom> {
        choice::best_first(cluster, cache, request, (&self.tree, &self.topology), domains)
    }

    /// The depth of the level that the members should share.
    fn preferred_depth(&self) -> Option<usize> {
        self.topology.wanted.preferred.map(|level| level + 1)
    }
}

/// Places a group that has a topology constraint. As for any group, at least the minimums and what else fits.
pub(super) fn place(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    steps_max: u64,
) -> Verdict {
    let Some(target) = Target::of(transaction.cluster(), cache, request) else { return Verdict::Impossible };
    let savepoint = transaction.savepoint();
    let verdict = if target.topology.wanted.is_constraint() {
        place_in_domains(transaction, cache, request, &target, steps_max)
    } else {
        super::place_freely(transaction, cache, request, steps_max)
    };
    if verdict == Verdict::Placed {
        ranks::assign(transaction, savepoint, request, &target);
    }
    verdict
}

/// The same, before the places are handed to the pods by rank.
fn place_in_domains(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    target: &Target,
    steps_max: u64,
) -> Verdict {
    if target.has_parts() {
        return structure::place(transaction, cache, request, target, steps_max);
    }
    let domains = target.open_domains(transaction.cluster(), request);
    let rooms = target.best_first(transaction.cluster(), cache, request, domains);
    if is_exact(transaction.cluster(), request) {
        match rooms.first().filter(|best| best.may_hold_minimum) {
            Some(best) if place_alike(transaction, cache, request, target, best) => return Verdict::Placed,
            Some(_) => debug_assert!(false, "the room of a domain is the sum over its nodes"),
            None => return Verdict::Impossible,
        }
    }
    try_each(transaction, cache, request, target, (&rooms, steps_max))
}

/// Whether the room of a domain is the sum over its nodes, for all pods of the request.
fn is_exact(cluster: &Cluster, request: &PlacementRequest) -> bool {
    !request.has_avoided_nodes()
        && requirements::have_equal_requirements(cluster, request)
        && !bounds::shares_limits_of_storage(cluster, request)
        && !request.lots.iter().any(|lot| cluster.has_required_inter_pod_terms(lot.class))
}

/// Places pods of equal requirements in a domain: as many as fit, in the fewest narrower domains. Undoes everything if
/// they do not.
fn place_alike(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    target: &Target,
    best: &DomainRoom,
) -> bool {
    let Some(class) = request.lots.first().map(|lot| lot.class) else { return true };
    let rooms = cache.rooms(transaction.cluster(), &target.tree, (class, request.priority));
    let wanted = if request.needs_only { request.needs_total().try_into().unwrap_or(i64::MAX) } else { best.pods };
    let pods = rooms.room(best.domain).min(best.pods).min(wanted);
    let parts = match target.preferred_depth() {
        Some(depth) => {
            let start = narrowest_that_holds(target, rooms, best.domain, pods, depth);
            let room = |domain| (rooms.room(domain), 0);
            split::split(&target.tree, &room, start, pods, depth, &target.topology.held)
        }
        None => vec![(best.domain, pods)],
    };
    let savepoint = transaction.savepoint();
    let mut turns = turns(transaction.cluster(), request).into_iter();
    for (domain, pods) in parts {
        let within = Within { tree: target.tree.clone(), domain };
        for (lot, index) in turns.by_ref().take(usize::try_from(pods).unwrap_or(0)) {
            let lot = &request.lots[lot];
            let shape = (lot.class, request.priority);
            let Some(node) = cache.best_within(transaction.cluster(), shape, &within, &[]) else {
                transaction.rollback_to(savepoint);
                return false;
            };
            lot.place(index, node, transaction);
        }
    }
    true
}

/// The tightest domain of the narrowest level, at most this deep, that holds all of these pods.
fn narrowest_that_holds(target: &Target, rooms: &Rooms, inside: DomainId, pods: i64, depth: usize) -> DomainId {
    let tree = &target.tree;
    let tightest = |depth: usize| {
        let domains = choice::open_domains(tree, &target.topology, inside, depth).into_iter();
        domains.map(|domain| (rooms.room(domain), domain)).filter(|(room, _)| *room >= pods).min()
    };
    (tree.depth(inside) + 1..=depth).rev().find_map(tightest).map_or(inside, |(_, domain)| domain)
}

/// The pods in the order in which they are placed, as lot and index: first the minimums, then the others by priority
/// and
/// age, then those that are expected.
fn turns(cluster: &Cluster, request: &PlacementRequest) -> Vec<(usize, usize)> {
    let mut missing: Vec<usize> = request.needs.iter().map(|need| *need as usize).collect();
    let (mut turns, mut rest) = (Vec::new(), Vec::new());
    for (at, lot) in request.lots.iter().enumerate() {
        let required = missing[lot.subset].min(lot.len());
        missing[lot.subset] -= required;
        turns.extend((0..required).map(|index| (at, index)));
        rest.extend((required..lot.len()).map(|index| (at, index)));
    }
    if request.lots.len() > 1 || request.lots.iter().any(|lot| lot.expected > 0) {
        rest.sort_by_key(|(at, index)| {
            let pod = request.lots[*at].pods.get(*index).copied();
            let age = |pod: PodId| (Reverse(cluster.pod(pod).priority), cluster.pod(pod).created_ms, pod);
            (pod.is_none(), pod.map(age))
        });
    }
    turns.extend(rest);
    turns
}

/// Tries domains in this order: first for all pods, then for what is needed.
fn try_each(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    target: &Target,
    (rooms, steps_max): (&[DomainRoom], u64),
) -> Verdict {
    let whole = PlacementRequest { needs: request.pods_by_subset(), ..request.clone() };
    if whole.needs != request.needs {
        let all = rooms.iter().filter(|room| room.holds_all()).map(|room| room.domain);
        if first_that_holds(transaction, cache, &whole, target, (all, steps_max)) == Verdict::Placed {
            return Verdict::Placed;
        }
    }
    let minimum = rooms.iter().filter(|room| room.may_hold_minimum && room.pods > 0).map(|room| room.domain);
    first_that_holds(transaction, cache, request, target, (minimum, steps_max))
}

/// Places a request in the first of these domains that holds it, as closely as possible.
fn first_that_holds(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    target: &Target,
    (domains, steps_max): (impl Iterator<Item = DomainId>, u64),
) -> Verdict {
    let mut verdict = Verdict::Impossible;
    for (tried, domain) in domains.enumerate() {
        if tried == TRIES_MAX {
            return verdict.and_not_found(0);
        }
        if place_closely(transaction, cache, request, target, (domain, steps_max)) {
            return Verdict::Placed;
        }
        match place_in(transaction, cache, request, target, (domain, steps_max)) {
            Verdict::Placed => return Verdict::Placed,
            Verdict::NotFound { steps } => verdict = verdict.and_not_found(steps),
            Verdict::Impossible => {}
        }
    }
    verdict
}

/// Places all pods of a request in one narrower domain of a level that is preferred, or of a level above it.
fn place_closely(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    target: &Target,
    (inside, steps_max): (DomainId, u64),
) -> bool {
    let Some(preferred) = target.preferred_depth() else { return false };
    let whole = PlacementRequest { needs: request.pods_by_subset(), ..request.clone() };
    (target.tree.depth(inside) + 1..=preferred).rev().any(|depth| {
        let domains = choice::open_domains(&target.tree, &target.topology, inside, depth);
        let rooms = target.best_first(transaction.cluster(), cache, &whole, domains);
        let mut domains = rooms.iter().filter(|room| room.holds_all()).map(|room| room.domain).take(TRIES_MAX);
        domains.any(|domain| place_in(transaction, cache, &whole, target, (domain, steps_max)) == Verdict::Placed)
    })
}

/// Places a request in this domain. If no pod can be placed there, that is no placement.
fn place_in(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    target: &Target,
    (domain, steps_max): (DomainId, u64),
) -> Verdict {
    let within = (domain != DomainId::ROOT).then(|| Within { tree: target.tree.clone(), domain });
    let inner = PlacementRequest { topology: None, within, ..request.clone() };
    let savepoint = transaction.savepoint();
    let verdict = super::place_freely(transaction, cache, &inner, steps_max);
    if verdict == Verdict::Placed && transaction.placed_since(savepoint).next().is_none() {
        transaction.rollback_to(savepoint);
        return Verdict::Impossible;
    }
    verdict
}

/// The domains inside of a domain that a group may be placed in, best first: those of the preferred level and the ones
/// above
/// it that hold all of its pods, then those of the required level, or else the domain itself.
pub(super) fn options(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    (tree, topology): (&Arc<Tree>, &TopologyRequest),
    inside: DomainId,
    is_leaf: bool,
) -> Vec<DomainId> {
    let required = topology.wanted.required.map(|level| level + 1).filter(|depth| *depth > tree.depth(inside));
    let mut options = Vec::new();
    // A leaf finds its preferred domains itself.
    if let Some(preferred) = topology.wanted.preferred.filter(|_| !is_leaf) {
        let widest = required.unwrap_or(tree.depth(inside)) + 1;
        for depth in (widest..=preferred + 1).rev() {
            let domains = choice::open_domains(tree, topology, inside, depth);
            let rooms = choice::best_first(cluster, cache, request, (tree, topology), domains);
            options.extend(rooms.iter().filter(|room| room.holds_all()).map(|room| room.domain).take(TRIES_MAX));
        }
    }
    match required {
        Some(depth) => {
            let domains = choice::open_domains(tree, topology, inside, depth);
            let rooms = choice::best_first(cluster, cache, request, (tree, topology), domains);
            let may_hold = |room: &&DomainRoom| !is_leaf || room.may_hold_minimum;
            options.extend(rooms.iter().filter(may_hold).map(|room| room.domain).take(TRIES_MAX));
        }
        None => options.push(inside),
    }
    options
}

/// How far apart neighbours in rank are, of pods that were placed together.
pub(crate) fn rank_distance(
    cluster: &Cluster,
    cache: &mut Cache,
    topology: &GroupTopology,
    placed: &[(PodId, NodeId)],
) -> Option<RankDistance> {
    ranks::distance(cluster, placed, &cache.tree(cluster, &topology.levels))
}

/// Where a group that does not fit comes closest.
#[derive(Clone, Debug)]
pub(crate) struct Closest {
    /// The domain; `None` if no node has the label, or if other groups have all domains for themselves.
    pub(crate) within: Option<Within>,
    /// The level of which that is a domain.
    pub(crate) level: usize,
    /// How many domains it may use.
    pub(crate) domains: usize,
    /// Whether members that are placed already decide the domain.
    pub(crate) held: bool,
    /// How many members are placed outside of it.
    pub(crate) outside: usize,
    /// How many nodes are in no domain.
    pub(crate) without_label: usize,
    /// How many domains other groups have for themselves.
    pub(crate) closed: usize,
    /// What its parts lack.
    pub(crate) parts: Option<PartsFit>,
}

/// How far the parts of a group fit into the domain that comes closest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartsFit {
    /// How many slices there are to place, and how many whole ones fit.
    pub(crate) slices: (usize, usize),
    /// The most pods that fit into one domain of slices.
    pub(crate) largest: usize,
    /// How many domains that are to be spread over have room for a slice, with those that are used already.
    pub(crate) spread: usize,
}

/// The domain in which the most pods of a group fit, if it has to be in one or its parts have to.
pub(crate) fn closest(cluster: &Cluster, cache: &mut Cache, request: &PlacementRequest) -> Option<Closest> {
    let target = Target::of(cluster, cache, request)?;
    let wanted = &target.topology.wanted;
    let narrowest = wanted.slices.map(|slices| slices.level).or(wanted.spread.map(|spread| spread.level));
    let level = wanted.required.or(narrowest)?;
    let domains = target.open_domains(cluster, request);
    let closed = exclusive::closed_domains(cluster, &target.tree, &target.topology);
    let (count, held) = (domains.len(), &target.topology.held);
    let labelled =
        |depth: usize| target.tree.at_depth(depth).iter().map(|domain| target.tree.nodes(*domain).len()).sum();
    let parts = target.has_parts().then(|| structure::closest(cluster, cache, request, &target, (&domains, &closed)));
    let best = if let Some((domain, _)) = parts.as_ref().and_then(Option::as_ref) {
        Some(*domain)
    } else {
        let rooms = target.best_first(cluster, cache, request, domains);
        rooms.iter().max_by_key(|room| (room.pods, Reverse(room.domain))).map(|room| room.domain)
    };
    let outside = |domain: DomainId| held.iter().filter(|node| !target.tree.contains(domain, **node)).count();
    let labelled: usize = labelled(narrowest.unwrap_or(level).max(level) + 1);
    Some(Closest {
        level,
        domains: count,
        held: wanted.required.is_some() && domain_of_most(&target.tree, held, level + 1).is_some(),
        outside: best.map_or(0, outside),
        without_label: target.tree.nodes(DomainId::ROOT).len() - labelled,
        closed: closed.len(),
        parts: parts.flatten().map(|(_, parts)| parts),
        within: best.map(|domain| Within { tree: target.tree.clone(), domain }),
    })
}

/// The domains of which one has to hold a group, best first; `None` if it may be anywhere.
pub(crate) fn required(cluster: &Cluster, cache: &mut Cache, request: &PlacementRequest) -> Option<Vec<Within>> {
    let target = Target::of(cluster, cache, request)?;
    target.topology.wanted.required.filter(|_| request.within.is_none())?;
    let domains = target.domains(request);
    let rooms = target.best_first(cluster, cache, request, domains);
    Some(rooms.iter().map(|room| Within { tree: target.tree.clone(), domain: room.domain }).collect())
}

/// Whether pods may be at these places: in one domain of the required level, the one of the members that are placed, and
/// as slices and spread ask for.
pub(crate) fn allows(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    places: &[(PodId, NodeId)],
) -> bool {
    let Some((_, first)) = places.first() else { return true };
    if let Some(required) = required(cluster, cache, request) {
        let domain = required.into_iter().find(|within| within.contains(*first));
        if !domain.is_some_and(|within| places.iter().all(|(_, node)| within.contains(*node))) {
            return false;
        }
    }
    let Some(target) = Target::of(cluster, cache, request).filter(|_| request.has_structure()) else { return true };
    verification::allows(cluster, &target, places)
}

/// Whether no other group has the domains of these nodes for itself.
pub(crate) fn are_open(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    mut nodes: impl Iterator<Item = NodeId>,
) -> bool {
    if request.topology.as_ref().is_none_or(|topology| topology.wanted.exclusive.is_none()) {
        return true;
    }
    let Some(target) = Target::of(cluster, cache, request) else { return true };
    let closed = exclusive::closed_domains(cluster, &target.tree, &target.topology);
    nodes.all(|node| target.tree.narrowest(node).is_some_and(|at| !exclusive::is_closed(&target.tree, &closed, at)))
}
