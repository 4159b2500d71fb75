//! How things are with a pod or a group, as a value: conditions, events, explanations and metrics are all
//! printed from it.
//!
//! The sentences are in `text`, the looking in `examine`. A value here names things as users know them; it must
//! not hold ids.

pub(crate) mod examine;
mod text;

use serde::{Deserialize, Serialize};

use crate::model::pod::RefusalKind;
pub use crate::score::ScoreName;

/// How things are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Diagnosis {
    /// The group has what it needs, and it is bound.
    Scheduled {
        /// The minimum.
        minimum: u32,
        /// Members that are bound or finished well.
        secured: u32,
    },
    /// Not tried yet: something is missing that is not room.
    Waiting(Waiting),
    /// A single pod has no place.
    PodUnschedulable {
        /// Why each node said no.
        fit: FitError,
        /// Where it came closest.
        closest: Option<Closest>,
        /// Not even an empty cluster would do.
        never: bool,
        /// Why nobody was preempted.
        preemption: Preemption,
    },
    /// A group, or what is left of it, has no place.
    GroupUnschedulable(Shortfall),
    /// A place is kept free, and those who are in the way there are leaving.
    WaitingForVictims(Victims),
    /// The node or the API refused the bind.
    BindFailed {
        /// The node.
        node: String,
        /// What was said.
        message: String,
    },
    /// The start of a gang did not come together in time.
    TimedOut {
        /// The minimum.
        minimum: u32,
        /// Members that were bound by then.
        secured: u32,
        /// Bound members that are taken back.
        taken_back: u32,
        /// Bound members that stay because nothing would make them again.
        kept: u32,
    },
    /// A gang that had started lost members and is below its minimum.
    Degraded {
        /// The minimum.
        minimum: u32,
        /// Members that are bound or finished well.
        secured: u32,
        /// How many of them are deleted, so that it starts anew as a whole.
        #[serde(default)]
        evicted: u32,
    },
    /// A gang that was degraded has its minimum again.
    Healthy {
        /// The minimum.
        minimum: u32,
        /// Members that are bound or finished well.
        secured: u32,
    },
}

/// What an entity waits for before it is tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// The group object that the pods name is not there.
    GroupMissing {
        /// Which group.
        group: String,
        /// How many pods wait for it.
        pods: u32,
    },
    /// There are fewer members than the minimum.
    Members {
        /// The subset that is short; empty if the group has none.
        subset: String,
        /// Members there are.
        have: u32,
        /// Members needed.
        need: u32,
    },
    /// All that is placed of the group is to be evicted: whoever joined it now would be left alone.
    Leaving,
    /// Members are held back by scheduling gates.
    Gates {
        /// How many.
        gated: u32,
        /// One of them.
        example: String,
    },
    /// A basic group waits a short time for the rest of its desired members.
    DesiredCount {
        /// Members there are.
        have: u32,
        /// Members desired.
        desired: u32,
    },
    /// The pod names a subset that its group does not have.
    UnknownSubset {
        /// The subset.
        subset: String,
        /// The group.
        group: String,
    },
    /// The pod's priority is not the one that the members of its group share.
    OtherPriority {
        /// The pod's.
        own: i32,
        /// The group's.
        shared: i32,
        /// The group.
        group: String,
    },
    /// The pod is left over from an earlier group of the same name.
    Former {
        /// The group.
        group: String,
    },
    /// Something of the pod, or of members of the group, cannot be honoured.
    PodRefused {
        /// The pod, or one of them.
        pod: String,
        /// What is wrong with it.
        kind: RefusalKind,
        /// The field.
        field: String,
        /// What stands there.
        value: String,
        /// Why that will not do.
        reason: String,
        /// How many pods are refused.
        pods: u32,
    },
    /// The group asks for something that is not supported yet.
    Unsupported {
        /// The field.
        field: String,
        /// What it asks for.
        value: String,
    },
}

/// Why no node will do for a pod, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FitError {
    /// How many nodes there are.
    pub nodes: u32,
    /// How many nodes said no for which reason.
    pub rejections: Vec<(Rejection, u32)>,
}

