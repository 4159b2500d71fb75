//! Preemption in the engine: who may preempt, on what view of the cluster, and whether an earlier plan still stands.
//!
//! A plan stands as long as everybody who is nominated would fit where he is nominated, if those who are leaving were
//! gone. That is derived from the picture alone, so it is the same after a restart. While it stands nobody else is
//! evicted; when it does not, the nominations are cleared and a new plan is made, in which those who are leaving count
//! as gone.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::cycle::own_view;
use super::{Engine, min_resources};
use crate::cluster::Cluster;
use crate::cluster::pod::{Awaited, Pod};
use crate::cluster::trial::Trial;
use crate::command::{Command, MemberVerdict, Subject};
use crate::config::PreemptionRules;
use crate::diagnosis::{Diagnosis, EXAMPLES_MAX, Preemption, Victims};
use crate::filter::{self, View};
use crate::model::Millis;
use crate::model::class::PodClass;
use crate::model::group::{GroupPriority, PreemptionPolicy};
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::model::pod::PodName;
use crate::placement::Want;
use crate::preemption::{self, Limits, NoPlan, Outlook, Plan, Rules};
use crate::queue::backoff::pause_ms;
use crate::queue::{Entity, Line, Place};

/// So long after its time a victim that is still there is told of.
const OVERDUE_AFTER_MS: Millis = 1_000;

/// Where pods go.
pub(super) type Places = Vec<(PodId, NodeId)>;

impl Engine {
    /// What preemption would do for somebody who waits, if it was tried now; `None` if there is nobody of that name who
    /// waits. Nothing is decided by it.
    pub fn preemption_outlook(&mut self, subject: &Subject) -> Option<Result<Outlook, NoPlan>> {
        let plan = match subject {
            Subject::Pod(pod) => {
                let id = self.cluster.pod_id(&pod.uid).filter(|id| self.cluster.pod(*id).state.node().is_none())?;
                self.plan_for_pod(id)
            }
            Subject::Group(key) => {
                let id = self.cluster.group_id(key).filter(|id| !self.cluster.group(*id).waiting.is_empty())?;
                let want = self.want(id);
                if self.config.preemption.delayed {
                    self.plan_for_group(id, &want)
                } else {
                    self.first_plan_of(id, &want)
                }
            }
        };
        Some(plan.map(|plan| plan.outlook(&self.cluster)))
    }

    /// A single pod has no place: whom it waits for, or why it takes room from nobody.
    pub(super) fn preempt_for_pod(&mut self, id: PodId) -> Result<Victims, Preemption> {
        let places = self.kept_place(id);
        let (entity, never) = (Entity::Pod(id), self.cluster.pod(id).never_preempts);
        let (class, priority) = self.line_of(id);
        self.may_preempt(never)?;
        self.spare_the_risen(&self.subject(entity));
        if self.stands(&places, priority, &[]) {
            return Ok(self.still_awaited(entity, &places));
        }
        self.clear_nomination(id);
        self.not_too_early(entity)?;
        let left_out = !self.avoided(id).is_empty();
        if let Some(why) = self.noes.no_plan(&self.cluster, (class, priority), 1).filter(|_| !left_out) {
            return Err(in_words(why));
        }
        match self.plan_for_pod(id) {
            Ok(plan) => {
                self.not_before_nodes_arrive(&plan, |engine, nodes| engine.pod_fits_when_ready(id, nodes))?;
                Ok(self.carry_out(entity, &plan))
            }
            Err(why) => {
                if !left_out {
                    self.noes.put_no_plan(&self.cluster, (class, priority), 1, why);
                }
                Err(in_words(why))
            }
        }
    }

