//! The end of a wait for victims: how long a group keeps room that its victims have not left.
//!
//! A group keeps its nominated nodes for the time that its start may take: counted from the plan if the group sets that
//! time itself, otherwise from when the last victim should be gone. When it is over, the nominations are cleared, and the
//! group reports a timeout. Until it is placed, its plans then count on no pod that is overdue or leaves only much later,
//! so that nothing is evicted beside a victim that stays. On pods that leave in time they do count, so that nothing is
//! evicted twice for the same room. More pods are evicted only after a pause that doubles with every timeout.

use super::Engine;
use super::post_filter::{OVERDUE_AFTER_MS, Places};
use crate::cluster::pod::Pod;
use crate::diagnosis::{Diagnosis, Preemption};
use crate::model::Millis;
use crate::model::ids::{GroupId, PodId};
use crate::placement::PlacementRequest;
use crate::queue::backoff::doubled;
use crate::queue::{Entity, QueueState};

/// The longest pause between evictions: a day.
const PAUSE_MS_MAX: Millis = 86_400_000;

impl Engine {
    /// The places that a group keeps while it waits for victims, if it has kept them for too long.
    pub(super) fn places_kept_too_long(&self, id: GroupId, request: &PlacementRequest) -> Option<Places> {
        let since = self.queue.entry(Entity::Group(id))?.waits_since?;
        if self.now < since.saturating_add(self.schedule_timeout_ms(id)) {
            return None;
        }
        let members = request.lots.iter().flat_map(|lot| lot.pods.iter().copied());
        let kept = members.chain(self.stand_ins_for(id));
        let places: Places = kept.filter_map(|pod| Some((pod, self.cluster.pod(pod).nominated?))).collect();
        let last = self.leaving_pods_near(&places).into_iter().filter_map(|(_, gone_by)| gone_by).max();
        (self.keeps_places_until(id, last)? <= self.now).then_some(places)
    }

    /// Until when a group that waits for victims keeps its places, given when the last victim should be gone.
    pub(super) fn keeps_places_until(&self, id: GroupId, last_gone_by: Option<Millis>) -> Option<Millis> {
        let since = self.queue.entry(Entity::Group(id))?.waits_since?;
        let is_own = self.cluster.group(id).definition.last().is_some_and(|spec| spec.schedule_timeout_ms.is_some());
        // Nodes are kept for no longer than a reservation would keep them, however long victims may take.
        let bound = since.saturating_add(self.config.reservation_ms_max);
        let counted_from = last_gone_by.filter(|_| !is_own).map_or(since, |last| last.min(bound).max(since));
        Some(counted_from.saturating_add(self.schedule_timeout_ms(id)))
    }

    /// A group has kept its places for too long.
    pub(super) fn give_up_places(&mut self, id: GroupId, request: &PlacementRequest, places: &Places) {
        let entity = Entity::Group(id);
        let mut victims = self.queue.entry(entity).and_then(|entry| entry.awaited_victims.as_deref().cloned());
        if let Some(victims) = &mut victims {
            self.name_late_victims(victims, entity, places);
        }
        // An eviction that is to be sent again finds that it is not needed any more.
        self.clear_nominations(id);
        let overlong = self.queue.count_overlong_wait(entity);
        let pause = doubled(self.schedule_timeout_ms(id), overlong).min(PAUSE_MS_MAX);
        self.queue.pause_evictions(entity, pause, self.now);
        let group = self.cluster.group(id);
        let scheduled = group.total().scheduled();
        self.count_failure(entity, group.members.len());
        // A group that has started stays scheduled while later members wait.
        if request.needs_total() > 0 || scheduled == 0 {
            let minimum = u32::try_from(self.cluster.group(id).min_total()).unwrap_or(u32::MAX);
            let victims = Some(Box::new(victims.unwrap_or_default()));
            let diagnosis = Diagnosis::TimedOut { minimum, scheduled, rolled_back: 0, kept: 0, victims };
            self.report_group(id, diagnosis, Vec::new());
        }
        self.queue.move_to(entity, QueueState::Held);
        self.review_group(id);
    }

    /// Why a group evicts nothing more for now, if its victims did not leave in time.
    pub(super) fn eviction_pause(&self, id: GroupId) -> Option<Preemption> {
        let entry = self.queue.entry(Entity::Group(id))?;
        (self.now < entry.evicts_not_before).then_some(Preemption::TimedOut { pause_ms: entry.eviction_pause_ms })
    }

    /// The leaving pods whose room a new plan of a group counts on.
    pub(super) fn leaving_pods_to_count_on(&self, id: GroupId) -> Vec<PodId> {
        let timeout_ms = self.schedule_timeout_ms(id);
        let has_timed_out = self.queue.entry(Entity::Group(id)).is_some_and(|entry| entry.overlong_waits > 0);
        let latest = self.now.saturating_add(self.config.reservation_ms_max);
        let leaves_in_time = |pod: &Pod| match pod.grace_period_ends_ms.filter(|_| pod.terminating) {
            // For another group it is not too late yet: it has its own time to wait.
            Some(gone_by) if !has_timed_out => {
                self.now < gone_by.saturating_add(OVERDUE_AFTER_MS).saturating_add(timeout_ms)
            }
            Some(gone_by) => self.now < gone_by.saturating_add(OVERDUE_AFTER_MS) && gone_by <= latest,
            None => !has_timed_out || pod.eviction.as_ref().is_none_or(|eviction| eviction.failed.is_none()),
        };
        self.cluster.leaving().filter(|pod| leaves_in_time(self.cluster.pod(*pod))).collect()
    }
}
