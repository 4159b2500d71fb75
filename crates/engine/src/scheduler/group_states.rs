//! The state of a group in one word, and the number of groups in each, for metrics. Derived; read-only.

use super::Engine;
use crate::cluster::Cluster;
use crate::cluster::group::Group;
use crate::cluster::lifecycle::Lifecycle;
use crate::cluster::pod::{MemberState, PodState};

/// The state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupState {
    /// It waits for its object, for members or for capacity.
    Pending,
    /// It waits for members that are gated or refused.
    Gated,
    /// Members are placed; its minimum is not bound yet.
    Starting,
    /// Members below its minimum are bound and stay; no start is under way.
    PartiallyBound,
    /// Its minimum was bound.
    Started,
    /// It had started and is below its minimum.
    Degraded,
    /// Members are being evicted.
    BeingEvicted,
    /// All members have finished.
    Completed,
}

impl GroupState {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Gated,
        Self::Starting,
        Self::PartiallyBound,
        Self::Started,
        Self::Degraded,
        Self::BeingEvicted,
        Self::Completed,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Gated => "gated",
            Self::Starting => "starting",
            Self::PartiallyBound => "partially_bound",
            Self::Started => "started",
            Self::Degraded => "degraded",
            Self::BeingEvicted => "being_evicted",
            Self::Completed => "completed",
        }
    }

    pub(crate) fn of(cluster: &Cluster, group: &Group) -> Self {
        let pods = || group.members.iter().map(|(_, member)| cluster.pod(*member));
        if pods().any(|pod| pod.eviction.is_some()) {
            return Self::BeingEvicted;
        }
        if !group.members.is_empty() && pods().all(|pod| matches!(pod.state, PodState::Finished { .. })) {
            return Self::Completed;
        }
        match &group.lifecycle {
            Lifecycle::Starting { .. } => Self::Starting,
            Lifecycle::PartiallyBound { .. } => Self::PartiallyBound,
            Lifecycle::Started(_) if group.lifecycle.loss().is_some() => Self::Degraded,
            Lifecycle::Started(_) => Self::Started,
            Lifecycle::Pending { .. } => {
                let is_held = |state: MemberState| matches!(state, MemberState::Gated | MemberState::Refused);
                let waits = group.waits_for_held_back_members() && pods().any(|pod| is_held(pod.member_state()));
                if waits { Self::Gated } else { Self::Pending }
            }
        }
    }
}

impl Engine {
    /// The number of groups in each state, in the order of [`GroupState::ALL`]. Iterates over all members: call it at
    /// most once a second.
    pub fn groups_by_state(&self) -> [usize; GroupState::ALL.len()] {
        let mut counts = [0; GroupState::ALL.len()];
        for (_, group) in self.cluster.groups() {
            counts[GroupState::of(&self.cluster, group) as usize] += 1;
        }
        counts
    }
}