    /// A group has no place: whom it waits for, or why it takes room from nobody.
    pub(super) fn preempt_for_group(&mut self, id: GroupId, want: &Want) -> Result<Victims, Preemption> {
        let entity = Entity::Group(id);
        self.may_preempt(self.group_never_preempts(id))?;
        if !self.config.preemption.delayed {
            return self.preempt_one_by_one(id, want);
        }
        let places = self.kept_places(want);
        let claimed = self.claimed_by(id);
        self.spare_the_risen(&self.subject(entity));
        if self.stands(&places, want.priority, &claimed) {
            return Ok(self.still_awaited(entity, &places));
        }
        self.clear_nominations(id);
        self.not_too_early(entity)?;
        let line = want.lots.first().map(|lot| (lot.class, want.priority)).filter(|_| want.is_like());
        let needed = want.needs_total().max(1);
        if let Some(why) = line.and_then(|line| self.noes.no_plan(&self.cluster, line, needed)) {
            return Err(in_words(why));
        }
        match self.plan_for_group(id, want) {
            Ok(plan) => {
                self.not_before_nodes_arrive(&plan, |engine, nodes| engine.group_fits_when_ready(id, want, nodes))?;
                Ok(self.carry_out(entity, &plan))
            }
            Err(why) => {
                // What this group needs in all says nothing of others like it.
                if let Some(line) = line.filter(|_| why != NoPlan::MinResources) {
                    self.noes.put_no_plan(&self.cluster, line, needed, why);
                }
                Err(in_words(why))
            }
        }
    }

    fn may_preempt(&self, never: bool) -> Result<(), Preemption> {
        match self.config.preemption.on {
            false => Err(Preemption::NotTried),
            true if never => Err(Preemption::Never),
            true => Ok(()),
        }
    }

    fn group_never_preempts(&self, id: GroupId) -> bool {
        let group = self.cluster.group(id);
        let Some(spec) = &group.spec else { return true };
        // Where the priority is the members', so is the policy.
        let by_members = !matches!(spec.priority, GroupPriority::Own(_));
        let member_never = || group.waiting.iter().any(|(_, member)| self.cluster.pod(*member).never_preempts);
        spec.preemption_policy == PreemptionPolicy::Never || (by_members && member_never())
    }

    pub(super) fn not_too_early(&self, entity: Entity) -> Result<(), Preemption> {
        let delay_ms = self.config.preemption.delay_ms;
        if delay_ms > 0 && self.now < self.patient_until(entity) {
            return Err(Preemption::Delayed { delay_ms });
        }
        Ok(())
    }

    fn patient_until(&self, entity: Entity) -> Millis {
        let since = self.queue.entry(entity).and_then(|entry| entry.refused_since).unwrap_or(self.now);
        since.saturating_add(self.config.preemption.delay_ms)
    }

    /// When somebody who waits before he preempts is to be tried again.
    pub(super) fn preempts_from(&self, entity: Entity, preemption: Preemption) -> Option<Millis> {
        match preemption {
            Preemption::Delayed { .. } => Some(self.patient_until(entity)),
            Preemption::NodesArriving { .. } => self.nodes_awaited_until(),
            _ => None,
        }
    }

    /// The place that is kept free for a pod, unless it was refused there.
    fn kept_place(&self, id: PodId) -> Places {
        let nominated = self.cluster.pod(id).nominated.filter(|node| !self.avoided(id).contains(node));
        nominated.map(|node| (id, node)).into_iter().collect()
    }

    /// The places that are kept free for a group, if they are enough for what it needs.
    fn kept_places(&self, want: &Want) -> Places {
        let mut missing = want.needs.clone();
        let mut places = Places::new();
        for lot in &want.lots {
            for pod in &lot.pods {
                if let Some(node) = self.cluster.pod(*pod).nominated.filter(|node| !lot.avoid.contains(node)) {
                    places.push((*pod, node));
                    missing[lot.subset] = missing[lot.subset].saturating_sub(1);
                }
            }
        }
        if missing.iter().any(|missing| *missing > 0) {
            places.clear();
        }
        places
    }

