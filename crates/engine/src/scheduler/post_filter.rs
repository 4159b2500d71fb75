//! The PostFilter step: whether an entity may preempt, on which view of the cluster, and whether its earlier plan
//! holds.
//!
//! A plan holds as long as every nominated pod would fit on its nominated node once the leaving pods are gone. This is
//! derived from the state of the cluster alone, so it is the same after a restart. While a plan holds, no further pods
//! are evicted. Otherwise the nominations are cleared and a new plan is made, in which leaving pods count as gone.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::later_pods::Stage;
use super::planning_view::{detach_left_volumes, remove_leaving_pods};
use super::scheduling_cycle::{SetAside, view_for_group};
use super::{Engine, PreemptionGap, PreemptionResult, min_resources};
use crate::cluster::Cluster;
use crate::cluster::class::PodClass;
use crate::cluster::pod::{Awaited, Pod};
use crate::cluster::transaction::Transaction;
use crate::command::{Command, MemberVerdict};
use crate::config::PreemptionRules;
use crate::diagnosis::{Diagnosis, EXAMPLES_MAX, Preemption, Victims};
use crate::filter::{self, View};
use crate::model::Millis;
use crate::model::group::{GroupPriority, PreemptionPolicy};
use crate::model::ids::{ClassId, GroupId, NodeId, PodId, TopologyKeyId};
use crate::model::pod::PodName;
use crate::model::subject::Subject;
use crate::placement::{self, PlacementRequest};
use crate::preemption::{self, Limits, NoPlan, Plan, PlanSummary, VictimRules};
use crate::queue::backoff::pause_ms;
use crate::queue::{Entity, PodShape, QueueState};

/// How long after its grace period a victim that is still there is reported.
pub(super) const OVERDUE_AFTER_MS: Millis = 1_000;

/// Pods with their nodes.
pub(super) type Places = Vec<(PodId, NodeId)>;

impl Engine {
    /// What preemption would do for a waiting pod or group if it was attempted now; `None` if there is no such pod or
    /// group or it does not wait. Changes nothing.
    pub fn preemption_outlook(&mut self, subject: &Subject) -> Option<Result<PlanSummary, NoPlan>> {
        let plan = match subject {
            Subject::Pod(pod) => {
                let id = self.cluster.pod_id(&pod.uid).filter(|id| self.cluster.pod(*id).state.node().is_none())?;
                self.plan_for_pod(id)
            }
            Subject::Group(key) => {
                let id = self.cluster.group_id(key).filter(|id| !self.cluster.group(*id).waiting.is_empty())?;
                let request = self.request(id);
                if let Some((_, stage)) = self.further_stage_gap(id, &request) {
                    self.release(stage);
                    Err(NoPlan::LaterPods)
                } else if self.config.preemption.delayed || request.is_bound_to_domains() {
                    let later = self.later_beside(id);
                    let plan = self.plan_for_group(id, &request, later.as_ref());
                    if let Some(later) = later {
                        self.release(later);
                    }
                    plan.map(|(plan, _)| plan)
                } else {
                    self.first_per_pod_plan(id, &request)
                }
            }
        };
        Some(plan.map(|plan| plan.summary(&self.cluster)))
    }

    /// A single pod is unschedulable: returns the victims that it waits for, or why there are none.
    pub(super) fn preempt_for_pod(&mut self, id: PodId) -> Result<Victims, Preemption> {
        let places = self.nominated_place(id);
        let (entity, never) = (Entity::Pod(id), self.cluster.pod(id).never_preempts);
        let (class, priority) = self.shape_of(id);
        self.may_preempt(never)?;
        self.cancel_evictions_not_below(&self.subject(entity));
        if self.plan_holds(&places, priority, &SetAside::default()) {
            return Ok(self.remaining_victims(entity, &places));
        }
        self.clear_nomination(id);
        self.check_preemption_delay(entity)?;
        let avoids_nodes = !self.avoided(id).is_empty();
        if let Some(why) = self.unschedulable.no_plan(&self.cluster, (class, priority), 1).filter(|_| !avoids_nodes) {
            return Err(preemption_result(why));
        }
        match self.plan_for_pod(id) {
            Ok(plan) => {
                self.check_upcoming_nodes(&plan, |engine, nodes| engine.pod_fits_when_ready(id, nodes))?;
                Ok(self.execute_plan(entity, &plan))
            }
            Err(why) => {
                if !avoids_nodes {
                    self.unschedulable.put_no_plan(&self.cluster, (class, priority), 1, why);
                }
                Err(preemption_result(why))
            }
        }
    }

