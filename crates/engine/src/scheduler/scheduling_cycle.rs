//! The scheduling cycle: one attempt to place one entity on a consistent state of the cluster.
//!
//! The attempt searches for a placement and either commits it, or reports why there is none and parks the entity. A
//! failed attempt leaves nothing behind: its transaction is undone and its nominations are cleared.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::later_pods::Stage;
use super::{Engine, PreemptionResult, min_resources};
use crate::cluster::Cluster;
use crate::cluster::group::Exclusion;
use crate::cluster::pod::{Awaited, Counted, StartRole};
use crate::cluster::transaction::Transaction;
use crate::command::Command;
use crate::diagnosis::{Diagnosis, LaterGap, Preemption, Proof, ResourceGap};
use crate::model::Millis;
use crate::model::group::Policy;
use crate::model::ids::{ClassId, GroupId, NodeId, PodId};
use crate::placement::cache::Cache;
use crate::placement::{self, Lot, PlacementRequest, TopologyRequest, Verdict};
use crate::queue::backoff::{doubled, pause_ms};
use crate::queue::{Entity, PodShape, QueueState};

/// So many attempts of a search that is not completed follow each other soon: in that part of the first pause.
const SLICES: u32 = 16;
const SLICES_PER_PAUSE: u64 = 10;

impl Engine {
    /// Attempts to place one pod.
    pub(super) fn schedule_pod(&mut self, id: PodId) {
        let (class, priority) = self.shape_of(id);
        let avoid = self.avoided(id);
        let nominated = self.cluster.pod(id).nominated.filter(|node| !avoid.contains(node));
        let mut transaction = Transaction::new(&mut self.cluster);
        transaction.clear_nomination(id);
        let candidates = self.cache.candidates(transaction.cluster(), class, priority);
        // A nominated node is used without looking for a better one.
        let best = nominated.filter(|node| candidates.has_room(*node)).or_else(|| candidates.best_except(&avoid));
        if let Some(node) = best {
            transaction.place(id, node);
            transaction.commit();
            self.send_binds(&[(id, node)]);
            self.queue.activate_next_pod((class, priority), self.now);
            return;
        }
        drop(transaction);
        if self.take_over_place_for_pod(id) {
            self.queue.requeue(Entity::Pod(id), self.now);
            return;
        }
        let preemption = self.preempt_for_pod(id);
        self.count_preemption(&preemption);
        match preemption {
            Ok(victims) => self.wait_for_victims(Entity::Pod(id), vec![(class, priority)], victims),
            Err(preemption) => self.pod_unschedulable(id, (class, priority), &avoid, preemption),
        }
    }

    fn pod_unschedulable(&mut self, id: PodId, (class, priority): PodShape, avoid: &[NodeId], preemption: Preemption) {
        self.clear_nomination(id);
        let diagnosis = self.diagnose_pod(id, (class, priority), avoid, preemption);
        let entity = Entity::Pod(id);
        self.queue.set_awaited_victims(entity, None);
        let (initial, max) = (self.config.backoff_ms_initial, self.config.backoff_ms_max);
        self.queue.record_failure(entity, self.now, |failures| pause_ms(initial, max, failures, 1));
        // Nodes that refused the pod may be used again in the next attempt.
        if let Some(bind) = &mut self.cluster.pod_mut(id).bind {
            bind.avoid.clear();
        }
        let reopened = (!avoid.is_empty()).then(|| self.queue.entry(entity).map_or(self.now, |entry| entry.not_before));
        let retry_at = reopened.into_iter().chain(self.preemption_retry_at(entity, preemption)).min();
        self.record_wait_for_nodes(entity, preemption);
        self.queue.move_to(entity, QueueState::Parked { shapes: vec![(class, priority)], retry_at });
        self.report_pod(id, diagnosis);
    }

    /// Attempts to place the waiting members of a group: at least what it needs, or nothing.
    pub(super) fn schedule_group(&mut self, id: GroupId) {
        let entity = Entity::Group(id);
        let request = self.request(id);
        let beside = self.later_beside(id);
        let unnamed = beside.as_ref().and_then(Stage::unnamed_gap);
        let further = if unnamed.is_some() { None } else { self.further_stage_gap(id, &request) };
        let (gap, later) = match further {
            Some((gap, stage)) => {
                if let Some(beside) = beside {
                    self.release(beside);
                }
                (Some(gap), Some(stage))
            }
            None => (unnamed, beside),
        };
        if gap.is_some() {
            let lack = Lack { later: gap, ..Lack::default() };
            // What comes later does not fit either way: nothing is evicted for it.
            let outcome = (Preemption::LaterPods, lack);
            self.group_unschedulable(id, (&request, later.as_ref()), Verdict::Impossible, outcome);
        } else {
            self.schedule_group_beside(id, &request, later.as_ref(), entity);
        }
        self.park_later(id, later);
    }