    /// Takes the places that are kept free for a group, if there is room on all of them by now.
    pub(super) fn take_kept_places(&mut self, id: GroupId, want: &Want) -> Option<Places> {
        let places = self.kept_places(want);
        if places.is_empty() {
            return None;
        }
        let claimed = self.claimed_by(id);
        let mut trial = own_view(&mut self.cluster, want, &claimed);
        let all = place_all(&mut trial, &places, want.priority);
        (all && min_resources::gap(trial.cluster(), id, want).is_none()).then(|| trial.commit())
    }

    /// Whether everybody would fit where he is nominated, once those who are leaving are gone.
    fn stands(&mut self, places: &[(PodId, NodeId)], priority: i32, claimed: &[NodeId]) -> bool {
        // With nobody leaving there is nothing to wait for: either there is room, or there will not be.
        if self.leaving_from(places).is_empty() {
            return false;
        }
        let mut trial = Trial::new(&mut self.cluster);
        for (pod, _) in places {
            trial.release(*pod);
        }
        for node in claimed {
            trial.open(*node);
        }
        without_the_leaving(&mut trial);
        place_all(&mut trial, places, priority)
    }

    fn plan_for_pod(&mut self, id: PodId) -> Result<Plan, NoPlan> {
        let (class, priority) = self.line_of(id);
        let (avoid, rules) = (self.avoided(id), self.rules());
        let mut trial = Trial::new(&mut self.cluster);
        trial.release(id);
        without_the_leaving(&mut trial);
        preemption::for_pod(&mut trial, &mut self.cache, (id, class, priority), &avoid, rules)
    }

    fn plan_for_group(&mut self, id: GroupId, want: &Want) -> Result<Plan, NoPlan> {
        let (claimed, rules) = (self.claimed_by(id), self.rules());
        let limits = Limits {
            placement_steps: self.steps_max(Entity::Group(id)),
            search_steps: self.config.preemption.steps_max,
            cheaper: self.config.preemption.cheaper,
        };
        let mut trial = own_view(&mut self.cluster, want, &claimed);
        without_the_leaving(&mut trial);
        let plan = preemption::for_group(&mut trial, &mut self.cache, want, rules, limits)?;
        // Nobody goes for a group that would not start all the same.
        let start = trial.mark();
        for (pod, _) in plan.units.iter().flat_map(|unit| &unit.pods) {
            trial.remove(*pod);
        }
        for (pod, node) in &plan.places {
            trial.place(*pod, *node);
        }
        let gap = min_resources::gap(trial.cluster(), id, want);
        trial.undo_to(start);
        drop(trial);
        // Who could start as it is, but for what others of his group will need, waits for no place.
        let asks_for_more = self.cluster.group(id).asks_for_more();
        let waits_for_nobody = plan.units.is_empty() && self.leaving_from(&plan.places).is_empty();
        if gap.is_some() || (asks_for_more && waits_for_nobody) { Err(NoPlan::MinResources) } else { Ok(plan) }
    }

    pub(super) fn rules(&self) -> Rules {
        let PreemptionRules { whole_groups, keeps_budgets, .. } = self.config.preemption;
        Rules { whole_groups, keeps_budgets, now: self.now }
    }

    /// Whether a pod would fit on a node if everybody left who is leaving or below its priority.
    pub(super) fn has_room_by_force(&self, class: &PodClass, node: NodeId, priority: i32, view: View<'_>) -> bool {
        if !self.config.preemption.on {
            return false;
        }
        let View { load, claimed, .. } = view;
        let mut load = load.into_owned();
        let there = self.cluster.node(node);
        for id in &there.pods {
            let pod = self.cluster.pod(*id);
            if pod.is_leaving() || self.cluster.effective_priority(*id) < priority {
                load.sub(self.cluster.class(pod.class));
            }
        }
        // Who would be near is not looked at: in doubt somebody is tried.
        filter::has_room_alone(class, there, &View { load: Cow::Owned(load), claimed, near: None })
    }