    /// A group is unschedulable: returns the victims that it waits for, or why there are none.
    pub(super) fn preempt_for_group(
        &mut self,
        id: GroupId,
        request: &PlacementRequest,
        later: Option<&Stage>,
    ) -> Result<Victims, Preemption> {
        let entity = Entity::Group(id);
        self.may_preempt(self.group_never_preempts(id))?;
        let is_surplus = self.cluster.group(id).is_gang() && request.needs_total() == 0;
        let is_beyond = is_surplus && !self.config.preemption.beyond_minimum;
        // A pod that preempts for itself does not know the domain.
        if !self.config.preemption.delayed && !request.is_bound_to_domains() {
            return if is_beyond { Err(Preemption::BeyondMinimum) } else { self.preempt_per_pod(id, request) };
        }
        let places = self.planned_places(id, request, later);
        let aside = self.set_aside_for(id);
        self.cancel_evictions_not_below(&self.subject(entity));
        if self.plan_holds(&places, request.priority, &aside) {
            return Ok(self.remaining_victims(entity, &places));
        }
        self.clear_nominations(id);
        if is_beyond {
            return Err(Preemption::BeyondMinimum);
        }
        self.check_preemption_delay(entity)?;
        // Whether there is a plan depends on the domains as well.
        let is_general = request.has_one_class() && !request.is_bound_to_domains();
        let shape = request.lots.first().map(|lot| (lot.class, request.priority)).filter(|_| is_general);
        let needed = request.needs_total().max(1);
        if let Some(why) = shape.and_then(|shape| self.unschedulable.no_plan(&self.cluster, shape, needed)) {
            return Err(preemption_result(why));
        }
        match self.plan_for_group(id, request, later) {
            Ok((plan, kept)) => {
                if let Some(paused) = self.eviction_pause(id).filter(|_| !plan.units.is_empty()) {
                    return Err(paused);
                }
                let all = later.and_then(|later| later.together_with(request)).unwrap_or_else(|| request.clone());
                self.check_upcoming_nodes(&plan, |engine, nodes| engine.group_fits_when_ready(id, &all, nodes))?;
                let victims = self.execute_plan(entity, &plan);
                if let Some(later) = later {
                    self.keep_room_for_plan(id, later, &kept);
                }
                Ok(victims)
            }
            Err(why) => {
                // The `minResources`, later pods and earlier victims of this group do not apply to others of the same
                // shape, nor does what it does not count on.
                let is_general = !matches!(why, NoPlan::MinResources | NoPlan::LaterPods)
                    && later.is_none()
                    && self.leaving_pods_to_count_on(id).len() == self.cluster.leaving().count()
                    && self.victims_below(id, request) == request.priority;
                if let Some(shape) = shape.filter(|_| is_general) {
                    self.unschedulable.put_no_plan(&self.cluster, shape, needed, why);
                }
                Err(preemption_result(why))
            }
        }
    }

    /// Records the result of preemption for the metrics, unless preemption is off.
    pub(super) fn count_preemption(&mut self, result: &Result<Victims, Preemption>) {
        self.preemption_result = match result {
            Ok(_) => Some(PreemptionResult::Success),
            Err(Preemption::NotTried) => None,
            Err(_) => Some(PreemptionResult::Unschedulable),
        };
    }

    /// The priority below which units are evicted: that of the group, or the lowest that its minimum needed before.
    fn victims_below(&self, id: GroupId, request: &PlacementRequest) -> i32 {
        let lowest = self.cluster.group(id).lowest_victim.filter(|_| request.needs_total() == 0);
        lowest.map_or(request.priority, |lowest| lowest.min(request.priority))
    }

