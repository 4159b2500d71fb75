//! A pod as the engine keeps it, and the few states it can be in.

use std::sync::Arc;

use crate::command::Subject;
use crate::model::Millis;
use crate::model::ids::{ClassId, GroupId, NodeId};
use crate::model::labels::Labels;
use crate::model::pod::{PodName, PodRefusal};

/// Where a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    /// On no node.
    Waiting,
    /// Decided: it counts on the node, the bind is not confirmed.
    Assumed(NodeId),
    /// Bound for good.
    Bound(NodeId),
    /// Done; it takes nothing any more.
    Finished {
        /// It succeeded.
        well: bool,
    },
}

impl PodState {
    /// The node that it takes room on.
    pub fn node(self) -> Option<NodeId> {
        match self {
            Self::Assumed(node) | Self::Bound(node) => Some(node),
            Self::Waiting | Self::Finished { .. } => None,
        }
    }
}

/// The bind of one pod, from the decision to its confirmation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bind {
    /// How often the bind was sent for the present node.
    pub tries: u32,
    /// A command is out and its outcome is not known.
    pub in_flight: bool,
    /// When the bind is to be sent again.
    pub retry_at: Option<Millis>,
    /// When a pod on its own gives up this node.
    pub deadline: Millis,
    /// Nodes that refused this pod in the present attempt.
    pub avoid: Vec<Arc<str>>,
}

/// A pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Which pod.
    pub id: Arc<PodName>,
    /// Its class.
    pub class: ClassId,
    /// Its own priority.
    pub priority: i32,
    /// Its group, if it names one.
    pub group: Option<GroupId>,
    /// The subset that it names.
    pub subset: Box<str>,
    /// Whether Muster schedules it.
    pub ours: bool,
    /// Whether scheduling gates hold it back.
    pub gated: bool,
    /// Why it must not be placed, if it must not.
    pub refused: Option<Arc<PodRefusal>>,
    /// Whether it is being deleted, as the API says: that is for good.
    pub terminating: bool,
    /// Whether we asked for its deletion and were not refused.
    pub taking_back: bool,
    /// Whether its node runs it of its own accord: deleting it in the API does not make it leave.
    pub is_static: bool,
    /// Its labels.
    pub labels: Arc<Labels>,
    /// When it began to run.
    pub started_ms: Option<Millis>,
    /// What its owner says that its loss would cost.
    pub preemption_cost: i32,
    /// Its eviction for others, from the order on.
    pub eviction: Option<Eviction>,
    /// It is not taken for others before this time: somebody refused its eviction.
    pub spared_until: Millis,
    /// Whether it may take no room from others, where no group decides that.
    pub never_preempts: bool,
    /// By when it has to be gone, if it is being deleted.
    pub gone_by_ms: Option<Millis>,
    /// Whether the API shows that it is evicted for others.
    pub marked: bool,
    /// Whether a controller would make it again.
    pub controlled: bool,
    /// Whether it was ever seen running.
    pub ran: bool,
    /// Its part in the start of its group.
    pub part: Part,
    /// When it was created.
    pub created_ms: Millis,
    /// Where it stands.
    pub state: PodState,
    /// Whether there was no room for it in the plan of its group.
    pub left_out: bool,
    /// The node that is kept free for it.
    pub nominated: Option<NodeId>,
    /// Whether the API shows a nomination, or is to show one.
    pub shows_nomination: bool,
    /// What the API is to show of that before anybody else is believed.
    pub awaited_nomination: Awaited,
    /// Its bind, while there is one to tell of.
    pub bind: Option<Box<Bind>>,
    /// Where its group counts it.
    pub counted: Counted,
}

/// An eviction for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// For whom.
    pub by: Arc<Subject>,
    /// The pod goes with the whole of its group.
    pub whole: bool,
    /// The request is on its way: its outcome will tell.
    pub sent: bool,
    /// What was said when it last failed in passing.
    pub failed: Option<Arc<str>>,
    /// Others of its unit have gone: it follows them, whatever became of the plan.
    pub must_go: bool,
}

/// What the API has yet to show of a nomination that was decided here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Awaited {
    /// Nothing: what it shows is what others want.
    #[default]
    Nothing,
    /// None at all.
    Cleared,
    /// This node.
    Node(Arc<str>),
}

/// Where a group counts a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counted {
    /// Nowhere: it has no group.
    #[default]
    Not,
    /// As a stray.
    Stray,
    /// In this subset with this standing.
    In {
        /// Which subset.
        subset: u16,
        /// With which standing.
        standing: Standing,
    },
}

/// The part that a pod plays in the start of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// None that is known: it was there before us, or before the group became a gang.
    #[default]
    None,
    /// It was placed by a start that is not confirmed yet.
    Tentative,
    /// It was placed by the start that was confirmed.
    Founder,
    /// It joined the gang after its start was confirmed.
    Joined,
}

/// What a pod is to its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Could be placed now.
    Waiting,
    /// Waits behind scheduling gates.
    Gated,
    /// Waits because something of it cannot be honoured.
    Refused,
    /// Decided, not confirmed.
    Assumed,
    /// Bound and staying.
    Bound,
    /// Finished well.
    Succeeded,
    /// Counts for nothing: failed, leaving, or not ours to place.
    Aside,
}

impl Pod {
    /// Whether the pod is on its way out, by others or by us.
    pub fn is_leaving(&self) -> bool {
        self.terminating || self.taking_back || self.eviction.is_some()
    }

    /// What the pod is to its group.
    pub fn standing(&self) -> Standing {
        match self.state {
            // A group that another scheduler has a hand in is not ours to count on, nor to take back.
            _ if !self.ours => Standing::Aside,
            PodState::Finished { well: true } => Standing::Succeeded,
            PodState::Finished { well: false } => Standing::Aside,
            _ if self.is_leaving() => Standing::Aside,
            PodState::Bound(_) => Standing::Bound,
            PodState::Assumed(_) => Standing::Assumed,
            // Gates open by themselves in the end; a refusal needs somebody, and so is told first.
            PodState::Waiting if self.refused.is_some() => Standing::Refused,
            PodState::Waiting if self.gated => Standing::Gated,
            PodState::Waiting => Standing::Waiting,
        }
    }
}
