//! Groups that move: a gang has lost a member, its domains have no room for another one, and its policy is to start
//! elsewhere then.
//!
//! Nothing is evicted before there is a place for every member that the minimum needs, with the room that the gang gives
//! up. Others are not preempted for it.

use super::Engine;
use super::Timer;
use super::scheduling_cycle::view_for_group;
use crate::cluster::pod::{Counted, MemberState};
use crate::model::Millis;
use crate::model::ids::{GroupId, PodId};
use crate::model::topology::WhenFull;
use crate::placement::{self, Lot, PlacementRequest, TopologyRequest, Verdict};
use crate::queue::{Entity, QueueState};

impl Engine {
    /// A group does not fit: if it may move, that is looked at after a while, as for a loss that is reported.
    pub(super) fn consider_move(&mut self, id: GroupId) {
        if !self.may_move(id) || self.moves.contains_key(&id) {
            return;
        }
        let due = self.now.saturating_add(self.config.report_waiting_after_ms);
        self.moves.insert(id, due);
        self.set_timer(due, Timer::MoveGroup(id));
    }

    /// Whether a group is a gang that runs below its minimum, whose members wait, and that asks to be moved then.
    fn may_move(&self, id: GroupId) -> bool {
        let Some(group) = self.cluster.group_if_any(id) else { return false };
        let topology = group.definition.current().and_then(|spec| spec.topology.as_deref());
        topology.is_some_and(|topology| topology.when_full == WhenFull::Move && topology.must_be_met())
            && group.lifecycle.loss().is_some()
            && group.lifecycle.attempt().is_none()
            && group.total().assumed == 0
            && !group.waiting.is_empty()
            && !group.members.iter().any(|(_, pod)| self.cluster.pod(*pod).eviction.is_some())
    }

    /// The group has had no room for a while: evicts it if it has none now, and there is room for all of it elsewhere.
    pub(super) fn move_group(&mut self, id: GroupId, due: Millis) {
        if self.moves.get(&id) != Some(&due) {
            return;
        }
        self.moves.remove(&id);
        let entry = self.queue.entry(Entity::Group(id));
        let is_parked = entry
            .is_some_and(|entry| entry.awaited_victims.is_none() && matches!(entry.state, QueueState::Parked { .. }));
        if !is_parked || !self.may_move(id) {
            return;
        }
        let here = self.request(id);
        let Some(elsewhere) = self.request_elsewhere(id, &here) else { return };
        if !self.fits(id, &here, &[]) && self.fits(id, &elsewhere.0, &elsewhere.1) {
            self.give_up_members(id);
        }
    }

    /// A request for all members, those that are placed included, as for a new start; and those members.
    fn request_elsewhere(&self, id: GroupId, here: &PlacementRequest) -> Option<(PlacementRequest, Vec<PodId>)> {
        let group = self.cluster.group(id);
        let mut request = here.clone();
        let mut placed = Vec::new();
        for (_, pod) in &group.members {
            let member = self.cluster.pod(*pod);
            let Counted::In { subset, member_state: MemberState::Bound, .. } = member.counted else { continue };
            let (class, subset) = (member.class, usize::from(subset));
            let like = |lot: &&mut Lot| lot.class == class && lot.subset == subset && lot.avoid.is_empty();
            if let Some(lot) = request.lots.iter_mut().find(like) {
                lot.pods.push(*pod);
            } else {
                let (pods, avoid) = (vec![*pod], Vec::new());
                request.lots.push(Lot { class, subset, pods, expected: 0, avoid, within: None });
            }
            placed.push(*pod);
        }
        let succeeded = group.member_counts.iter().map(|counts| counts.succeeded);
        request.needs = group.quorum().iter().zip(succeeded).map(|(need, done)| need.saturating_sub(done)).collect();
        let topology = here.topology.as_deref()?;
        let alone = TopologyRequest { held: Vec::new(), held_ranks: Vec::new(), ..topology.clone() };
        request.topology = Some(alone.into());
        (!placed.is_empty()).then_some((request, placed))
    }

    /// Whether a request has a placement without these members of the group.
    fn fits(&mut self, id: GroupId, request: &PlacementRequest, without: &[PodId]) -> bool {
        let (aside, steps_max) = (self.set_aside_for(id), self.steps_max(Entity::Group(id)));
        let mut waiting = request.clone();
        for lot in &mut waiting.lots {
            lot.pods.retain(|pod| !without.contains(pod));
        }
        let mut transaction = view_for_group(&mut self.cluster, &waiting, &aside);
        for pod in without {
            transaction.remove(*pod);
        }
        let verdict = placement::place(&mut transaction, &mut self.cache, request, steps_max);
        verdict == Verdict::Placed && transaction.placed().next().is_some()
    }
}
