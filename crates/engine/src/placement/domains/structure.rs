//! Placement by slices, spread over domains, or alone in a domain.
//!
//! For pods of equal requirements `assignment` computes from the rooms of domains which slice goes where: nothing is
//! tried. Other groups are tried slice by slice, within a limit.

use std::collections::{BTreeMap, BTreeSet};

use super::super::cache::Cache;
use super::super::request::{Lot, PlacementRequest, Verdict};
use super::super::within::Within;
use super::assignment::{self, Assignment, Divided, Rules};
use super::slices::{self, Slice};
use super::tree::DomainId;
use super::{PartsFit, Target, choice, exclusive, is_exact, split};
use crate::cluster::Cluster;
use crate::cluster::transaction::Transaction;

/// So many placements of one slice are tried for a group of different pods.
const TRIES_MAX: usize = 256;
/// For more slices than this no other choice is tried when one does not fit.
const SEARCHED_SLICES_MAX: usize = 64;

/// Places a group by its structure: at least the minimums, and what else fits.
pub(super) fn place(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    target: &Target,
    steps_max: u64,
) -> Verdict {
    let closed = exclusive::closed_domains(transaction.cluster(), &target.tree, &target.topology);
    let domains = target.domains(request);
    let open = domains.into_iter().filter(|domain| !exclusive::is_closed(&target.tree, &closed, *domain)).collect();
    if request.lots.is_empty() {
        return Verdict::Placed;
    }
    if is_exact(transaction.cluster(), request) {
        return place_alike(transaction, cache, request, target, (open, &closed));
    }
    let rooms = target.best_first(transaction.cluster(), cache, request, open);
    let rules = Rules::of(target, &closed);
    let everything = slices::divide(transaction.cluster(), request, target, |_| i64::MAX);
    let mut tries = TRIES_MAX;
    let candidates: Vec<DomainId> = rooms.iter().filter(|room| room.may_hold_minimum).map(|room| room.domain).collect();
    for whole in [true, false] {
        for domain in narrow(target, &candidates) {
            let mut attempt = Attempt { cache, request, rules: &rules, inside: domain, steps_max, tries, whole };
            let found = attempt.run(transaction, &everything);
            tries = attempt.tries;
            if found {
                return Verdict::Placed;
            }
        }
        tries = tries.max(TRIES_MAX / 4);
    }
    // A bound proves it, a failed attempt does not.
    if candidates.is_empty() { Verdict::Impossible } else { Verdict::NotFound { steps: 0 } }
}

/// These domains, and before them the narrower ones of the levels down to the preferred one.
fn narrow(target: &Target, domains: &[DomainId]) -> Vec<DomainId> {
    let deepest = target.preferred_depth().unwrap_or(0).min(slices::unit_depth(target));
    let mut all = Vec::new();
    if let Some(first) = domains.first() {
        for depth in (target.tree.depth(*first) + 1..=deepest).rev() {
            for domain in domains {
                all.extend(choice::open_domains(&target.tree, &target.topology, *domain, depth).into_iter().take(16));
            }
        }
    }
    all.extend(domains);
    all
}

/// Where the slices of a group of equal pods go, and how many pods are placed.
pub(super) struct Best {
    pub(super) inside: DomainId,
    pub(super) divided: Divided,
    pub(super) assignment: Assignment,
}

/// The best of these domains for pods of equal requirements.
pub(super) fn best(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    target: &Target,
    (domains, closed): (Vec<DomainId>, &BTreeSet<DomainId>),
) -> Option<Best> {
    let class = request.lots.first()?.class;
    let rooms = cache.rooms(cluster, &target.tree, (class, request.priority));
    let slices = slices::divide(cluster, request, target, |domain| rooms.room(domain));
    let divided = Divided::new(slices, slices::unit_size(target));
    let needed = i64::try_from(request.needs_total()).unwrap_or(i64::MAX);
    let rules = Rules::of(target, closed);
    let all: i64 = divided.slices.iter().map(|slice| slice.pods.len() as i64).sum();
    let assign = |inside: DomainId| {
        let assignment = assignment::assign(&rules, rooms, inside, &divided, needed);
        ((assignment.pods < all, -assignment.pods, assignment.slack, inside), assignment)
    };
    let preferred = target.preferred_depth().unwrap_or(0).min(slices::unit_depth(target));
    let widest = domains.first().map_or(0, |domain| target.tree.depth(*domain));
    let narrower = (widest + 1..=preferred).rev().find_map(|depth| {
        let inside =
            domains.iter().flat_map(|domain| choice::open_domains(&target.tree, &target.topology, *domain, depth));
        let tried = inside.map(assign).filter(|((is_part, ..), _)| !is_part);
        tried.min_by_key(|(key, _)| *key)
    });
    let found = narrower.or_else(|| domains.into_iter().map(assign).min_by_key(|(key, _)| *key));
    found.map(|((_, _, _, inside), assignment)| Best { inside, divided, assignment })
}

