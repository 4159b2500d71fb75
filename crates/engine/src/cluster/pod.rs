//! A pod and its states.

use std::sync::Arc;

use super::storage::{Unusable, VolumePlan};
use crate::model::Millis;
use crate::model::ids::{ClaimId, ClassId, GroupId, LabelSetId, NodeId};
use crate::model::labels::Labels;
use crate::model::pod::{Lifetime, OwnerAttempt, PodName, PodRefusal, StartStamp};
use crate::model::storage::ClaimUse;
use crate::model::subject::Subject;

/// The state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    /// On no node.
    Waiting,
    /// Assumed: placed on the node, bind not confirmed.
    Assumed(NodeId),
    /// Bound.
    Bound(NodeId),
    /// Finished; it uses no capacity.
    Finished {
        /// It succeeded.
        succeeded: bool,
    },
}

impl PodState {
    /// The node whose capacity it uses.
    pub(crate) fn node(self) -> Option<NodeId> {
        match self {
            Self::Assumed(node) | Self::Bound(node) => Some(node),
            Self::Waiting | Self::Finished { .. } => None,
        }
    }
}

/// The bind of one pod, from the decision to its confirmation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bind {
    /// How often the bind to the current node was sent.
    pub(crate) tries: u32,
    /// A command was sent and its outcome is not known.
    pub(crate) in_flight: bool,
    /// When the bind is to be sent again.
    pub(crate) retry_at: Option<Millis>,
    /// When the bind of a pod without a group is abandoned.
    pub(crate) deadline: Millis,
    /// Nodes that refused this pod in the current attempt.
    pub(crate) avoid: Vec<Arc<str>>,
    /// The stamp that is sent with it.
    pub(crate) start: Option<Arc<StartStamp>>,
}

/// A pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pod {
    /// Which pod.
    pub(crate) id: Arc<PodName>,
    /// Its class.
    pub(crate) class: ClassId,
    /// Its own priority.
    pub(crate) priority: i32,
    /// Its group, if it refers to one.
    pub(crate) group: Option<GroupId>,
    /// The subset that it refers to.
    pub(crate) subset: Box<str>,
    /// The attempt of its owner that it belongs to, if its owner starts it again.
    pub(crate) attempt: Option<OwnerAttempt>,
    /// Whether Muster schedules it.
    pub(crate) ours: bool,
    /// Whether scheduling gates hold it back.
    pub(crate) gated: bool,
    /// Why it must not be placed, if so.
    pub(crate) refused: Option<Arc<PodRefusal>>,
    /// Whether it is terminating, as shown by the API; that is final.
    pub(crate) terminating: bool,
    /// Whether its deletion was requested to roll back a bind, and not refused.
    pub(crate) rolling_back: bool,
    /// Whether it is a static pod: deleting it in the API does not stop it.
    pub(crate) is_static: bool,
    /// Its labels.
    pub(crate) labels: Arc<Labels>,
    /// The set of pods with its labels.
    pub(crate) label_set: LabelSetId,
    /// When it started to run.
    pub(crate) started_ms: Option<Millis>,
    /// The cost of its loss, as set by its owner.
    pub(crate) preemption_cost: i32,
    /// Its eviction by preemption, once ordered.
    pub(crate) eviction: Option<Eviction>,
    /// It is not preempted before this time, because its eviction was refused.
    pub(crate) not_preempted_before: Millis,
    /// Whether its own preemption policy is `Never`.
    pub(crate) never_preempts: bool,
    /// When its grace period ends, if it is terminating.
    pub(crate) grace_period_ends_ms: Option<Millis>,
    /// Whether the API marks it as a target of preemption.
    pub(crate) marked: bool,
    /// Whether a controller recreates it.
    pub(crate) controlled: bool,
    /// Whether it runs, as shown by the API.
    pub(crate) is_running: bool,
    /// Whether it was ever seen running.
    pub(crate) ran: bool,
    /// Its role in the start of its group.
    pub(crate) start_role: StartRole,
    /// The stamp of its bind, as the API shows it.
    pub(crate) start: Option<Arc<StartStamp>>,
    /// The StatefulSet that created it.
    pub(crate) stateful_set: Option<Arc<str>>,
    /// Its rank among the members of its group.
    pub(crate) rank: Option<u64>,
    /// How long it runs.
    pub(crate) lifetime: Lifetime,
    /// When it was created.
    pub(crate) created_ms: Millis,
    /// When it could first be tried: it was not held back by a scheduling gate or a refused field.
    pub(crate) schedulable_since: Option<Millis>,
    /// Its state.
    pub(crate) state: PodState,
    /// Whether the plan of its group has no place for it.
    pub(crate) without_place: bool,
    /// Its nominated node.
    pub(crate) nominated: Option<NodeId>,
    /// Whether the API shows a nomination, or is about to.
    pub(crate) shows_nomination: bool,
    /// What the API must show first before nominations by other components are accepted.
    pub(crate) awaited_nomination: Awaited,
    /// Its bind, while there is one.
    pub(crate) bind: Option<Box<Bind>>,
    /// How its group counts it.
    pub(crate) counted: Counted,
    /// The claims that it uses, and their slots.
    pub(crate) claims: Arc<Vec<ClaimUse>>,
    pub(crate) claim_ids: Vec<ClaimId>,
    /// Why one of them cannot be used.
    pub(crate) unusable: Option<Unusable>,
    /// What its placement has chosen for its claims, while it is assumed.
    pub(crate) volume_plan: Option<Box<VolumePlan>>,
    /// What it waits for before it is bound.
    pub(crate) volume_binding: Option<Box<VolumeBinding>>,
    /// Whether its group counts it as pending or on a node.
    pub(crate) counted_live: bool,
    /// Whether what it requests is part of what its group takes of its `minResources`.
    pub(crate) counted_taking: bool,
}