    pub(super) fn may_preempt(&self, never: bool) -> Result<(), Preemption> {
        match self.config.preemption.on {
            false => Err(Preemption::NotTried),
            true if never => Err(Preemption::Never),
            true => Ok(()),
        }
    }

    pub(super) fn group_never_preempts(&self, id: GroupId) -> bool {
        let group = self.cluster.group(id);
        let Some(spec) = group.definition.current() else { return true };
        // Where the priority comes from the members, so does the policy.
        let by_members = self.config.group_priority_capped || !matches!(spec.priority, GroupPriority::Own(_));
        let member_never = || group.waiting.iter().any(|(_, member)| self.cluster.pod(*member).never_preempts);
        spec.preemption_policy == PreemptionPolicy::Never || (by_members && member_never())
    }

    pub(super) fn check_preemption_delay(&self, entity: Entity) -> Result<(), Preemption> {
        let delay_ms = self.config.preemption.delay_ms;
        if delay_ms > 0 && self.now < self.preemption_allowed_at(entity) {
            return Err(Preemption::Delayed { delay_ms });
        }
        Ok(())
    }

    fn preemption_allowed_at(&self, entity: Entity) -> Millis {
        let since = self.queue.entry(entity).and_then(|entry| entry.unschedulable_since).unwrap_or(self.now);
        since.saturating_add(self.config.preemption.delay_ms)
    }

    /// When an entity that delays its preemption is to be retried.
    pub(super) fn preemption_retry_at(&self, entity: Entity, preemption: Preemption) -> Option<Millis> {
        match preemption {
            Preemption::Delayed { .. } => Some(self.preemption_allowed_at(entity)),
            Preemption::UpcomingNodes { .. } => self.upcoming_nodes_until(),
            Preemption::TimedOut { .. } => self.queue.entry(entity).map(|entry| entry.evicts_not_before),
            _ => None,
        }
    }

    /// The nominated node of a pod, unless it refused a bind of the pod.
    fn nominated_place(&self, id: PodId) -> Places {
        let nominated = self.cluster.pod(id).nominated.filter(|node| !self.avoided(id).contains(node));
        nominated.map(|node| (id, node)).into_iter().collect()
    }

    /// The nominated nodes of a group, if they are enough for what it needs.
    fn nominated_places(&mut self, request: &PlacementRequest) -> Places {
        let mut nominated = vec![0; request.needs.len()];
        let (mut places, mut subsets) = (Places::new(), Vec::new());
        for lot in &request.lots {
            for pod in &lot.pods {
                if let Some(node) = self.cluster.pod(*pod).nominated.filter(|node| !lot.avoid.contains(node)) {
                    places.push((*pod, node));
                    subsets.push((lot.subset, node));
                    nominated[lot.subset] += 1;
                }
            }
        }
        if !request.is_met_by(&nominated) || !placement::tree::allows(&self.cluster, &mut self.cache, request, &subsets)
        {
            places.clear();
        }
        // Labels may have changed since.
        if !placement::domains::allows(&self.cluster, &mut self.cache, request, &places) {
            places.clear();
        }
        places
    }

    /// The places of a group's plan, with those that are kept for its later pods; none if the plan is not whole.
    fn planned_places(&mut self, id: GroupId, request: &PlacementRequest, later: Option<&Stage>) -> Places {
        let mut places = self.nominated_places(request);
        let Some(later) = later.filter(|_| !places.is_empty()) else { return places };
        let Some(of_later) = self.places_of_later(id, later) else { return Places::new() };
        places.extend(of_later);
        places
    }

    /// Places a group on its nominated nodes, if all of them have room now.
    /// Returns where, and where its later pods have room.
    pub(super) fn take_nominated_places(
        &mut self,
        id: GroupId,
        request: &PlacementRequest,
        later: Option<&Stage>,
    ) -> Option<(Places, Vec<(ClassId, NodeId)>)> {
        let places = self.nominated_places(request);
        if places.is_empty() {
            return None;
        }
        let (aside, steps_max) = (self.set_aside_for(id), self.steps_max(Entity::Group(id)));
        let started_after = self.debtors_started_after();
        let mut transaction = view_for_group(&mut self.cluster, request, &aside);
        let fits = place_all(&mut transaction, &places, request.priority)
            && min_resources::gap(transaction.cluster(), id, request, started_after).is_none()
            && later.is_none_or(|later| later.place(&mut transaction, &mut self.cache, request.priority, steps_max));
        fits.then(|| {
            let kept = transaction.occupied();
            (transaction.commit(), kept)
        })
    }