fn place_alike(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    target: &Target,
    (domains, closed): (Vec<DomainId>, &BTreeSet<DomainId>),
) -> Verdict {
    let Some(best) = best(transaction.cluster(), cache, request, target, (domains, closed)) else {
        return Verdict::Impossible;
    };
    let Best { divided: Divided { slices, .. }, assignment, .. } = best;
    let unknown = if assignment.is_exact { Verdict::Impossible } else { Verdict::NotFound { steps: 0 } };
    let mut placed = vec![0_usize; request.needs.len()];
    for (slice, pods, _) in &assignment.parts {
        for (lot, _) in &slices[*slice].pods[..*pods] {
            placed[request.lots[*lot].subset] += 1;
        }
    }
    if placed.iter().zip(&request.needs).any(|(placed, need)| *placed < *need as usize) {
        // With several subsets, others of the equal pods could be placed.
        return if request.needs.len() > 1 { Verdict::NotFound { steps: 0 } } else { unknown };
    }
    let savepoint = transaction.savepoint();
    let mut by_domain: BTreeMap<DomainId, Vec<(usize, usize)>> = BTreeMap::new();
    for (slice, pods, domain) in assignment.parts {
        by_domain.entry(domain).or_default().extend(&slices[slice].pods[..pods]);
    }
    for (domain, turns) in by_domain {
        if !place_in_unit(transaction, cache, request, target, (domain, &turns)) {
            debug_assert!(false, "the room of a domain is the sum over its nodes");
            transaction.rollback_to(savepoint);
            return Verdict::NotFound { steps: 0 };
        }
    }
    Verdict::Placed
}

/// The domain in which the most pods fit, and what its parts lack there.
pub(super) fn closest(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    target: &Target,
    (domains, closed): (&[DomainId], &BTreeSet<DomainId>),
) -> Option<(DomainId, PartsFit)> {
    let class = request.lots.first()?.class;
    let rules = Rules::of(target, closed);
    let (inside, slices) = if is_exact(cluster, request) {
        let best = best(cluster, cache, request, target, (domains.to_vec(), closed))?;
        (best.inside, best.divided.slices.len())
    } else {
        let rooms = target.best_first(cluster, cache, request, domains.to_vec());
        (rooms.first()?.domain, slices::divide(cluster, request, target, |_| i64::MAX).len())
    };
    let rooms = cache.rooms(cluster, &target.tree, (class, request.priority));
    let whole: i64 = rules.capacities(rooms, inside).map(|(_, slices)| slices).sum();
    let largest = rules.capacities(rooms, inside).map(|(unit, _)| rooms.room(unit)).max().unwrap_or(0);
    let fit = PartsFit {
        slices: (slices, usize::try_from(whole).unwrap_or(0)),
        largest: usize::try_from(largest).unwrap_or(0),
        spread: rules.spread_over(rooms, inside),
    };
    Some((inside, fit))
}

/// Places equal pods in a domain, in as few of the narrower domains that are preferred as possible.
fn place_in_unit(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    target: &Target,
    (domain, turns): (DomainId, &[(usize, usize)]),
) -> bool {
    let Some((first, _)) = turns.first() else { return true };
    let shape = (request.lots[*first].class, request.priority);
    let parts = match target.preferred_depth().filter(|depth| *depth > target.tree.depth(domain)) {
        Some(depth) => {
            let rooms = cache.rooms(transaction.cluster(), &target.tree, shape);
            let room = |domain| (rooms.room(domain), 0);
            split::split(&target.tree, &room, domain, turns.len() as i64, depth, &target.topology.held)
        }
        None => vec![(domain, turns.len() as i64)],
    };
    let mut turns = turns.iter();
    for (domain, pods) in parts {
        let within = Within { tree: target.tree.clone(), domain };
        for (lot, index) in turns.by_ref().take(usize::try_from(pods).unwrap_or(0)) {
            let lot = &request.lots[*lot];
            let shape = (lot.class, request.priority);
            let Some(node) = cache.best_within(transaction.cluster(), shape, &within, &lot.avoid) else { return false };
            lot.place(*index, node, transaction);
        }
    }
    true
}

/// An attempt to place the slices of a group of different pods in a domain.
struct Attempt<'a, 't> {
    cache: &'a mut Cache,
    request: &'a PlacementRequest,
    rules: &'a Rules<'t>,
    inside: DomainId,
    steps_max: u64,
    /// How many placements of a slice may still be tried.
    tries: usize,
    /// Whether all pods are to be placed, or what is needed.
    whole: bool,
}