    /// The same, with the later pods that must fit beside the group.
    fn schedule_group_beside(
        &mut self,
        id: GroupId,
        request: &PlacementRequest,
        later: Option<&Stage>,
        entity: Entity,
    ) {
        if self.is_known_to_fail(id, request) {
            self.preempt_or_refuse(id, (request, later), Verdict::Impossible, Lack::default());
            return;
        }
        if let Some((placed, kept)) = self.take_nominated_places(id, request, later) {
            self.group_placed(id, &placed, later.map(|later| (later, &kept[..])));
            return;
        }
        let steps_max = self.steps_max(entity);
        let (aside, started_after) = (self.set_aside_for(id), self.debtors_started_after());
        self.cache.searches.keep(true);
        let mut transaction = view_for_group(&mut self.cluster, request, &aside);
        let start = transaction.savepoint();
        let all = later.and_then(|later| later.together_with(request));
        let all = match later {
            Some(_) => all,
            None => with_expected(&transaction, &mut self.cache, id, request),
        };
        let mut verdict = match &all {
            Some(all) => placement::place(&mut transaction, &mut self.cache, all, steps_max),
            None => Verdict::Impossible,
        };
        let mut lack = Lack::default();
        if later.is_some() && transaction.placed().next().is_none() {
            // Later pods alone are no start.
            transaction.rollback_to(start);
            verdict = Verdict::Impossible;
        }
        if verdict != Verdict::Placed {
            verdict = placement::place(&mut transaction, &mut self.cache, request, steps_max);
            if let Some(later) = later.filter(|_| verdict == Verdict::Placed)
                && !later.place(&mut transaction, &mut self.cache, request.priority, steps_max)
            {
                lack.later = later.gap(&mut transaction, &mut self.cache, request.priority, true);
            }
        }
        if verdict == Verdict::Placed && transaction.placed().next().is_some() {
            lack.gap = min_resources::gap(transaction.cluster(), id, request, started_after);
            if !lack.is_none() {
                drop(transaction);
                self.preempt_or_refuse(id, (request, later), Verdict::Impossible, lack);
                return;
            }
            let kept = transaction.occupied();
            let placed = transaction.commit();
            self.group_placed(id, &placed, later.map(|later| (later, &kept[..])));
            return;
        }
        drop(transaction);
        let verdict = match verdict {
            // Nothing was required and nothing fits: that is certain, unless nodes were avoided.
            Verdict::Placed if request.has_avoided_nodes() => Verdict::NotFound { steps: 0 },
            Verdict::Placed => Verdict::Impossible,
            other => other,
        };
        self.preempt_or_refuse(id, (request, later), verdict, Lack::default());
    }

    /// What is set aside for a group.
    pub(super) fn set_aside_for(&self, id: GroupId) -> SetAside {
        SetAside { nodes: self.reserved_for(id), stand_ins: self.stand_ins_for(id) }
    }

    /// Groups that started earlier keep nothing of their `minResources` from others any more.
    pub(super) fn debtors_started_after(&self) -> Millis {
        self.now.saturating_sub(self.config.min_resources_held_ms_max)
    }

    fn preempt_or_refuse(
        &mut self,
        id: GroupId,
        (request, later): (&PlacementRequest, Option<&Stage>),
        verdict: Verdict,
        lack: Lack,
    ) {
        self.cache.searches.keep(false);
        if verdict != Verdict::Placed && lack.is_none() && self.take_over_places_for_group(id, request) {
            self.queue.requeue(Entity::Group(id), self.now);
            return;
        }
        if let Some(places) = self.places_kept_too_long(id, request) {
            self.preemption_result = Some(PreemptionResult::Unschedulable);
            return self.give_up_places(id, request, &places);
        }
        let preemption = self.preempt_for_group(id, request, later);
        self.count_preemption(&preemption);
        match preemption {
            Ok(victims) => self.wait_for_victims(Entity::Group(id), shapes(request, later), victims),
            Err(preemption) => self.group_unschedulable(id, (request, later), verdict, (preemption, lack)),
        }
    }