    /// Whether every pod would fit on its nominated node once the leaving pods are gone.
    fn plan_holds(&mut self, places: &[(PodId, NodeId)], priority: i32, aside: &SetAside) -> bool {
        // Without leaving pods there is nothing to wait for: either there is room now, or there will not be.
        if self.leaving_pods_near(places).is_empty() && !self.waits_for_detachment(places) {
            return false;
        }
        let mut transaction = Transaction::new(&mut self.cluster);
        for (pod, _) in places {
            transaction.clear_nomination(*pod);
        }
        aside.lift(&mut transaction);
        remove_leaving_pods(&mut transaction, places.iter().map(|(pod, _)| *pod));
        place_all(&mut transaction, places, priority)
    }

    fn plan_for_pod(&mut self, id: PodId) -> Result<Plan, NoPlan> {
        let (class, priority) = self.shape_of(id);
        let (avoid, rules) = (self.avoided(id), self.rules());
        let mut transaction = Transaction::new(&mut self.cluster);
        transaction.clear_nomination(id);
        remove_leaving_pods(&mut transaction, [id]);
        preemption::for_pod(&mut transaction, &mut self.cache, (id, class, priority), &avoid, rules)
    }

    /// A plan for a group, and where its later pods will have room.
    fn plan_for_group(
        &mut self,
        id: GroupId,
        request: &PlacementRequest,
        later: Option<&Stage>,
    ) -> Result<(Plan, Vec<(ClassId, NodeId)>), NoPlan> {
        let (aside, mut rules) = (self.set_aside_for(id), self.rules());
        // For members beyond the minimum no budget is violated.
        rules.respects_budgets |= self.cluster.group(id).is_gang() && request.needs_total() == 0;
        let limits = Limits {
            placement_steps: self.steps_max(Entity::Group(id)),
            search_steps: self.config.preemption.steps_max,
            cheaper: self.config.preemption.cheaper,
            beyond_minimum: self.config.preemption.beyond_minimum,
            below: self.victims_below(id, request),
        };
        let (started_after, leaving) = (self.debtors_started_after(), self.leaving_pods_to_count_on(id));
        let mut transaction = view_for_group(&mut self.cluster, request, &aside);
        detach_left_volumes(&mut transaction, request.lots.iter().flat_map(|lot| lot.pods.iter().copied()));
        for pod in leaving {
            transaction.remove(pod);
        }
        let all = later.and_then(|later| later.together_with(request));
        let all = all.as_ref().unwrap_or(request);
        let plan = preemption::for_group(&mut transaction, &mut self.cache, all, rules, limits)?;
        // Evict nothing for a group that could not start.
        let start = transaction.savepoint();
        for (pod, _) in plan.units.iter().flat_map(|unit| &unit.pods) {
            transaction.remove(*pod);
        }
        for (pod, node) in &plan.places {
            transaction.place(*pod, *node);
        }
        let fits = min_resources::gap(transaction.cluster(), id, request, started_after).is_none()
            && later.is_none_or(|later| {
                later.place(&mut transaction, &mut self.cache, request.priority, limits.placement_steps)
            });
        let kept = transaction.occupied_since(start);
        transaction.rollback_to(start);
        drop(transaction);
        // A group that could start now except for what more must fit needs no nominations.
        let must_fit_more = self.cluster.group(id).must_fit_more();
        let mut nodes = self.nodes_affecting(&plan.places);
        nodes.extend(kept.iter().map(|(_, node)| *node));
        let has_no_victims = plan.units.is_empty() && self.leaving_pods_on(&nodes).is_empty();
        match later {
            // Later pods alone are no reason to evict, what has to run beside the group is not evicted for it, and room
            // that cannot be kept would be taken by others.
            Some(later)
                if plan.places.is_empty()
                    || self.evicts_family(id, &plan)
                    || later.unnamed_gap().is_some()
                    || !self.can_keep(id, later, &kept) =>
            {
                Err(NoPlan::LaterPods)
            }
            _ if fits && !(must_fit_more && has_no_victims) => Ok((plan, kept)),
            Some(_) => Err(NoPlan::LaterPods),
            None => Err(NoPlan::MinResources),
        }
    }