/// Why a node said no, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Rejection {
    /// The pod insists on another node.
    NodeName,
    /// The node is cordoned.
    Unschedulable,
    /// The node has a taint that the pod does not tolerate.
    Taints,
    /// The node does not match the affinity that the scheduler asks for.
    EnforcedAffinity,
    /// The node does not match the pod's selector or required affinity.
    NodeAffinity,
    /// A host port is taken.
    Ports,
    /// The node holds as many pods as it may.
    TooManyPods,
    /// There is too little of a resource.
    Insufficient {
        /// The resource.
        resource: String,
    },
    /// The node is none from which a volume of the pod can be reached.
    VolumeAffinity,
    /// A volume of the pod is in another zone.
    VolumeZone,
    /// Too many of those are near among whom the pod is to be spread.
    Spread,
    /// The node lacks a label over which the pod is to be spread.
    SpreadLabel,
    /// Nobody is near whom the pod insists on.
    PodAffinity,
    /// Somebody is near whom the pod shuns.
    PodAntiAffinity,
    /// Somebody is near who shuns the pod.
    ExistingPodAntiAffinity,
    /// The node does not declare a feature that the pod needs.
    Features,
    /// The node is claimed for a group that has waited too long.
    Claimed,
    /// The bind to this node was refused a moment ago.
    RefusedBind,
}

/// The node that came closest to having room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closest {
    /// The node.
    pub node: String,
    /// What it lacks for one more pod: amounts in base units. Empty if it lacks something else than a resource.
    pub lacks: Vec<(String, i64)>,
    /// What else stands in the way there.
    pub rejections: Vec<Rejection>,
}

/// By how much a group does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// An earlier start of the group stands, for the present minimum or for another one. If not, whatever was said of
    /// its having started is over.
    pub started: bool,
    /// The minimum of the group; zero if it has none or has reached it before.
    pub minimum: u32,
    /// Members that have a place already or finished well.
    pub held: u32,
    /// Members that wait.
    pub waiting: u32,
    /// How many of those would find a place now.
    pub would_fit: u32,
    /// Those that would not, by kind, the hardest first; at most [`KINDS_MAX`].
    pub kinds: Vec<KindShortfall>,
    /// All who are needed fit, and the cluster has too little left for what the group will need in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<ResourceGap>,
    /// How sure this is.
    pub proof: Proof,
    /// Why nobody was preempted.
    pub preemption: Preemption,
}

/// What is missing of a resource that a group will need in all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGap {
    /// The resource.
    pub resource: String,
    /// What the group asks for in all, in base units.
    pub asked: i64,
    /// What its members have or would have.
    pub taken: i64,
    /// What is left for the others on the nodes that it may use.
    pub left: i64,
    /// How much of that is for the others of groups that have started before and are not complete.
    #[serde(default)]
    pub owed: i64,
}

/// No more kinds than this are told of.
pub const KINDS_MAX: usize = 3;

/// Like pods of a group that find no place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindShortfall {
    /// Their subset; empty if the group has none.
    pub subset: String,
    /// How many they are.
    pub pods: u32,
    /// Why, with the others of the group in place.
    pub fit: FitError,
    /// Where it came closest.
    pub closest: Option<Closest>,
}

/// How sure a "no" is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// There is no placement now.
    Impossible,
    /// There would be none if the cluster were empty.
    NeverFits,
    /// None was found; there may be one.
    NotFound {
        /// How many steps the search took; none if the group is too large to be searched.
        steps: u64,
    },
    /// Nodes that refused a bind a moment ago were left out.
    NodesLeftOut,
}

/// Who has to leave before somebody has a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victims {
    /// An earlier start of the group stands.
    pub started: bool,
    /// How many more members the group needs; none if it has its minimum, and for single pods.
    pub needed: u32,
    /// How many pods are evicted for it; none if it is enough that those leave who were leaving.
    pub evicted: u32,
    /// How many pods and whole groups these are.
    pub units: u32,
    /// How many whole groups are among them.
    pub groups: u32,
    /// The highest priority among them.
    pub highest: Option<i32>,
    /// How many of them are evicted against a disruption budget.
    pub against_budgets: u32,
    /// Some of them by name: groups, or pods of no group that goes whole.
    pub examples: Vec<String>,
    /// It is proven that nobody could be spared.
    pub proven: bool,
    /// When the last of them has to be gone, if that is known.
    pub gone_by_ms: Option<u64>,
    /// How long that was when it was first known.
    pub within_ms: Option<u64>,
    /// Those that should be gone by now and are not, some by name.
    pub overdue: Vec<String>,
    /// One of them whose eviction does not succeed, and what was said.
    pub failing: Option<String>,
}