    /// The waiting members of a group are placed. `kept` is the room for its later pods, if that was looked for.
    fn group_placed(&mut self, id: GroupId, placed: &[(PodId, NodeId)], kept: Option<(&Stage, &[(ClassId, NodeId)])>) {
        match kept {
            Some((later, places)) => self.keep_room_from_start(id, later, places),
            None => self.use_kept_room(id, placed),
        }
        let group = self.cluster.group_mut(id);
        group.decisions = group.decisions.wrapping_add(1);
        let quorum = group.quorum_to_confirm();
        // A higher minimum than that of the start under way begins a new start.
        if group.is_gang() && group.is_new_start(&quorum) {
            if self.queue.entry(Entity::Group(id)).is_none_or(|entry| entry.awaited_victims.is_none()) {
                group.lowest_victim = None;
            }
            self.cluster.record_min_resources_at_start(id);
            self.start_attempt(id, quorum);
            self.limit_deadline_by_members(id);
        } else if let Some(attempt) = group.lifecycle.attempt_mut() {
            // The current minimum counts if it was lowered, or if the subset has got its name since.
            attempt.quorum = attempt.quorum.iter().zip(&quorum).map(|(then, now)| *then.min(now)).collect();
        }
        for (pod, _) in placed {
            let role = self.role_of_placed(id, *pod);
            self.cluster.pod_mut(*pod).start_role = role;
        }
        let levels = self.cluster.group(id).definition.current().and_then(|spec| spec.topology.clone());
        self.rank_distance = levels
            .and_then(|levels| placement::domains::rank_distance(&self.cluster, &mut self.cache, &levels, placed));
        self.queue.set_awaited_victims(Entity::Group(id), None);
        self.queue.forget_overlong_waits(Entity::Group(id));
        self.activate_family(id);
        self.send_binds(placed);
        self.review_group(id);
    }

    /// The role of a member that was just placed.
    fn role_of_placed(&self, id: GroupId, pod: PodId) -> StartRole {
        let group = self.cluster.group(id);
        let joins_started_part = |subset: u16| group.tree.is_some() && group.has_started_subset(usize::from(subset));
        match (group.lifecycle.attempt(), self.cluster.pod(pod).counted) {
            (Some(_), Counted::In { subset, .. }) if joins_started_part(subset) => StartRole::Joined,
            (Some(_), _) => StartRole::Tentative,
            (None, _) if group.is_gang() => StartRole::Joined,
            (None, _) => StartRole::None,
        }
    }

    fn group_unschedulable(
        &mut self,
        id: GroupId,
        (request, later): (&PlacementRequest, Option<&Stage>),
        verdict: Verdict,
        (preemption, lack): (Preemption, Lack),
    ) {
        let entity = Entity::Group(id);
        self.queue.set_awaited_victims(entity, None);
        let mut failure = self.diagnose_group(id, request, verdict, preemption);
        let (lacks_resources, lacks_later) = (lack.gap.is_some(), lack.later.is_some());
        (failure.shortfall.gap, failure.shortfall.later) = (lack.gap, lack.later);
        let pods: Vec<PodId> = request.lots.iter().flat_map(|lot| lot.pods.iter().copied()).collect();
        for pod in &pods {
            self.clear_nomination(*pod);
            if let Some(bind) = &mut self.cluster.pod_mut(*pod).bind {
                bind.avoid.clear();
            }
        }
        let (initial, max) = (self.config.backoff_ms_initial, self.config.backoff_ms_max);
        let goes_on = self.search_goes_on(entity);
        let pause = |failures| if goes_on { initial } else { pause_ms(initial, max, failures, pods.len()) };
        self.queue.record_failure(entity, self.now, pause);
        let never = failure.shortfall.proof == Proof::NeverFits;
        if lacks_resources || lacks_later {
            self.queue.set_may_reserve(entity, false);
        }
        let retry_at = match verdict {
            // It fits, so a reservation would only hold capacity that it has already. Capacity that does not fit one of
            // its own pods may be enough for the others and activates nothing, so it is retried after a while.
            _ if lacks_resources => Some(self.search_retry_at(entity)),
            _ if lacks_later => {
                let all = later.and_then(|later| later.together_with(request));
                let starving_at = all.and_then(|all| self.check_starvation(id, &all, verdict, never));
                Some(self.search_retry_at(entity)).into_iter().chain(starving_at).min()
            }
            Verdict::NotFound { .. } => Some(self.search_retry_at(entity)),
            // A plan that was not found may be found with more steps.
            _ if preemption == Preemption::NotFound => Some(self.search_retry_at(entity)),
            _ => self.check_starvation(id, request, verdict, never),
        };
        let retry_at = retry_at.into_iter().chain(self.preemption_retry_at(entity, preemption)).min();
        self.record_wait_for_nodes(entity, preemption);
        self.queue.move_to(entity, QueueState::Parked { shapes: shapes(request, later), retry_at });
        self.parked(id, &request.needs);
        self.consider_move(id);
        self.report_group(id, Diagnosis::GroupUnschedulable(failure.shortfall), failure.members);
        if let Some(family) = self.family_of(id) {
            self.review_kept_room(&family);
        }
    }