    /// Whether a plan evicts pods of groups that are later parts of the group.
    fn evicts_family(&self, id: GroupId, plan: &Plan) -> bool {
        let later = self.cluster.group(id).definition.last().map(|spec| &spec.later);
        let family: BTreeSet<GroupId> =
            later.into_iter().flatten().flatten().filter_map(|part| self.cluster.group_id(&part.group)).collect();
        let pods = plan.units.iter().flat_map(|unit| &unit.pods);
        pods.filter_map(|(pod, _)| self.cluster.pod(*pod).group).any(|group| family.contains(&group))
    }

    pub(super) fn rules(&self) -> VictimRules {
        let PreemptionRules { whole_groups, respects_budgets, .. } = self.config.preemption;
        VictimRules { whole_groups, respects_budgets, now: self.now }
    }

    /// Whether a pod would fit on a node without the pods that are leaving or of a lower priority.
    pub(super) fn fits_with_preemption(&self, class: &PodClass, node: NodeId, priority: i32, view: View<'_>) -> bool {
        if !self.config.preemption.on {
            return false;
        }
        let View { load, blocked_by_reservation, .. } = view;
        let mut load = load.into_owned();
        let there = self.cluster.node(node);
        for id in &there.pods {
            let pod = self.cluster.pod(*id);
            if pod.is_leaving() || self.cluster.victim_priority(*id) < priority {
                load.sub(self.cluster.class(pod.class));
            }
        }
        // Inter-pod constraints are ignored here: in doubt the entity is attempted.
        filter::has_room_ignoring_inter_pod(
            class,
            there,
            &View { load: Cow::Owned(load), cluster: &self.cluster, node, blocked_by_reservation, inter_pod: None },
        )
    }

    /// Nominates the pods of a plan and evicts its victims. Returns the victims.
    pub(super) fn execute_plan(&mut self, entity: Entity, plan: &Plan) -> Victims {
        let priority = self.priority_of(entity);
        if let (Entity::Group(group), Some(lowest)) = (entity, plan.lowest) {
            self.cluster.group_mut(group).lowest_victim = Some(lowest);
        }
        let nodes: BTreeSet<NodeId> = plan.places.iter().map(|(_, node)| *node).collect();
        for node in &nodes {
            self.clear_lower_nominations(*node, priority);
        }
        for (pod, node) in &plan.places {
            self.set_nomination(*pod, Some(*node));
            let node = self.cluster.node(*node).name.clone();
            let nominated = self.cluster.pod_mut(*pod);
            nominated.awaited_nomination = Awaited::Node(node.clone());
            nominated.shows_nomination = true;
            self.outbox.push(Command::Nominate { pod: nominated.id.clone(), node });
        }
        self.record_members_without_place(entity);
        for by in self.preemptors(entity, &plan.places) {
            for unit in &plan.units {
                self.evict(unit, &by);
            }
        }
        let victims = self.victims(plan);
        self.preemption_gap = PreemptionGap::of(&victims);
        self.queue.set_awaited_victims(entity, Some(Box::new(victims.clone())));
        victims
    }

    /// Records the members without a place in the plan. Later members were not considered.
    fn record_members_without_place(&mut self, entity: Entity) {
        let Entity::Group(group) = entity else { return };
        let waiting: Vec<PodId> = self.cluster.group(group).waiting.iter().map(|(_, member)| *member).collect();
        for member in waiting {
            let pod = self.cluster.pod_mut(member);
            pod.without_place = pod.nominated.is_none();
        }
    }

