//! Preemption where the pods of a group preempt one by one, whether or not the group fits: what was done before there
//! were plans for groups.
//!
//! Each member has a plan of its own, which stands or falls alone: its nomination is kept as long as it would fit there
//! once the leaving are gone, and evictions are for the pod, not for its group. The group is bound as ever, with its
//! minimum or not at all; so room that was taken for some of it may be of no use.

use std::slice;

use super::Engine;
use super::cycle::own_view;
use super::preempt::{Places, in_words, place_all, without_the_leaving};
use crate::cluster::trial::Trial;
use crate::diagnosis::{Preemption, Victims};
use crate::model::ids::{GroupId, PodId};
use crate::placement::Want;
use crate::preemption::{self, NoPlan, Plan};
use crate::queue::Entity;

impl Engine {
    /// The members of a group that has no place preempt each for itself: whom they wait for, or why they take room
    /// from nobody.
    pub(super) fn preempt_one_by_one(&mut self, id: GroupId, want: &Want) -> Result<Victims, Preemption> {
        let entity = Entity::Group(id);
        for pod in members(want) {
            self.spare_the_risen(&self.subject(Entity::Pod(pod)));
        }
        let kept = self.places_that_stand(id, want);
        for pod in members(want).filter(|pod| kept.iter().all(|(other, _)| other != pod)) {
            self.clear_nomination(pod);
        }
        let mut victims = None;
        if kept.is_empty() {
            self.queue.set_awaits(entity, None);
        } else {
            victims = Some(self.still_awaited(entity, &kept));
        }
        let (mut plans, mut why) = match self.not_too_early(entity) {
            // Whether the whole of it will start is not looked at here: so nobody goes for what may not start.
            Ok(()) if self.cluster.group(id).asks_for_more() => (Vec::new(), Preemption::MinResources),
            Ok(()) => self.plans_one_by_one(id, want),
            Err(early) => (Vec::new(), early),
        };
        if let Some(plan) = plans.iter().find(|plan| !plan.units.is_empty()).cloned()
            && let Err(arriving) =
                self.not_before_nodes_arrive(&plan, |engine, nodes| engine.group_fits_when_ready(id, want, nodes))
        {
            (plans, why) = (Vec::new(), arriving);
        }
        for plan in &plans {
            let more = self.carry_out(entity, plan);
            victims = Some(victims.map_or_else(|| more.clone(), |all: Victims| all.with(&more)));
        }
        self.queue.set_awaits(entity, victims.clone().map(Box::new));
        victims.ok_or(why)
    }

    /// The plan of the first member that has one.
    pub(super) fn first_plan_of(&mut self, id: GroupId, want: &Want) -> Result<Plan, NoPlan> {
        if self.cluster.group(id).asks_for_more() {
            return Err(NoPlan::MinResources);
        }
        let (plans, _) = self.plans_one_by_one(id, want);
        plans.into_iter().next().ok_or(NoPlan::NotEnough)
    }

    /// The places of members whose own plans stand, beside each other.
    fn places_that_stand(&mut self, id: GroupId, want: &Want) -> Places {
        let mut places = Places::new();
        for lot in &want.lots {
            let nominated = lot.pods.iter().filter_map(|pod| Some((*pod, self.cluster.pod(*pod).nominated?)));
            places.extend(nominated.filter(|(_, node)| !lot.avoid.contains(node)));
        }
        // With nobody leaving there is nothing to wait for: either there is room, or there will not be.
        places.retain(|place| !self.leaving_from(slice::from_ref(place)).is_empty());
        let claimed = self.claimed_by(id);
        let mut trial = own_view(&mut self.cluster, want, &claimed);
        without_the_leaving(&mut trial);
        places.retain(|place| place_all(&mut trial, slice::from_ref(place), want.priority));
        places
    }

    /// A plan for each member that has none and needs one, as far as there is any; and why the others have none.
    /// Members that fit as it is need nothing but that the others do not count on their room.
    fn plans_one_by_one(&mut self, id: GroupId, want: &Want) -> (Vec<Plan>, Preemption) {
        let (claimed, rules) = (self.claimed_by(id), self.rules());
        let mut trial = Trial::new(&mut self.cluster);
        for node in &claimed {
            trial.open(*node);
        }
        let mut without_room = Vec::new();
        for lot in &want.lots {
            for pod in &lot.pods {
                if trial.cluster().pod(*pod).nominated.is_some() {
                    continue;
                }
                let candidates = self.cache.candidates(trial.cluster(), lot.class, want.priority);
                match candidates.best_except(&lot.avoid) {
                    Some(node) => trial.place(*pod, node),
                    None => without_room.push((*pod, lot)),
                }
            }
        }
        without_the_leaving(&mut trial);
        let (mut plans, mut why) = (Vec::new(), None);
        let mut hopeless = None;
        for (pod, lot) in without_room {
            if hopeless == Some((lot.class, &lot.avoid)) {
                // Another like it has just found that there is no plan.
                continue;
            }
            let asks = (pod, lot.class, want.priority);
            match preemption::for_pod(&mut trial, &mut self.cache, asks, &lot.avoid, rules) {
                Ok(plan) => {
                    for (victim, _) in plan.units.iter().flat_map(|unit| &unit.pods) {
                        trial.remove(*victim);
                    }
                    plan.places.iter().for_each(|(pod, node)| trial.place(*pod, *node));
                    plans.push(plan);
                }
                Err(no) => (hopeless, why) = (Some((lot.class, &lot.avoid)), Some(in_words(no))),
            }
        }
        drop(trial);
        // Who fits beside the others of his group, and waits for them alone, has no place to be kept free.
        plans.retain(|plan| !plan.units.is_empty() || !self.leaving_from(&plan.places).is_empty());
        (plans, why.unwrap_or(Preemption::NotFound))
    }
}

fn members(want: &Want) -> impl Iterator<Item = PodId> + '_ {
    want.lots.iter().flat_map(|lot| lot.pods.iter().copied())
}