impl Attempt<'_, '_> {
    fn run(&mut self, transaction: &mut Transaction<'_>, slices: &[Slice]) -> bool {
        let savepoint = transaction.savepoint();
        let mut used = Vec::new();
        let searched = self.whole && slices.len() <= SEARCHED_SLICES_MAX;
        let found = if searched {
            self.search(transaction, slices, &mut used)
        } else {
            self.take_in_turn(transaction, slices, &mut used)
        };
        let mut missing: Vec<usize> = self.request.needs.iter().map(|need| *need as usize).collect();
        for (slice, _) in &used {
            for (lot, _) in &slices[*slice].pods {
                let missing = &mut missing[self.request.lots[*lot].subset];
                *missing = missing.saturating_sub(1);
            }
        }
        if found && !used.is_empty() && missing.iter().all(|missing| *missing == 0) {
            return true;
        }
        transaction.rollback_to(savepoint);
        false
    }

    /// Places every slice; if one fits nowhere, another domain is tried for the one before it.
    fn search(
        &mut self,
        transaction: &mut Transaction<'_>,
        slices: &[Slice],
        used: &mut Vec<(usize, DomainId)>,
    ) -> bool {
        let at = used.len();
        let Some(slice) = slices.get(at) else { return true };
        for domain in self.candidates(transaction.cluster(), slice, used) {
            if self.tries == 0 {
                return false;
            }
            let savepoint = transaction.savepoint();
            if self.place(transaction, slice, domain) {
                used.push((at, domain));
                if self.search(transaction, slices, used) {
                    return true;
                }
                used.pop();
            }
            transaction.rollback_to(savepoint);
        }
        false
    }

    /// Places one slice after the other where it fits, and leaves out those that do not.
    fn take_in_turn(
        &mut self,
        transaction: &mut Transaction<'_>,
        slices: &[Slice],
        used: &mut Vec<(usize, DomainId)>,
    ) -> bool {
        for (at, slice) in slices.iter().enumerate() {
            let mut domains = self.candidates(transaction.cluster(), slice, used).into_iter().take(8);
            let found = domains.find(|domain| {
                self.tries = self.tries.max(1);
                self.place(transaction, slice, *domain)
            });
            match found {
                Some(domain) => used.push((at, domain)),
                None if self.whole => return false,
                None => {}
            }
        }
        true
    }

    /// The domains in which a slice may be, tightest first.
    fn candidates(&mut self, cluster: &Cluster, slice: &Slice, used: &[(usize, DomainId)]) -> Vec<DomainId> {
        let rules = self.rules;
        let domains: Vec<DomainId> = match slice.home {
            Some(home) => vec![home],
            None => rules.open_units(self.inside, used.iter().map(|(_, domain)| *domain)),
        };
        let mut classes: Vec<_> = slice.pods.iter().map(|(lot, _)| self.request.lots[*lot].class).collect();
        classes.sort_unstable();
        let mut open: Vec<(usize, i64, DomainId)> =
            domains.into_iter().map(|domain| (rules.load(domain, used), i64::MAX, domain)).collect();
        for run in classes.chunk_by(|one, other| one == other) {
            let rooms = self.cache.rooms(cluster, &rules.target.tree, (run[0], self.request.priority));
            for (_, room, domain) in &mut open {
                *room = (*room).min(rooms.room(*domain) - run.len() as i64);
            }
        }
        open.retain(|(_, room, _)| *room >= 0);
        open.sort_unstable();
        open.into_iter().map(|(_, _, domain)| domain).collect()
    }

    /// Places all pods of a slice in a domain.
    fn place(&mut self, transaction: &mut Transaction<'_>, slice: &Slice, domain: DomainId) -> bool {
        self.tries = self.tries.saturating_sub(1);
        let within = Some(Within { tree: self.rules.target.tree.clone(), domain });
        let inner = PlacementRequest { topology: None, within, ..part_of(self.request, slice) };
        super::super::place_freely(transaction, self.cache, &inner, self.steps_max) == Verdict::Placed
    }
}

/// A request for the pods of a slice, all of them.
fn part_of(request: &PlacementRequest, slice: &Slice) -> PlacementRequest {
    let lots = request.lots.iter().enumerate().filter_map(|(at, lot)| {
        let indices = || slice.pods.iter().filter(|(of, _)| *of == at).map(|(_, index)| *index);
        let pods: Vec<_> = indices().filter_map(|index| lot.pods.get(index).copied()).collect();
        let expected = indices().filter(|index| *index >= lot.pods.len()).count();
        (pods.len() + expected > 0).then(|| Lot { pods, expected, ..lot.clone() })
    });
    let part = PlacementRequest { lots: lots.collect(), ..request.clone() };
    PlacementRequest { needs: part.pods_by_subset(), ..part }
}
