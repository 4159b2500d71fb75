//! Taking over places: pods that only wait for their volumes hold their nodes, but not against more important ones.
//!
//! Nothing that runs is touched, so this comes before preemption: if a pod or group fits without placements of a lower
//! priority that still wait for volumes, these placements are ended, each as a whole. What was made for them stays, and
//! they are tried again.

use super::Engine;
use super::scheduling_cycle::view_for_group;
use crate::cluster::pod::PodState;
use crate::cluster::transaction::Transaction;
use crate::model::ids::{GroupId, PodId};
use crate::placement::{self, PlacementRequest, Verdict};
use crate::queue::Entity;

/// So many waiting placements are looked at in one attempt.
const PLACEMENTS_MAX: usize = 16;

/// A placement that waits for volumes: its pods that are not being bound yet.
struct WaitingPlacement {
    entity: Entity,
    pods: Vec<PodId>,
}

impl Engine {
    /// Ends waiting placements of a lower priority if a pod fits without them. Returns whether it does.
    pub(super) fn take_over_place_for_pod(&mut self, id: PodId) -> bool {
        let (class, priority) = self.shape_of(id);
        let avoid = self.avoided(id);
        let waiting = self.waiting_placements_below(priority);
        if waiting.is_empty() {
            return false;
        }
        let mut transaction = Transaction::new(&mut self.cluster);
        transaction.clear_nomination(id);
        let mut needed = None;
        for (index, placement) in waiting.iter().enumerate() {
            let savepoint = transaction.savepoint();
            placement.remove_from(&mut transaction);
            let candidates = self.cache.candidates(transaction.cluster(), class, priority);
            // One placement is enough for one pod, unless it needs the room of several.
            if candidates.best_except(&avoid).is_some() {
                needed = Some(index);
                break;
            }
            transaction.rollback_to(savepoint);
        }
        if needed.is_none() {
            for placement in &waiting {
                placement.remove_from(&mut transaction);
            }
            let candidates = self.cache.candidates(transaction.cluster(), class, priority);
            let fits = candidates.best_except(&avoid).is_some();
            drop(transaction);
            return fits && self.end_placements(&waiting);
        }
        drop(transaction);
        needed.is_some_and(|index| self.end_placements(&waiting[index..=index]))
    }

    /// The same for the waiting members of a group.
    pub(super) fn take_over_places_for_group(&mut self, id: GroupId, request: &PlacementRequest) -> bool {
        let waiting = self.waiting_placements_below(request.priority);
        if waiting.is_empty() {
            return false;
        }
        let (aside, steps_max) = (self.set_aside_for(id), self.steps_max(Entity::Group(id)));
        let mut transaction = view_for_group(&mut self.cluster, request, &aside);
        let mut ended = None;
        for (index, placement) in waiting.iter().enumerate() {
            placement.remove_from(&mut transaction);
            let savepoint = transaction.savepoint();
            let verdict = placement::place(&mut transaction, &mut self.cache, request, steps_max);
            if verdict == Verdict::Placed && transaction.placed_since(savepoint).next().is_some() {
                ended = Some(index);
                break;
            }
            transaction.rollback_to(savepoint);
        }
        drop(transaction);
        ended.is_some_and(|last| self.end_placements(&waiting[..=last]))
    }

    /// The placements below this priority that wait for volumes, the least important first.
    fn waiting_placements_below(&self, priority: i32) -> Vec<WaitingPlacement> {
        let mut waiting: Vec<(i32, Entity)> = Vec::new();
        for (group, placed) in self.volumes.all() {
            match group {
                Some(group) => waiting.push((self.cluster.group_priority(*group), Entity::Group(*group))),
                None => waiting.extend(placed.pods().map(|pod| (self.cluster.pod(pod).priority, Entity::Pod(pod)))),
            }
        }
        waiting.retain(|(of, _)| *of < priority);
        waiting.sort_unstable();
        waiting.truncate(PLACEMENTS_MAX);
        let placements = waiting.into_iter().map(|(_, entity)| self.waiting_placement(entity));
        placements.filter(|placement| !placement.pods.is_empty()).collect()
    }

    fn waiting_placement(&self, entity: Entity) -> WaitingPlacement {
        let idle = |pod: &PodId| {
            let pod = self.cluster.pod(*pod);
            let is_sent = pod.bind.as_deref().is_some_and(|bind| bind.in_flight || bind.retry_at.is_some());
            matches!(pod.state, PodState::Assumed(_)) && !is_sent
        };
        let pods = match entity {
            Entity::Pod(pod) => vec![pod],
            Entity::Group(group) => {
                let members = self.cluster.group(group).members.iter().map(|(_, pod)| *pod);
                members.filter(idle).collect()
            }
        };
        WaitingPlacement { entity, pods }
    }

    fn end_placements(&mut self, placements: &[WaitingPlacement]) -> bool {
        for placement in placements {
            for pod in &placement.pods {
                self.give_up_place(*pod);
            }
            match placement.entity {
                Entity::Pod(pod) => self.review_pod(pod),
                Entity::Group(group) => {
                    self.forget_unbound_start(group);
                    self.review_group(group);
                }
            }
        }
        !placements.is_empty()
    }
}

impl WaitingPlacement {
    fn remove_from(&self, transaction: &mut Transaction<'_>) {
        for pod in &self.pods {
            transaction.remove(*pod);
        }
    }
}
