//! Caches why pods are unschedulable for as long as the cluster does not change.
//!
//! How many pods of a class fit, and what rejects the next one, is the same for all pods and gangs of that class. So
//! only the first failure evaluates every node and the following ones are free: ten thousand gangs that wait for one
//! kind of node can all be activated by one event.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use super::scheduling_cycle::view_for_group;
use crate::cluster::Cluster;
use crate::cluster::transaction::Transaction;
use crate::command::MemberVerdict;
use crate::diagnosis::{
    Closest, Diagnosis, DomainGap, FitError, KINDS_MAX, KindShortfall, PartsGap, Preemption, Proof, Shortfall,
    SlicesGap, SpreadGap, claims, examine,
};
use crate::model::ids::{ClassId, GroupId, NodeId, PodId};
use crate::model::pod::PodName;
use crate::model::topology::GroupTopology;
use crate::placement::cache::Cache;
use crate::placement::domains::PartsFit;
use crate::placement::{self, PlacementRequest, Verdict, Within};
use crate::preemption::NoPlan;
use crate::queue::PodShape;

/// The cached result for a class without enough capacity.
#[derive(Clone, Debug)]
struct CachedFailure {
    /// How many pods fit.
    room: u64,
    /// How many more would fit on nodes that are reserved for other groups, if that was counted.
    room_if_not_reserved: Option<u64>,
    /// How many pods would fit in a cluster without any pods.
    room_when_empty: u64,
    /// What rejects the next one.
    fit: FitError,
    closest: Option<Closest>,
}

/// The results that are valid for the current version of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct UnschedulableCache {
    version: u64,
    by_shape: BTreeMap<PodShape, CachedFailure>,
    /// The smallest number of pods for which there is no preemption plan, and why.
    no_plans: BTreeMap<PodShape, (u64, NoPlan)>,
}

impl UnschedulableCache {
    fn get(&self, cluster: &Cluster, shape: PodShape) -> Option<&CachedFailure> {
        if self.version == cluster.version() { self.by_shape.get(&shape) } else { None }
    }

    fn put(&mut self, cluster: &Cluster, shape: PodShape, failure: CachedFailure) {
        self.begin(cluster);
        self.by_shape.insert(shape, failure);
    }

    fn begin(&mut self, cluster: &Cluster) {
        if self.version != cluster.version() {
            self.version = cluster.version();
            self.by_shape.clear();
            self.no_plans.clear();
        }
    }

    /// Why there is no preemption plan for this many pods, if that is cached.
    pub(super) fn no_plan(&self, cluster: &Cluster, shape: PodShape, needed: u64) -> Option<NoPlan> {
        let known = self.no_plans.get(&shape).filter(|_| self.version == cluster.version());
        known.filter(|(pods, _)| needed >= *pods).map(|(_, why)| *why)
    }

    /// Caches that there is no preemption plan for this many pods.
    pub(super) fn put_no_plan(&mut self, cluster: &Cluster, shape: PodShape, needed: u64, why: NoPlan) {
        self.begin(cluster);
        let known = self.no_plans.entry(shape).or_insert((needed, why));
        if needed < known.0 {
            *known = (needed, why);
        }
    }

    /// More pods can be evicted or are leaving: drops the cached results, since plans may exist now.
    pub(super) fn forget_plans(&mut self) {
        self.no_plans.clear();
    }

    pub(super) fn forget(&mut self, class: ClassId) {
        self.by_shape.retain(|shape, _| shape.0 != class);
        self.no_plans.retain(|shape, _| shape.0 != class);
    }
}

/// Why a group is unschedulable, and what its members report.
pub(super) struct GroupFailure {
    pub(super) shortfall: Shortfall,
    pub(super) members: Vec<(Arc<PodName>, MemberVerdict)>,
}

impl Engine {
    /// Why a single pod is unschedulable. With avoided nodes the result is not cached: others may fit
    /// there.
    pub(super) fn diagnose_pod(
        &mut self,
        pod: PodId,
        shape: PodShape,
        avoid: &[NodeId],
        preemption: Preemption,
    ) -> Diagnosis {
        let (class, priority) = shape;
        let cacheable = avoid.is_empty();
        let known =
            self.unschedulable.get(&self.cluster, shape).filter(|failure| cacheable && failure.room == 0).cloned();
        let failure = known.unwrap_or_else(|| {
            let (fit, closest) = examine::explain_no_fit(&self.cluster, class, priority, (avoid, None));
            let room_when_empty = examine::room_when_empty(&self.cluster, class, u64::MAX);
            CachedFailure { room: 0, room_if_not_reserved: None, room_when_empty, fit, closest }
        });
        let never = failure.room_when_empty == 0;
        let (mut fit, closest) = (failure.fit.clone(), failure.closest.clone());
        if cacheable {
            self.unschedulable.put(&self.cluster, shape, failure);
        }
        self.name_tied_claims(&mut fit, pod);
        Diagnosis::PodUnschedulable { fit, closest, never, preemption }
    }