    /// Nominates everybody and evicts all units of a plan. Says whom the entity waits for.
    pub(super) fn carry_out(&mut self, entity: Entity, plan: &Plan) -> Victims {
        let priority = self.priority_of(entity);
        let nodes: BTreeSet<NodeId> = plan.places.iter().map(|(_, node)| *node).collect();
        for node in &nodes {
            self.displace(*node, priority);
        }
        for (pod, node) in &plan.places {
            self.renominate(*pod, Some(*node));
            let node = self.cluster.node(*node).name.clone();
            let nominated = self.cluster.pod_mut(*pod);
            nominated.awaited_nomination = Awaited::Node(node.clone());
            nominated.shows_nomination = true;
            self.outbox.push(Command::Nominate { pod: nominated.id.clone(), node });
        }
        self.leave_out(entity);
        for by in self.asking(entity, &plan.places) {
            for unit in &plan.units {
                self.evict(unit, &by);
            }
        }
        let victims = self.victims(plan);
        self.queue.set_awaits(entity, Some(Box::new(victims.clone())));
        victims
    }

    /// Remembers for whom of a group there is no room in its plan. Those who come later were not looked at.
    fn leave_out(&mut self, entity: Entity) {
        let Entity::Group(group) = entity else { return };
        let waiting: Vec<PodId> = self.cluster.group(group).waiting.iter().map(|(_, member)| *member).collect();
        for member in waiting {
            let pod = self.cluster.pod_mut(member);
            pod.left_out = pod.nominated.is_none();
        }
    }