    /// Records what a group was parked with: it is retried when that changes.
    pub(super) fn parked(&mut self, id: GroupId, needs: &[u32]) {
        let group = self.cluster.group_mut(id);
        group.changes_when_parked = group.changes;
        group.needs_when_parked = needs.to_vec();
    }

    /// The waiting members of a group by class and subset, and how many of each subset it needs.
    pub(super) fn request(&self, id: GroupId) -> PlacementRequest {
        let group = self.cluster.group(id);
        let mut lots: BTreeMap<(ClassId, usize, Vec<NodeId>), Vec<PodId>> = BTreeMap::new();
        for (_, pod) in &group.waiting {
            let member = self.cluster.pod(*pod);
            let Counted::In { subset, .. } = member.counted else { continue };
            lots.entry((member.class, usize::from(subset), self.avoided(*pod))).or_default().push(*pod);
        }
        let by_priority = group.priorities.len() > 1;
        let lots = lots
            .into_iter()
            .map(|((class, subset, avoid), mut pods)| {
                if by_priority {
                    // Of equal priority, the older ones are first.
                    pods.sort_by_key(|pod| Reverse(self.cluster.pod(*pod).priority));
                }
                Lot { class, subset, pods, expected: 0, avoid, within: None }
            })
            .collect();
        let request = PlacementRequest {
            lots,
            needs: group.needs(),
            priority: self.cluster.group_priority(id),
            topology: self.topology_request(id),
            within: None,
            needs_only: false,
            tree: None,
        };
        match &group.tree {
            Some(tree) => self.tree_request(id, tree, request),
            None => request,
        }
    }

    /// The topology domains that the waiting members of a group have to share with those that are placed.
    fn topology_request(&self, id: GroupId) -> Option<Arc<TopologyRequest>> {
        let group = self.cluster.group(id);
        let wanted = group.definition.current()?.topology.clone()?;
        if !wanted.is_constraint() {
            let none = (Vec::new(), Vec::new(), Vec::new());
            return Some(Arc::new(TopologyRequest { wanted, held: none.0, held_ranks: none.1, rivals: none.2 }));
        }
        let stays = |pod: &PodId| {
            let member = self.cluster.pod(*pod);
            !member.is_leaving() && group.excluded.get(pod) != Some(&Exclusion::Former)
        };
        let placed = group.members.iter().map(|(_, pod)| *pod).filter(stays).map(|pod| self.cluster.pod(pod));
        let placed = placed.filter_map(|pod| Some((pod.state.node()?, pod.rank)));
        let (held, held_ranks) = placed.unzip();
        let rivals = self.rivals(id, &wanted);
        Some(Arc::new(TopologyRequest { wanted, held, held_ranks, rivals }))
    }

    pub(super) fn steps_max(&self, entity: Entity) -> u64 {
        let searches = self.queue.entry(entity).map_or(0, |entry| entry.searches);
        doubled(self.config.search_steps_initial, searches + 1).min(self.config.search_steps_max)
    }

    /// Whether the search for a placement in this attempt is not completed, and goes on soon.
    fn search_goes_on(&self, entity: Entity) -> bool {
        self.cache.searches.goes_on() && self.queue.entry(entity).is_none_or(|entry| entry.searches < SLICES)
    }

    fn search_retry_at(&mut self, entity: Entity) -> u64 {
        let goes_on = self.search_goes_on(entity);
        let searches = self.queue.count_search(entity);
        let first = self.config.search_again_ms_initial;
        let kept = self.cache.searches.goes_on();
        let number = if kept { searches.saturating_sub(SLICES) } else { searches };
        let pause = if goes_on { first / SLICES_PER_PAUSE } else { doubled(first, number) };
        let pause = pause.min(self.config.search_again_ms_max);
        self.now.saturating_add(pause)
    }

    /// Drops what is cached for a class whose last pod is gone: its slot may be reused.
    pub(super) fn forget_class(&mut self, class: ClassId) {
        if !self.cluster.classes.contains(class) {
            self.cache.forget(class);
            self.unschedulable.forget(class);
        }
    }