    /// Names the claims of a pod because of which it was rejected by nodes. Classes do not have them.
    fn name_tied_claims(&self, fit: &mut FitError, pod: PodId) {
        if fit.rejections.iter().any(|(rejection, _)| claims::is_about_place(rejection)) {
            fit.tied_claims = claims::tied_claims(&self.cluster, pod);
        }
    }

    /// Whether an attempt is known to fail because the capacity for the group's only class is cached.
    pub(super) fn is_known_to_fail(&self, id: GroupId, request: &PlacementRequest) -> bool {
        self.cached_failure(id, request).is_some_and(|failure| failure.room < request.needs_total().max(1))
    }

    fn cached_failure(&self, id: GroupId, request: &PlacementRequest) -> Option<&CachedFailure> {
        let class = request.lots.first()?.class;
        // Its own nominations and its own reservation do not block it.
        let is_nominated =
            request.lots.iter().flat_map(|lot| &lot.pods).any(|pod| self.cluster.pod(*pod).nominated.is_some());
        // With affinity to each other, how many fit depends on where the first is placed.
        // How many fit into one domain is another question.
        if !request.has_one_class()
            || request.is_bound_to_domains()
            || is_nominated
            || placement::may_gain_feasible_nodes(&self.cluster, class)
            || !self.set_aside_for(id).is_empty()
        {
            return None;
        }
        let known = self.unschedulable.get(&self.cluster, (class, request.priority));
        known.filter(|failure| self.reservation.is_none() || failure.room_if_not_reserved.is_some())
    }

    /// How many members would fit, and what rejects the others.
    pub(super) fn diagnose_group(
        &mut self,
        id: GroupId,
        request: &PlacementRequest,
        verdict: Verdict,
        preemption: Preemption,
    ) -> GroupFailure {
        let request = &*request.with_first_choice();
        let domain = self.closest_domain(id, request);
        let within = domain.as_ref().and_then(|(_, within)| within.clone());
        let Evaluation { fits, fits_if_not_reserved, mut kinds } = match self.cached_failure(id, request) {
            Some(failure) => shortfall_from_cache(&self.cluster, id, request, failure),
            None if domain.is_some() && within.is_none() => Evaluation::nothing_fits(request),
            None => self.evaluate_group(id, &PlacementRequest { within, ..request.clone() }),
        };
        for (at, kind) in &mut kinds {
            if let Some(pod) = request.lots[*at].pods.get(fits[*at]) {
                self.name_tied_claims(&mut kind.fit, *pod);
            }
        }
        let needed = request.needs_total().max(1);
        let known = self.cached_failure(id, request).map(|failure| failure.room_when_empty < needed);
        let never = known.unwrap_or_else(|| self.never_fits(request));
        let mut members = Vec::new();
        let too_large = too_large(&self.cluster, request);
        let cannot_help = needs_one_of(request, &too_large);
        let may_be_anywhere = |gap: &DomainGap| !self.config.labels_known_before_scale_up.contains(&gap.key);
        let anywhere = domain.as_ref().is_some_and(|(gap, _)| may_be_anywhere(gap));
        for (at, (lot, too_large)) in request.lots.iter().zip(&too_large).enumerate() {
            let verdict = |place| match place < fits[at] {
                true => MemberVerdict::WouldFit,
                // What a reservation keeps from it is no demand for another node.
                false if place < fits[at] + fits_if_not_reserved[at] => MemberVerdict::ScaleUpWouldNotHelp,
                false if anywhere || (cannot_help && !too_large) => MemberVerdict::ScaleUpWouldNotHelp,
                false => MemberVerdict::NoRoom,
            };
            let pods = lot.pods.iter().map(|pod| self.cluster.pod(*pod).id.clone());
            members.extend(pods.enumerate().map(|(place, pod)| (pod, verdict(place))));
        }
        members.sort_unstable_by(|one, two| one.0.cmp(&two.0));
        let proof = match verdict {
            Verdict::NotFound { .. } if request.has_avoided_nodes() => Proof::NodesLeftOut,
            Verdict::NotFound { steps } => Proof::NotFound { steps, alike: request.has_one_class() },
            _ if never => Proof::NeverFits,
            _ => Proof::Impossible,
        };
        let bottleneck = self.bottleneck(id, request, verdict);
        let group = self.cluster.group(id);
        let shortfall = Shortfall {
            started: group.is_gang() && group.lifecycle.confirmed().is_some(),
            minimum: if request.needs_total() == 0 || group.has_started_tree() {
                0
            } else {
                u32::try_from(group.min_total()).unwrap_or(u32::MAX)
            },
            held: group.total().placed(),
            waiting: group.waiting.len() as u32,
            would_fit: fits.iter().sum::<usize>() as u32,
            kinds: kinds.into_iter().map(|(_, kind)| kind).collect(),
            gap: None,
            later: None,
            domain: domain.map(|(gap, _)| Box::new(gap)),
            bottleneck,
            proof,
            preemption,
        };
        GroupFailure { shortfall, members }
    }