    /// A place is taken: whoever of a lower priority hoped for it must look elsewhere.
    fn displace(&mut self, node: NodeId, priority: i32) {
        let nominated = self.cluster.node(node).nominated.clone();
        for pod in nominated {
            let whose = self.cluster.pod(pod);
            if whose.ours && self.cluster.effective_priority(pod) < priority {
                let entity = whose.group.map_or(Entity::Pod(pod), Entity::Group);
                self.clear_nomination(pod);
                self.queue.wake_parked(entity, self.now);
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
        let name = |unit: &preemption::Unit| match unit.group.filter(|_| unit.is_whole()) {
            Some(group) => format!("group {}", self.cluster.group(group).key),
            None => unit.pods.first().map(|(pod, _)| self.cluster.pod(*pod).id.to_string()).unwrap_or_default(),
        };
        Victims {
            evicted: plan.cost.pods,
            started: false,
            needed: 0,
            units: plan.units.len() as u32,
            groups: plan.units.iter().filter(|unit| unit.is_whole()).count() as u32,
            highest: plan.cost.highest,
            against_budgets: plan.cost.against_budgets,
            examples: plan.units.iter().take(EXAMPLES_MAX).map(name).collect(),
            proven: plan.proven,
            gone_by_ms: None,
            within_ms: None,
            overdue: Vec::new(),
            failing: None,
        }
    }

    /// Whom somebody still waits for whose plan stands.
    pub(super) fn still_awaited(&mut self, entity: Entity, places: &[(PodId, NodeId)]) -> Victims {
        let mut victims = match self.queue.entry(entity).and_then(|entry| entry.awaits.as_deref()) {
            Some(awaits) => awaits.clone(),
            // Made by an earlier process: who is evicted for it is not known, only who is leaving.
            None => Victims::default(),
        };
        let leaving = self.leaving_from(places);
        let late = |gone_by: &Millis| gone_by.saturating_add(OVERDUE_AFTER_MS) <= self.now;
        let overdue = leaving.iter().filter(|(_, gone_by)| gone_by.as_ref().is_some_and(late));
        victims.overdue = overdue.take(EXAMPLES_MAX).map(|(pod, _)| self.cluster.pod(*pod).id.to_string()).collect();
        victims.failing = self.failing_for(entity, places);
        let last = leaving.iter().filter_map(|(_, gone_by)| *gone_by).max();
        if victims.gone_by_ms != last {
            victims.gone_by_ms = last;
            victims.within_ms = last.map(|last| last.saturating_sub(self.now)).filter(|within| *within > 0);
        }
        self.queue.set_awaits(entity, Some(Box::new(victims.clone())));
        let nodes = self.nodes_around(places);
        for by in self.asking(entity, places) {
            self.evict_the_due(&by, &nodes);
        }
        victims
    }

    /// One whose eviction for this entity does not succeed, and what was said.
    fn failing_for(&self, entity: Entity, places: &[(PodId, NodeId)]) -> Option<String> {
        let by = self.asking(entity, places);
        let failing = self.cluster.leaving().filter_map(|id| {
            let pod = self.cluster.pod(id);
            let eviction = pod.eviction.as_ref().filter(|eviction| !pod.terminating && by.contains(&eviction.by))?;
            eviction.failed.as_ref().map(|message| format!("{}: {message}", pod.id))
        });
        failing.min()
    }

    /// Whether nobody is left who has to leave the places of somebody for whom others were evicted. Whoever only waits for
    /// what leaves anyway has no right to be earlier than others.
    pub(super) fn places_are_free(&self, entity: Entity) -> bool {
        let is_free = |pod: &PodId| {
            let node = self.cluster.pod(*pod).nominated;
            node.is_none_or(|node| !self.cluster.node(node).pods.iter().any(|pod| self.cluster.pod(*pod).is_leaving()))
        };
        let awaits = self.queue.entry(entity).and_then(|entry| entry.awaits.as_ref());
        awaits.is_some_and(|victims| victims.evicted > 0)
            && match entity {
                Entity::Pod(pod) => is_free(&pod),
                Entity::Group(group) => self.cluster.group(group).waiting.iter().all(|(_, member)| is_free(member)),
            }
    }

    /// Whom evictions are for that make room on these places: the entity, or each pod for itself.
    fn asking(&self, entity: Entity, places: &[(PodId, NodeId)]) -> Vec<Arc<Subject>> {
        if self.config.preemption.delayed {
            return vec![Arc::new(self.subject(entity))];
        }
        places.iter().map(|(pod, _)| Arc::new(self.subject(Entity::Pod(*pod)))).collect()
    }

    /// The nodes on which somebody can be in the way of these places: where they are, where those stand whom somebody
    /// shuns or who shun him, and where those leave whom he would have to follow as long as they are there.
    pub(super) fn nodes_around(&self, places: &[(PodId, NodeId)]) -> BTreeSet<NodeId> {
        let mut nodes: BTreeSet<NodeId> = places.iter().map(|(_, node)| *node).collect();
        let neighbours = &self.cluster.neighbours;
        for (pod, node) in places {
            let Some(rules) = &self.cluster.class(self.cluster.pod(*pod).class).rules else { continue };
            let spread = rules.spread.iter().map(|even| &even.tally);
            for tally in rules.shuns.iter().chain(&rules.shunned_by).chain(spread) {
                let axis = neighbours.axis(neighbours.tally(*tally).axis);
                nodes.extend(axis.domain(*node).map(|domain| axis.nodes(domain)).into_iter().flatten());
            }
            let is_sought = |pod: &&Pod| {
                let counts = self.cluster.class(pod.class).rules.as_ref().map(|rules| &rules.counts_in);
                counts.is_some_and(|counts| rules.seeks.iter().any(|tally| counts.contains(tally)))
            };
            let leaving = self.cluster.leaving().filter(|_| !rules.seeks.is_empty()).map(|pod| self.cluster.pod(pod));
            nodes.extend(leaving.filter(is_sought).filter_map(|pod| pod.state.node()));
        }
        nodes
    }

    /// Who is leaving these places, or what is near them where that matters, and by when.
    pub(super) fn leaving_from(&self, places: &[(PodId, NodeId)]) -> Vec<(PodId, Option<Millis>)> {
        let nodes = self.nodes_around(places);
        let pods = nodes.iter().flat_map(|node| &self.cluster.node(*node).pods);
        pods.filter(|pod| self.cluster.pod(**pod).is_leaving())
            .map(|pod| (*pod, self.cluster.pod(*pod).gone_by_ms))
            .collect()
    }

    /// Parks somebody whose places are kept free until those leave who are in the way.
    pub(super) fn wait_for_victims(&mut self, entity: Entity, lines: Vec<Line>, mut victims: Victims) {
        let (initial, max) = (self.config.backoff_ms_initial, self.config.backoff_ms_max);
        if victims.evicted > 0 {
            self.queue.waits(entity, self.now, initial);
        } else {
            // Whoever waits for what leaves anyway is no better than others who wait for it.
            self.queue.failed(entity, self.now, |failures| pause_ms(initial, max, failures, 1));
        }
        self.queue.set_may_claim(entity, false);
        // Those who do not leave in time are told of.
        let again_at = match (victims.overdue.is_empty(), victims.gone_by_ms) {
            (true, Some(gone_by_ms)) => Some(gone_by_ms.max(self.now).saturating_add(OVERDUE_AFTER_MS)),
            _ => None,
        };
        self.queue.put(entity, Place::Parked { lines, again_at });
        match entity {
            Entity::Pod(pod) => self.say_pod(pod, Diagnosis::WaitingForVictims(victims)),
            Entity::Group(id) => {
                let group = self.cluster.group(id);
                let needs = group.needs();
                victims.started = group.is_gang() && !group.reached.is_empty();
                victims.needed = needs.iter().sum();
                let members = self.who_has_a_place(id);
                self.parked(id, &needs);
                self.say_group(id, Diagnosis::WaitingForVictims(victims), members);
            }
        }
    }

    /// For which waiting members of a group a place is kept free.
    fn who_has_a_place(&self, id: GroupId) -> Vec<(Arc<PodName>, MemberVerdict)> {
        let members = self.cluster.group(id).waiting.iter().map(|(_, member)| self.cluster.pod(*member));
        let verdict = |pod: &Pod| match pod.nominated {
            Some(_) => MemberVerdict::WouldFit,
            None if pod.left_out => MemberVerdict::NoRoom,
            None => MemberVerdict::NotTried,
        };
        let mut members: Vec<_> = members.map(|pod| (pod.id.clone(), verdict(pod))).collect();
        members.sort_unstable_by(|one, two| one.0.cmp(&two.0));
        members
    }
}

/// Places everybody where he is meant to go, if all of them fit there. If not, what was placed is for the caller to undo.
pub(super) fn place_all(trial: &mut Trial<'_>, places: &[(PodId, NodeId)], priority: i32) -> bool {
    let mut left = places.to_vec();
    while !left.is_empty() {
        let before = left.len();
        left.retain(|(pod, node)| {
            let fits = fits(trial.cluster(), *pod, *node, priority);
            if fits {
                trial.place(*pod, *node);
            }
            !fits
        });
        // Whoever insists on the company of one who comes after him fits in a later round.
        if left.len() == before {
            return false;
        }
    }
    true
}

fn fits(cluster: &Cluster, pod: PodId, node: NodeId, priority: i32) -> bool {
    let class = cluster.class(cluster.pod(pod).class);
    cluster.node_if_any(node).is_some_and(|there| {
        filter::node_would_do(class, there) && filter::has_room(class, there, &filter::view(cluster, node, priority))
    })
}

pub(super) fn in_words(why: NoPlan) -> Preemption {
    match why {
        NoPlan::NobodyBelow => Preemption::NobodyBelow,
        NoPlan::NotEnough => Preemption::NotEnough,
        NoPlan::NotFound => Preemption::NotFound,
        NoPlan::Budgets => Preemption::Budgets,
        NoPlan::Spared => Preemption::Spared,
        NoPlan::MinResources => Preemption::MinResources,
    }
}

/// Takes those away who are leaving anyway: nobody has to be evicted where it is enough to wait.
pub(super) fn without_the_leaving(trial: &mut Trial<'_>) {
    let leaving: Vec<PodId> = trial.cluster().leaving().collect();
    for pod in leaving {
        trial.remove(pod);
    }
}