    /// Clears nominations of a lower priority on a node; their owners must be attempted again.
    fn clear_lower_nominations(&mut self, node: NodeId, priority: i32) {
        let nominated = self.cluster.node(node).nominated.clone();
        for pod in nominated {
            let nominee = self.cluster.pod(pod);
            if nominee.ours && self.cluster.effective_priority(pod) < priority {
                let entity = nominee.group.map_or(Entity::Pod(pod), Entity::Group);
                self.clear_nomination(pod);
                self.queue.activate_parked(entity, self.now);
            }
        }
    }

    pub(super) fn priority_of(&self, entity: Entity) -> i32 {
        match entity {
            Entity::Pod(pod) => self.cluster.effective_priority(pod),
            Entity::Group(group) => self.cluster.group_priority(group),
        }
    }

    pub(super) fn subject(&self, entity: Entity) -> Subject {
        match entity {
            Entity::Pod(pod) => Subject::Pod(self.cluster.pod(pod).id.clone()),
            Entity::Group(group) => Subject::Group(self.cluster.group(group).key.clone()),
        }
    }

    fn victims(&self, plan: &Plan) -> Victims {
        let name = |unit: &preemption::VictimUnit| match unit.group.filter(|_| unit.is_whole_group()) {
            Some(group) => format!("group {}", self.unit_key(group, unit)),
            None => unit.pods.first().map(|(pod, _)| self.cluster.pod(*pod).id.to_string()).unwrap_or_default(),
        };
        Victims {
            evicted: plan.cost.pods,
            started: false,
            needed: 0,
            units: plan.units.len() as u32,
            groups: plan.units.iter().filter(|unit| unit.is_whole_group()).count() as u32,
            highest: plan.cost.highest,
            pdb_violations: plan.cost.pdb_violations,
            examples: plan.units.iter().take(EXAMPLES_MAX).map(name).collect(),
            proven: plan.proven,
            groups_at_least: plan.groups_at_least,
            grace_period_ends_ms: None,
            within_ms: None,
            overdue: Vec::new(),
            failing: None,
        }
    }

    /// The victims that an entity whose plan holds still waits for. Sends failed evictions again.
    pub(super) fn remaining_victims(&mut self, entity: Entity, places: &[(PodId, NodeId)]) -> Victims {
        let mut victims = match self.queue.entry(entity).and_then(|entry| entry.awaited_victims.as_deref()) {
            Some(awaited_victims) => awaited_victims.clone(),
            // Planned by an earlier process: its victims are not known, only the leaving pods.
            None => Victims::default(),
        };
        let leaving = self.name_late_victims(&mut victims, entity, places);
        let last = leaving.iter().filter_map(|(_, gone_by)| *gone_by).max();
        if victims.grace_period_ends_ms != last {
            victims.grace_period_ends_ms = last;
            victims.within_ms = last.map(|last| last.saturating_sub(self.now)).filter(|within| *within > 0);
        }
        self.queue.set_awaited_victims(entity, Some(Box::new(victims.clone())));
        let nodes = self.nodes_affecting(places);
        for by in self.preemptors(entity, places) {
            self.resend_evictions(&by, &nodes);
        }
        victims
    }

    /// Records which victims should be gone, and whose eviction fails. Returns all leaving pods that may block the
    /// places.
    pub(super) fn name_late_victims(
        &self,
        victims: &mut Victims,
        entity: Entity,
        places: &[(PodId, NodeId)],
    ) -> Vec<(PodId, Option<Millis>)> {
        let leaving = self.leaving_pods_near(places);
        let late = |gone_by: &Millis| gone_by.saturating_add(OVERDUE_AFTER_MS) <= self.now;
        let overdue = leaving.iter().filter(|(_, gone_by)| gone_by.as_ref().is_some_and(late));
        victims.overdue = overdue.take(EXAMPLES_MAX).map(|(pod, _)| self.cluster.pod(*pod).id.to_string()).collect();
        victims.failing = self.failing_for(entity, places);
        leaving
    }

