//! Preemption by each pod of a group for itself, whether or not the group fits: the behaviour without delayed
//! preemption.
//!
//! Each member has its own plan: its nomination is kept as long as it would fit there once the leaving pods are gone,
//! and the pod is the preemptor, not its group. The group is still bound with its minimum or not at all, so capacity
//! that was freed for some members may remain unused.

use std::slice;

use super::Engine;
use super::planning_view::{detach_left_volumes, remove_leaving_pods};
use super::post_filter::{Places, place_all, preemption_result};
use super::scheduling_cycle::view_for_group;
use crate::cluster::transaction::Transaction;
use crate::diagnosis::{Preemption, Victims};
use crate::model::ids::{GroupId, PodId};
use crate::placement::PlacementRequest;
use crate::preemption::{self, NoPlan, Plan};
use crate::queue::Entity;

impl Engine {
    /// The members of an unschedulable group preempt for themselves: returns their victims, or why there are none.
    pub(super) fn preempt_per_pod(&mut self, id: GroupId, request: &PlacementRequest) -> Result<Victims, Preemption> {
        let entity = Entity::Group(id);
        for pod in members(request) {
            self.cancel_evictions_not_below(&self.subject(Entity::Pod(pod)));
        }
        let kept = self.places_with_valid_plan(id, request);
        for pod in members(request).filter(|pod| kept.iter().all(|(other, _)| other != pod)) {
            self.clear_nomination(pod);
        }
        let mut victims = None;
        if kept.is_empty() {
            self.queue.set_awaited_victims(entity, None);
        } else {
            victims = Some(self.remaining_victims(entity, &kept));
        }
        let (mut plans, mut why) = match self.check_preemption_delay(entity) {
            // This does not check whether the group as a whole can start, so nothing is evicted for it.
            Ok(()) if self.cluster.group(id).must_fit_later_pods() => (Vec::new(), Preemption::LaterPods),
            Ok(()) if self.cluster.group(id).must_fit_min_resources() => (Vec::new(), Preemption::MinResources),
            Ok(()) => self.per_pod_plans(id, request),
            Err(early) => (Vec::new(), early),
        };
        if let Some(paused) = self.eviction_pause(id)
            && let Some(first) = plans.iter().position(|plan| !plan.units.is_empty())
        {
            // Later plans may count on the room of its victims.
            plans.truncate(first);
            why = paused;
        }
        if let Some(plan) = plans.iter().find(|plan| !plan.units.is_empty()).cloned()
            && let Err(upcoming) =
                self.check_upcoming_nodes(&plan, |engine, nodes| engine.group_fits_when_ready(id, request, nodes))
        {
            (plans, why) = (Vec::new(), upcoming);
        }
        for plan in &plans {
            let more = self.execute_plan(entity, plan);
            victims = Some(victims.map_or_else(|| more.clone(), |all: Victims| all.with(&more)));
        }
        self.queue.set_awaited_victims(entity, victims.clone().map(Box::new));
        victims.ok_or(why)
    }

    /// The plan of the first member that has one.
    pub(super) fn first_per_pod_plan(&mut self, id: GroupId, request: &PlacementRequest) -> Result<Plan, NoPlan> {
        let group = self.cluster.group(id);
        if group.must_fit_more() {
            return Err(if group.must_fit_later_pods() { NoPlan::LaterPods } else { NoPlan::MinResources });
        }
        let (plans, _) = self.per_pod_plans(id, request);
        plans.into_iter().next().ok_or(NoPlan::NotEnough)
    }

    /// The places of members whose plans hold, all at the same time.
    fn places_with_valid_plan(&mut self, id: GroupId, request: &PlacementRequest) -> Places {
        let mut places = Places::new();
        for lot in &request.lots {
            let nominated = lot.pods.iter().filter_map(|pod| Some((*pod, self.cluster.pod(*pod).nominated?)));
            places.extend(nominated.filter(|(_, node)| !lot.avoid.contains(node)));
        }
        // Without leaving pods there is nothing to wait for: either there is room now, or there will not be.
        places.retain(|place| !self.leaving_pods_near(slice::from_ref(place)).is_empty());
        let aside = self.set_aside_for(id);
        let mut transaction = view_for_group(&mut self.cluster, request, &aside);
        remove_leaving_pods(&mut transaction, places.iter().map(|(pod, _)| *pod));
        places.retain(|place| place_all(&mut transaction, slice::from_ref(place), request.priority));
        places
    }

    /// A plan for each member that needs one, as far as there is one, and why the others have none. Members that fit
    /// now only take their capacity out of consideration.
    fn per_pod_plans(&mut self, id: GroupId, request: &PlacementRequest) -> (Vec<Plan>, Preemption) {
        let (reserved, rules, leaving) = (self.reserved_for(id), self.rules(), self.leaving_pods_to_count_on(id));
        let mut transaction = Transaction::new(&mut self.cluster);
        for node in &reserved {
            transaction.lift_reservation(*node);
        }
        let mut without_room = Vec::new();
        for lot in &request.lots {
            for pod in &lot.pods {
                if transaction.cluster().pod(*pod).nominated.is_some() {
                    continue;
                }
                let candidates = self.cache.candidates(transaction.cluster(), lot.class, request.priority);
                match candidates.best_except(&lot.avoid) {
                    Some(node) => transaction.place(*pod, node),
                    None => without_room.push((*pod, lot)),
                }
            }
        }
        detach_left_volumes(&mut transaction, without_room.iter().map(|(pod, _)| *pod));
        for pod in leaving {
            transaction.remove(pod);
        }
        let (mut plans, mut why) = (Vec::new(), None);
        let mut failed = None;
        for (pod, lot) in without_room {
            if failed == Some((lot.class, &lot.avoid)) {
                // A pod of the same class has no plan either.
                continue;
            }
            let preemptor = (pod, lot.class, request.priority);
            match preemption::for_pod(&mut transaction, &mut self.cache, preemptor, &lot.avoid, rules) {
                Ok(plan) => {
                    for (victim, _) in plan.units.iter().flat_map(|unit| &unit.pods) {
                        transaction.remove(*victim);
                    }
                    plan.places.iter().for_each(|(pod, node)| transaction.place(*pod, *node));
                    plans.push(plan);
                }
                Err(reason) => (failed, why) = (Some((lot.class, &lot.avoid)), Some(preemption_result(reason))),
            }
        }
        drop(transaction);
        // A member that only waits for other members of its group needs no nomination.
        plans.retain(|plan| !plan.units.is_empty() || !self.leaving_pods_near(&plan.places).is_empty());
        (plans, why.unwrap_or(Preemption::NotFound))
    }
}

fn members(request: &PlacementRequest) -> impl Iterator<Item = PodId> + '_ {
    request.lots.iter().flat_map(|lot| lot.pods.iter().copied())
}