    /// The nodes that refused this pod in the current attempt.
    pub(super) fn avoided(&self, id: PodId) -> Vec<NodeId> {
        let bind = self.cluster.pod(id).bind.as_deref();
        bind.map_or_else(Vec::new, |bind| bind.avoid.iter().filter_map(|name| self.cluster.node_id(name)).collect())
    }

    /// Clears the nominations of a group that may not be attempted: no preemption plan needs them.
    pub(super) fn clear_nominations(&mut self, id: GroupId) {
        self.queue.set_awaited_victims(Entity::Group(id), None);
        if self.cluster.group(id).nominations == 0 {
            return;
        }
        let members: Vec<PodId> = self.cluster.group(id).members.iter().map(|(_, pod)| *pod).collect();
        for pod in members {
            if self.cluster.pod(pod).ours {
                self.clear_nomination(pod);
            }
        }
    }

    /// Clears the nomination in the API, if it has one.
    pub(super) fn clear_nomination_in_api(&mut self, id: PodId) {
        let pod = self.cluster.pod_mut(id);
        if std::mem::take(&mut pod.shows_nomination) {
            pod.awaited_nomination = Awaited::Cleared;
            self.outbox.push(Command::ClearNomination { pod: pod.id.clone() });
        }
    }

    pub(super) fn clear_nomination(&mut self, id: PodId) {
        if self.cluster.pod(id).nominated.is_some() {
            self.queue.set_awaited_victims(Entity::Pod(id), None);
            self.set_nomination(id, None);
            self.clear_nomination_in_api(id);
        }
    }
}

/// The shapes of a group's pods, and of those that must fit beside it.
fn shapes(request: &PlacementRequest, later: Option<&Stage>) -> Vec<PodShape> {
    let later = later.into_iter().flat_map(|later| &later.parts).map(|part| part.class);
    let classes: BTreeSet<ClassId> = request.lots.iter().map(|lot| lot.class).chain(later).collect();
    classes.into_iter().map(|class| (class, request.priority)).collect()
}

/// What more than its members a group lacks.
#[derive(Default)]
struct Lack {
    gap: Option<ResourceGap>,
    later: Option<LaterGap>,
}

impl Lack {
    fn is_none(&self) -> bool {
        self.gap.is_none() && self.later.is_none()
    }
}

/// What is set aside for a group.
#[derive(Default)]
pub(super) struct SetAside {
    /// The nodes that are reserved for it.
    pub(super) nodes: Vec<NodeId>,
    /// The stand-ins for the later pods of its family.
    pub(super) stand_ins: Vec<PodId>,
}

impl SetAside {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.stand_ins.is_empty()
    }

    /// Makes it available to the group.
    pub(super) fn lift(&self, transaction: &mut Transaction<'_>) {
        for pod in &self.stand_ins {
            transaction.clear_nomination(*pod);
        }
        for node in &self.nodes {
            transaction.lift_reservation(*node);
        }
    }
}

/// The cluster as seen by a group: without its own nominations and with what is set aside for it.
pub(super) fn view_for_group<'a>(
    cluster: &'a mut Cluster,
    request: &PlacementRequest,
    aside: &SetAside,
) -> Transaction<'a> {
    let mut transaction = Transaction::new(cluster);
    for pod in request.lots.iter().flat_map(|lot| &lot.pods) {
        transaction.clear_nomination(*pod);
    }
    aside.lift(&mut transaction);
    transaction
}

/// For a basic group that expects more members: the same request with capacity for all of them. This is a preference:
/// if there is no such placement, any other is used.
fn with_expected(
    transaction: &Transaction<'_>,
    cache: &mut Cache,
    id: GroupId,
    request: &PlacementRequest,
) -> Option<PlacementRequest> {
    let group = transaction.cluster().group(id);
    let Some(Policy::Basic { desired_count: Some(desired) }) = group.definition.current().map(|spec| &spec.policy)
    else {
        return None;
    };
    let mut with_expected = request.clone();
    let expected = desired.saturating_sub(group.total().present()) as usize;
    if expected == 0 {
        return None;
    }
    // Expected members are assumed to be like the majority of the present ones.
    let largest = with_expected.lots.iter_mut().max_by_key(|lot| lot.pods.len())?;
    largest.expected = expected;
    let units = largest.len() as i64;
    if placement::room_for(transaction, cache, largest.class, request.priority, units) < units {
        return None;
    }
    let all: usize = with_expected.lots.iter().map(Lot::len).sum();
    with_expected.needs = vec![u32::try_from(all).ok()?];
    Some(with_expected)
}