impl Victims {
    /// Both together.
    pub(crate) fn with(mut self, more: &Self) -> Self {
        self.evicted += more.evicted;
        self.units += more.units;
        self.groups += more.groups;
        self.highest = self.highest.max(more.highest);
        self.against_budgets += more.against_budgets;
        let room = EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(more.examples.iter().take(room).cloned());
        self.proven &= more.proven;
        self
    }
}

/// No more victims than this are told by name.
pub const EXAMPLES_MAX: usize = 3;

/// Why nobody was preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preemption {
    /// Preemption was not considered.
    NotTried,
    /// Its policy is to take no room from anybody.
    Never,
    /// Nobody of a lower priority is in the way.
    NobodyBelow,
    /// Even if everybody of a lower priority left, there would be too little room.
    NotEnough,
    /// Room can be made for those who are there, and not for what the group will need in all.
    MinResources,
    /// No plan was found; there may be one.
    NotFound,
    /// It would go against a disruption budget.
    Budgets,
    /// Those who could be evicted are left alone for a while, since their eviction was refused.
    Spared,
    /// Nodes that are being set up would do.
    NodesArriving {
        /// How many are being set up.
        nodes: u32,
    },
    /// It waits a while first.
    Delayed {
        /// How long in all.
        delay_ms: u64,
    },
}

impl Diagnosis {
    /// The reason of the group's condition, in one word.
    pub fn group_reason(&self) -> &'static str {
        match self {
            // Of a group that has started, only later members can wait: the group itself stays what it is.
            Self::Scheduled { .. }
            | Self::Healthy { .. }
            | Self::GroupUnschedulable(Shortfall { started: true, minimum: 0, .. })
            | Self::WaitingForVictims(Victims { started: true, needed: 0, .. })
            | Self::Waiting(Waiting::Leaving) => "Scheduled",
            Self::Waiting(Waiting::Gates { .. }) => "Gated",
            Self::Waiting(Waiting::Unsupported { .. } | Waiting::PodRefused { kind: RefusalKind::Unsupported, .. }) => {
                "Unsupported"
            }
            Self::Waiting(
                Waiting::UnknownSubset { .. }
                | Waiting::OtherPriority { .. }
                | Waiting::Former { .. }
                | Waiting::PodRefused { kind: RefusalKind::Reference | RefusalKind::Invalid, .. },
            ) => "Invalid",
            Self::Waiting(_) => "WaitingForMembers",
            Self::PodUnschedulable { never: true, .. } => "NeverFits",
            Self::PodUnschedulable { .. } => "Unschedulable",
            Self::GroupUnschedulable(shortfall) => match shortfall.proof {
                Proof::Impossible => "Unschedulable",
                Proof::NeverFits => "NeverFits",
                Proof::NotFound { .. } | Proof::NodesLeftOut => "NotFoundWithinBudget",
            },
            Self::WaitingForVictims(_) => "WaitingForVictims",
            Self::BindFailed { .. } => "SchedulerError",
            Self::TimedOut { .. } => "ScheduleTimeout",
            Self::Degraded { .. } => "Degraded",
        }
    }

    /// Whether it is told at once: waiting and losses are told when they last. What is refused does not pass by itself.
    pub fn is_urgent(&self) -> bool {
        match self {
            Self::Waiting(waiting) => matches!(waiting, Waiting::PodRefused { .. }),
            Self::Degraded { evicted, .. } => *evicted > 0,
            _ => true,
        }
    }

    /// Whether both refuse pods for the same thing: more or other pods of the kind are no urgent news.
    pub(crate) fn is_like_refusal(&self, other: &Self) -> bool {
        let refusal = |diagnosis: &Self| match diagnosis {
            Self::Waiting(Waiting::PodRefused { kind, field, value, reason, .. }) => {
                Some((*kind, field.clone(), value.clone(), reason.clone()))
            }
            _ => None,
        };
        refusal(self).is_some_and(|own| refusal(other) == Some(own))
    }
}