    /// A pod whose eviction for this entity keeps failing, and the error.
    fn failing_for(&self, entity: Entity, places: &[(PodId, NodeId)]) -> Option<String> {
        let by = self.preemptors(entity, places);
        let failing = self.cluster.leaving().filter_map(|id| {
            let pod = self.cluster.pod(id);
            let eviction = pod.eviction.as_ref().filter(|eviction| !pod.terminating && by.contains(&eviction.by))?;
            eviction.failed.as_ref().map(|message| format!("{}: {message}", pod.id))
        });
        failing.min()
    }

    /// Whether all pods that were evicted for an entity have left its places. An entity that only waits for pods that
    /// leave anyway gets no precedence over others.
    pub(super) fn victims_are_gone(&self, entity: Entity) -> bool {
        let is_free = |pod: &PodId| {
            let node = self.cluster.pod(*pod).nominated;
            node.is_none_or(|node| !self.cluster.node(node).pods.iter().any(|pod| self.cluster.pod(*pod).is_leaving()))
        };
        let awaited_victims = self.queue.entry(entity).and_then(|entry| entry.awaited_victims.as_ref());
        awaited_victims.is_some_and(|victims| victims.evicted > 0)
            && match entity {
                Entity::Pod(pod) => is_free(&pod),
                Entity::Group(group) => {
                    let waiting = self.cluster.group(group).waiting.iter().map(|(_, member)| member);
                    waiting.chain(&self.stand_ins_for(group)).all(is_free)
                }
            }
    }

    /// The preemptors for these places: the entity, or each pod for itself.
    fn preemptors(&self, entity: Entity, places: &[(PodId, NodeId)]) -> Vec<Arc<Subject>> {
        if self.config.preemption.delayed {
            return vec![Arc::new(self.subject(entity))];
        }
        places.iter().map(|(pod, _)| Arc::new(self.subject(Entity::Pod(*pod)))).collect()
    }

    /// The nodes where pods may block these places: the places themselves, the domains of anti-affinity and topology
    /// spread, and the nodes of leaving pods that the placed pods have affinity to.
    pub(super) fn nodes_affecting(&self, places: &[(PodId, NodeId)]) -> BTreeSet<NodeId> {
        let mut nodes: BTreeSet<NodeId> = places.iter().map(|(_, node)| *node).collect();
        let topology = &self.cluster.topology;
        for (pod, node) in places {
            let class = self.cluster.class(self.cluster.pod(*pod).class);
            let rules = &class.rules;
            let spread = rules.spread.iter().map(|constraint| constraint.counts);
            let own = rules.anti_affinity.iter().copied().chain(spread);
            let own = own.map(|counts| topology.domain_counts(counts).topology_key);
            let keys: BTreeSet<TopologyKeyId> =
                own.chain(topology.existing_terms(class).anti_affinity_keys()).collect();
            for topology_key in keys.into_iter().map(|key| topology.topology_key(key)) {
                nodes.extend(topology_key.domain(*node).map(|domain| topology_key.nodes(domain)).into_iter().flatten());
            }
            let has_affinity_to = |pod: &&Pod| {
                let class = self.cluster.class(pod.class);
                rules.required_affinity.iter().any(|counts| topology.is_counted_in(class, *counts))
            };
            let leaving =
                self.cluster.leaving().filter(|_| !rules.required_affinity.is_empty()).map(|pod| self.cluster.pod(pod));
            nodes.extend(leaving.filter(has_affinity_to).filter_map(|pod| pod.state.node()));
        }
        nodes
    }

    /// The leaving pods that may block these places, and by when they are gone.
    pub(super) fn leaving_pods_near(&self, places: &[(PodId, NodeId)]) -> Vec<(PodId, Option<Millis>)> {
        self.leaving_pods_on(&self.nodes_affecting(places))
    }

    fn leaving_pods_on(&self, nodes: &BTreeSet<NodeId>) -> Vec<(PodId, Option<Millis>)> {
        let pods = nodes.iter().flat_map(|node| &self.cluster.node(*node).pods);
        pods.filter(|pod| self.cluster.pod(**pod).is_leaving())
            .map(|pod| (*pod, self.cluster.pod(*pod).grace_period_ends_ms))
            .collect()
    }