/// An assumed pod that waits for volumes, its own or those of others of its group, from the decision until it is bound.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VolumeBinding {
    /// When it began.
    pub(crate) since: Millis,
    /// When it is given up.
    pub(crate) deadline: Millis,
    /// Its claims that are not bound yet.
    pub(crate) open: Vec<ClaimId>,
    /// Whether it had any; otherwise it waits for others of its group.
    pub(crate) has_claims: bool,
}

/// An eviction by preemption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Eviction {
    /// The preemptor.
    pub(crate) by: Arc<Subject>,
    /// The pod is evicted together with its whole group.
    pub(crate) whole: bool,
    /// The request is in flight.
    pub(crate) sent: bool,
    /// The error of the last transient failure.
    pub(crate) failed: Option<Arc<str>>,
    /// The eviction of its unit has started: it must be evicted too, even if the plan no longer holds.
    pub(crate) irrevocable: bool,
}

/// The own change of a nomination that the API does not show yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// None: what it shows was set by other components.
    #[default]
    Nothing,
    /// The nomination is cleared.
    Cleared,
    /// The nomination is set to this node.
    Node(Arc<str>),
}

/// How a group counts a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Not at all: it has no group.
    #[default]
    Not,
    /// As excluded.
    Excluded,
    /// In this subset and state.
    In {
        /// Which subset.
        subset: u16,
        /// In which state.
        member_state: MemberState,
    },
}

/// The role of a pod in the start of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StartRole {
    /// None: it was bound without a stamp of this group's object, before the group became a gang, or it has run for so
    /// long that it stays.
    #[default]
    None,
    /// Placed by a start that is not confirmed yet.
    Tentative,
    /// Placed by the confirmed start.
    Founder,
    /// Joined after the start was confirmed.
    Joined,
}

/// The state of a pod as a member of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// Could be placed now.
    Waiting,
    /// Behind scheduling gates.
    Gated,
    /// Refused because of an unsupported or invalid field.
    Refused,
    /// Assumed: placed, bind not confirmed.
    Assumed,
    /// Bound and not leaving.
    Bound,
    /// Succeeded.
    Succeeded,
    /// Not counted: failed, leaving, or of another scheduler.
    NotCounted,
}

impl Pod {
    /// Why it must not be placed, if so: a field of its own, or one of its claims.
    pub(crate) fn refusal(&self) -> Option<&Arc<PodRefusal>> {
        self.refused.as_ref().or(self.unusable.as_ref())
    }

    /// Whether the pod is terminating, being evicted, or being deleted to roll back its bind.
    pub(crate) fn is_leaving(&self) -> bool {
        self.terminating || self.rolling_back || self.eviction.is_some()
    }

    /// Whether it may still be placed.
    pub(crate) fn is_pending(&self) -> bool {
        self.state == PodState::Waiting && !self.is_leaving()
    }

    /// Until when a placed pod cannot be evicted, and with it no group that is evicted as a whole; `None` if it does not
    /// count because it is leaving.
    pub(crate) fn not_evictable_before(&self) -> Option<Millis> {
        match self.state {
            _ if self.is_leaving() => None,
            PodState::Bound(_) if !self.is_static => Some(self.not_preempted_before),
            _ => Some(Millis::MAX),
        }
    }

    /// The state of the pod as a member of its group.
    pub(crate) fn member_state(&self) -> MemberState {
        match self.state {
            // Pods of another scheduler neither count for the group nor are rolled back.
            _ if !self.ours => MemberState::NotCounted,
            PodState::Finished { succeeded: true } => MemberState::Succeeded,
            PodState::Finished { succeeded: false } => MemberState::NotCounted,
            _ if self.is_leaving() => MemberState::NotCounted,
            PodState::Bound(_) => MemberState::Bound,
            PodState::Assumed(_) => MemberState::Assumed,
            // Gates are removed eventually; a refusal needs a user, and so takes precedence.
            PodState::Waiting if self.refusal().is_some() => MemberState::Refused,
            PodState::Waiting if self.gated => MemberState::Gated,
            PodState::Waiting => MemberState::Waiting,
        }
    }
}