    /// The domain in which the most members of a group fit, if they have to share one.
    fn closest_domain(&mut self, id: GroupId, request: &PlacementRequest) -> Option<(DomainGap, Option<Within>)> {
        let wanted = request.topology.as_ref()?.wanted.clone();
        let aside = self.set_aside_for(id);
        let transaction = view_for_group(&mut self.cluster, request, &aside);
        let closest = placement::domains::closest(transaction.cluster(), &mut self.cache, request)?;
        let path = |within: &Within| within.tree.path(within.domain).iter().map(ToString::to_string).collect();
        let gap = DomainGap {
            key: wanted.levels[closest.level].clone(),
            parts: closest.parts.map(|parts| parts_gap(&wanted, parts)),
            closed: closest.closed as u32,
            path: closest.within.as_ref().map_or_else(Vec::new, path),
            domains: closest.domains as u32,
            held: closest.held,
            outside: closest.outside as u32,
            without_label: closest.without_label as u32,
        };
        Some((gap, closest.within))
    }

    /// Whether a cluster without any pods could not meet the minimum, in none of its domains if there has to be one.
    fn never_fits(&mut self, request: &PlacementRequest) -> bool {
        let cluster = &self.cluster;
        match placement::domains::required(cluster, &mut self.cache, request) {
            Some(domains) => domains.iter().all(|within| never_fits_on(cluster, request, within.nodes())),
            None => never_fits_on(cluster, request, &cluster.nodes().map(|(id, _)| id).collect::<Vec<_>>()),
        }
    }

    /// Places as many members as possible: how many of each lot fit, and what rejects the others after that.
    fn evaluate_group(&mut self, id: GroupId, request: &PlacementRequest) -> Evaluation {
        let (aside, reserved_for_others) = (self.set_aside_for(id), self.reserved_for_others(id));
        let cacheable = request.has_one_class() && aside.is_empty() && !request.is_bound_to_domains();
        let mut transaction = view_for_group(&mut self.cluster, request, &aside);
        let cacheable = cacheable && transaction.is_unchanged();
        let order = placement::place_what_fits(&mut transaction, &mut self.cache, request);
        let cluster = transaction.cluster();
        let group = cluster.group(id);
        let placed = |pods: &[_]| pods.iter().filter(|pod| cluster.pod(**pod).state.node().is_some()).count();
        let fits: Vec<usize> = request.lots.iter().map(|lot| placed(&lot.pods)).collect();
        let mut kinds = Vec::new();
        let refused =
            order.iter().map(|at| (*at, &request.lots[*at], fits[*at])).filter(|(_, lot, fits)| lot.pods.len() > *fits);
        for (at, lot, fits) in refused.take(KINDS_MAX) {
            let (fit, closest) =
                examine::explain_no_fit(cluster, lot.class, request.priority, (&lot.avoid, request.within.as_ref()));
            let subset = group.rules[lot.subset].name.clone();
            kinds.push((at, KindShortfall { subset, pods: (lot.pods.len() - fits) as u32, fit, closest }));
        }
        let fits_if_not_reserved = if reserved_for_others.is_empty() {
            vec![0; request.lots.len()]
        } else {
            fits_on(&mut transaction, &mut self.cache, request, &reserved_for_others)
        };
        drop(transaction);
        if let (true, Some(kind), Some(lot)) = (cacheable, kinds.first().map(|(_, kind)| kind), request.lots.first()) {
            let room_when_empty = examine::room_when_empty(&self.cluster, lot.class, u64::MAX);
            let (fit, closest) = (kind.fit.clone(), kind.closest.clone());
            let (room, room_if_not_reserved) = (sum(&fits), Some(sum(&fits_if_not_reserved)));
            let failure = CachedFailure { room, room_if_not_reserved, room_when_empty, fit, closest };
            self.unschedulable.put(&self.cluster, (lot.class, request.priority), failure);
        }
        Evaluation { fits, fits_if_not_reserved, kinds }
    }
}

