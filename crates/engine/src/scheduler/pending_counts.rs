//! Counts pending pods and groups by queue, for metrics. Read-only; must not depend on why they are pending.

use super::Engine;
use crate::cluster::pod::{Counted, MemberState};
use crate::queue::{Entity, QueueState};

/// Pods of this scheduler without a node, and the groups with such pods, by their state in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Ready for an attempt.
    pub active: PendingCount,
    /// Ready once their backoff is over.
    pub backoff: PendingCount,
    /// Unschedulable; they wait for capacity.
    pub parked: PendingCount,
    /// Not to be attempted yet: gated, refused, excluded from their group, or in a group that waits for something.
    pub held: PendingCount,
    /// Of the unschedulable ones, those that wait for their victims to leave.
    pub waiting_for_victims: PendingCount,
}

/// Pods and groups in one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingCount {
    /// Pods, members of groups included.
    pub pods: usize,
    /// Groups.
    pub groups: usize,
}

impl PendingCount {
    fn add(&mut self, pods: usize, groups: usize) {
        self.pods += pods;
        self.groups += groups;
    }
}

impl Pending {
    /// All pending pods.
    pub fn pods(&self) -> usize {
        self.active.pods + self.backoff.pods + self.parked.pods + self.held.pods
    }

    fn count_of(&mut self, state: &QueueState) -> &mut PendingCount {
        match state {
            QueueState::Active => &mut self.active,
            QueueState::Backoff(_) => &mut self.backoff,
            QueueState::Parked { .. } => &mut self.parked,
            QueueState::Held => &mut self.held,
        }
    }
}

impl Engine {
    /// Counts pending pods and groups. Iterates over all pods, also bound ones: call it at most once a second.
    pub fn pending(&self) -> Pending {
        let mut pending = Pending::default();
        for (entity, entry) in self.queue.entries() {
            let (pods, groups) = match entity {
                // An assumed pod keeps its entry until it is bound.
                Entity::Pod(pod) => (usize::from(self.cluster.pod(pod).member_state() == MemberState::Waiting), 0),
                Entity::Group(group) => (self.cluster.group(group).waiting.len(), 1),
            };
            pending.count_of(&entry.state).add(pods, groups);
            if matches!(entry.state, QueueState::Parked { .. }) && entry.awaited_victims.is_some() {
                // A group waits as one.
                pending.waiting_for_victims.add(if groups > 0 { 0 } else { pods }, groups);
            }
        }
        // Pods without an entry in the queue, or that do not follow their group.
        let held = self.cluster.pods().filter(|(_, pod)| match pod.member_state() {
            MemberState::Gated | MemberState::Refused => true,
            MemberState::Waiting => pod.counted == Counted::Excluded,
            MemberState::Assumed | MemberState::Bound | MemberState::Succeeded | MemberState::NotCounted => false,
        });
        pending.held.pods += held.count();
        pending
    }
}