    /// Parks an entity with nominations until its victims are gone.
    pub(super) fn wait_for_victims(&mut self, entity: Entity, shapes: Vec<PodShape>, mut victims: Victims) {
        let (initial, max) = (self.config.backoff_ms_initial, self.config.backoff_ms_max);
        if victims.evicted > 0 {
            self.queue.record_wait(entity, self.now, initial);
        } else {
            // Waiting for pods that leave anyway gives no precedence over others that wait for them.
            self.queue.record_failure(entity, self.now, |failures| pause_ms(initial, max, failures, 1));
        }
        self.queue.set_may_reserve(entity, false);
        self.queue.begin_wait(entity, self.now);
        // Retried to report pods that do not leave in time, and when its places have been kept for long enough.
        let last = victims.grace_period_ends_ms;
        let overdue_at = last.filter(|_| victims.overdue.is_empty());
        let overdue_at = overdue_at.map(|last| last.max(self.now).saturating_add(OVERDUE_AFTER_MS));
        let over_at = match entity {
            Entity::Group(id) => self.keeps_places_until(id, last),
            Entity::Pod(_) => None,
        };
        let retry_at = overdue_at.into_iter().chain(over_at).min();
        self.queue.move_to(entity, QueueState::Parked { shapes, retry_at });
        match entity {
            Entity::Pod(pod) => self.report_pod(pod, Diagnosis::WaitingForVictims(victims)),
            Entity::Group(id) => {
                let group = self.cluster.group(id);
                let needs = group.needs();
                victims.started = group.is_gang() && group.lifecycle.confirmed().is_some();
                victims.needed = if group.has_started_tree() { 0 } else { needs.iter().sum() };
                let members = self.member_verdicts(id);
                self.parked(id, &needs);
                self.report_group(id, Diagnosis::WaitingForVictims(victims), members);
            }
        }
    }

    /// Which waiting members of a group have a nomination.
    fn member_verdicts(&self, id: GroupId) -> Vec<(Arc<PodName>, MemberVerdict)> {
        let members = self.cluster.group(id).waiting.iter().map(|(_, member)| self.cluster.pod(*member));
        let verdict = |pod: &Pod| match pod.nominated {
            Some(_) => MemberVerdict::WouldFit,
            None if pod.without_place => MemberVerdict::NoRoom,
            None => MemberVerdict::NotTried,
        };
        let mut members: Vec<_> = members.map(|pod| (pod.id.clone(), verdict(pod))).collect();
        members.sort_unstable_by(|one, two| one.0.cmp(&two.0));
        members
    }
}

/// Places all pods on their nodes if all of them fit. If not, the caller rolls back what was placed.
pub(super) fn place_all(transaction: &mut Transaction<'_>, places: &[(PodId, NodeId)], priority: i32) -> bool {
    let mut left = places.to_vec();
    while !left.is_empty() {
        let before = left.len();
        left.retain(|(pod, node)| {
            let fits = fits(transaction.cluster(), *pod, *node, priority);
            if fits {
                transaction.place(*pod, *node);
            }
            !fits
        });
        // A pod with affinity to one that comes later fits in a later round.
        if left.len() == before {
            return false;
        }
    }
    true
}

fn fits(cluster: &Cluster, pod: PodId, node: NodeId, priority: i32) -> bool {
    let class = cluster.class(cluster.pod(pod).class);
    cluster.node_if_any(node).is_some_and(|there| {
        filter::passes_static_filters(class, there)
            && filter::has_room(class, there, &filter::view(cluster, node, priority))
    })
}

pub(super) fn preemption_result(why: NoPlan) -> Preemption {
    match why {
        NoPlan::NoVictims => Preemption::NoLowerPriority,
        NoPlan::NotEnough => Preemption::NotEnough,
        NoPlan::NotFound => Preemption::NotFound,
        NoPlan::Budgets => Preemption::Budgets,
        NoPlan::EvictionBackoff => Preemption::Spared,
        NoPlan::MinResources => Preemption::MinResources,
        NoPlan::LaterPods => Preemption::LaterPods,
    }
}