/// What the parts of a group lack.
fn parts_gap(wanted: &GroupTopology, fit: PartsFit) -> PartsGap {
    let slices = wanted.slices.map(|slices| SlicesGap {
        key: wanted.levels[slices.level].clone(),
        size: slices.size,
        needed: fit.slices.0 as u32,
        fit: fit.slices.1 as u32,
        largest: fit.largest as u32,
    });
    let spread = wanted.spread.map(|spread| SpreadGap {
        key: wanted.levels[spread.level].clone(),
        min: spread.min,
        max: spread.max,
        with_room: fit.spread as u32,
    });
    PartsGap { in_one_domain: wanted.required.is_some(), slices, spread }
}

/// How many members of a group fit.
struct Evaluation {
    /// Of each lot.
    fits: Vec<usize>,
    /// How many more of each lot would fit on nodes that are reserved for other groups.
    fits_if_not_reserved: Vec<usize>,
    /// What rejects the others, with the number of their lot.
    kinds: Vec<(usize, KindShortfall)>,
}

impl Evaluation {
    fn nothing_fits(request: &PlacementRequest) -> Self {
        let none = vec![0; request.lots.len()];
        Self { fits: none.clone(), fits_if_not_reserved: none, kinds: Vec::new() }
    }
}

/// How many more pods of each lot would fit if these nodes were not reserved.
fn fits_on(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    reserved: &[NodeId],
) -> Vec<usize> {
    let is_placed = |cluster: &Cluster, pod: PodId| cluster.pod(pod).state.node().is_some();
    let rest = request.without(|pod| is_placed(transaction.cluster(), pod));
    for node in reserved {
        transaction.lift_reservation(*node);
    }
    placement::place_what_fits(transaction, cache, &rest);
    let placed = |pods: &[PodId]| pods.iter().filter(|pod| is_placed(transaction.cluster(), **pod)).count();
    rest.lots.iter().map(|lot| placed(&lot.pods)).collect()
}

fn sum(counts: &[usize]) -> u64 {
    counts.iter().sum::<usize>() as u64
}

/// The result of `evaluate_group` for pods of one class, from the cache.
fn shortfall_from_cache(
    cluster: &Cluster,
    id: GroupId,
    request: &PlacementRequest,
    failure: &CachedFailure,
) -> Evaluation {
    let mut room = usize::try_from(failure.room).unwrap_or(usize::MAX);
    let mut room_if_not_reserved = usize::try_from(failure.room_if_not_reserved.unwrap_or(0)).unwrap_or(usize::MAX);
    let mut fits_if_not_reserved = Vec::new();
    let mut kinds = Vec::new();
    let mut all_fits = Vec::new();
    for (at, lot) in request.lots.iter().enumerate() {
        let fits = room.min(lot.pods.len());
        room -= fits;
        all_fits.push(fits);
        let left = lot.pods.len() - fits;
        let more = room_if_not_reserved.min(left);
        room_if_not_reserved -= more;
        fits_if_not_reserved.push(more);
        if left > 0 && kinds.len() < KINDS_MAX {
            let subset = cluster.group(id).rules[lot.subset].name.clone();
            let (fit, closest) = (failure.fit.clone(), failure.closest.clone());
            kinds.push((at, KindShortfall { subset, pods: left as u32, fit, closest }));
        }
    }
    Evaluation { fits: all_fits, fits_if_not_reserved, kinds }
}

/// Which lots request more than any node has. In a group of one class there is no other lot to compare with.
fn too_large(cluster: &Cluster, request: &PlacementRequest) -> Vec<bool> {
    let mixed = !request.has_one_class();
    request.lots.iter().map(|lot| mixed && examine::is_too_large(cluster, lot.class)).collect()
}

/// Whether the minimum cannot be met without pods of one of these lots.
fn needs_one_of(request: &PlacementRequest, lots: &[bool]) -> bool {
    let mut others = vec![0; request.needs.len()];
    for (lot, _) in request.lots.iter().zip(lots).filter(|(_, is_one)| !**is_one) {
        others[lot.subset] += lot.pods.len();
    }
    others.iter().zip(&request.needs).any(|(others, need)| *others < *need as usize)
}

/// Whether these nodes without any pods could not meet the minimum, judged lot by lot.
fn never_fits_on(cluster: &Cluster, request: &PlacementRequest, nodes: &[NodeId]) -> bool {
    let room = |class, enough| examine::room_of_empty_nodes(cluster, class, enough, nodes.iter().copied());
    let needed = request.needs_total();
    if needed == 0 {
        return request.lots.iter().all(|lot| room(lot.class, 1) == 0);
    }
    if request.has_one_class() {
        let class = request.lots.first().map(|lot| lot.class);
        return class.is_some_and(|class| room(class, needed) < needed);
    }
    let mut reachable = vec![0; request.needs.len()];
    for lot in &request.lots {
        let pods = lot.pods.len() as u64;
        reachable[lot.subset] += room(lot.class, pods).min(pods);
    }
    reachable.iter().zip(&request.needs).any(|(room, need)| *room < u64::from(*need))
}
