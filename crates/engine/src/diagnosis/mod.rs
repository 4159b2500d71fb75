//! The diagnosis of a pod or group, as a value: the source of conditions, events, explanations and metrics.
//!
//! The messages are in `text`, the analysis in `examine`. A diagnosis names objects as users know them; it must not
//! contain ids.

pub(crate) mod claims;
pub(crate) mod examine;
mod text;

use serde::{Deserialize, Serialize};

use crate::model::pod::RefusalKind;

/// A diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Diagnosis {
    /// The group has its minimum, and it is bound.
    Scheduled {
        /// The minimum.
        minimum: u32,
        /// Members that are bound or succeeded.
        #[serde(rename = "secured")]
        scheduled: u32,
    },
    /// Not attempted yet: something other than capacity is missing.
    Waiting(Waiting),
    /// A single pod is unschedulable.
    PodUnschedulable {
        /// Why each node was rejected.
        fit: FitError,
        /// The node that came closest.
        closest: Option<Closest>,
        /// It would not even fit in an empty cluster.
        never: bool,
        /// Why there was no preemption.
        preemption: Preemption,
    },
    /// A group, or its waiting members, are unschedulable.
    GroupUnschedulable(Shortfall),
    /// Nodes are nominated, and the victims there are leaving.
    WaitingForVictims(Victims),
    /// The node or the API refused the bind.
    BindFailed {
        /// The node.
        node: String,
        /// The error.
        message: String,
    },
    /// The volume of a claim could not be bound or provisioned: nothing that depends on it is bound.
    VolumeBindFailed {
        /// The claim.
        claim: String,
        /// The node.
        node: String,
        /// By which part it was refused, or what it waited for in vain.
        message: String,
    },
    /// The start of a group was not confirmed in time, or its victims have not left in time.
    TimedOut {
        /// The minimum.
        minimum: u32,
        /// Members that were bound by then.
        #[serde(rename = "secured")]
        scheduled: u32,
        /// Bound members that are rolled back.
        #[serde(rename = "taken_back")]
        rolled_back: u32,
        /// Bound members that stay because no controller recreates them.
        kept: u32,
        /// The victims that it has waited for, if its room was not free in time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        victims: Option<Box<Victims>>,
    },
    /// A gang that had started lost members and is below its minimum.
    Degraded {
        /// The minimum.
        minimum: u32,
        /// Members that are bound or succeeded.
        #[serde(rename = "secured")]
        scheduled: u32,
        /// How many of them are deleted, so that it starts as a whole again.
        #[serde(default)]
        evicted: u32,
    },
    /// A gang that was degraded has its minimum again.
    Healthy {
        /// The minimum.
        minimum: u32,
        /// Members that are bound or succeeded.
        #[serde(rename = "secured")]
        scheduled: u32,
    },
}

/// What an entity waits for before it is attempted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// The group object that the pods refer to does not exist.
    GroupMissing {
        /// Which group.
        group: String,
        /// How many pods wait for it.
        pods: u32,
    },
    /// There are fewer members than the minimum.
    Members {
        /// The subset that lacks members; empty if the group has none.
        subset: String,
        /// Members that exist.
        have: u32,
        /// Members needed.
        need: u32,
        /// The StatefulSet of a member, which may create the others only when that one is ready.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stateful_set: Option<String>,
    },
    /// All placed members of the group are to be evicted: a member that joined now would be left alone.
    Leaving,
    /// The group is a part of a tree, and the object of its parent, or of a group above that, does not exist.
    Parent {
        /// The missing group.
        parent: String,
    },
    /// The group cannot be the part of a tree that it says it is.
    TreeInvalid {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// Why it is invalid.
        reason: String,
    },
    /// A group of the tree has fewer child groups than it needs.
    Groups {
        /// The group; empty if it is the root.
        group: String,
        /// Child groups that exist.
        have: u32,
        /// Child groups that it needs.
        need: u32,
    },
    /// Members are held back by scheduling gates.
    Gates {
        /// How many.
        gated: u32,
        /// One of them.
        example: String,
    },
    /// A basic group waits a short time for the rest of its desired members.
    DesiredCount {
        /// Members that exist.
        have: u32,
        /// Members desired.
        desired: u32,
    },
    /// Nodes are chosen; claims are being bound to volumes, or volumes provisioned, before any pod is bound.
    Volumes {
        /// How many claims.
        claims: u32,
        /// One of them.
        example: String,
        /// The node of its pod.
        node: String,
    },
    /// The pod refers to a subset that its group does not have.
    UnknownSubset {
        /// The subset.
        subset: String,
        /// The group.
        group: String,
    },
    /// The pod's priority differs from that of the other members.
    OtherPriority {
        /// The pod's.
        own: i32,
        /// The group's.
        shared: i32,
        /// The group.
        group: String,
    },
    /// The pod is left over from an earlier group of the same name, or from an earlier attempt of the owner.
    Former {
        /// The group.
        group: String,
    },
    /// The pod, or a member of the group, has an unsupported or invalid field.
    PodRefused {
        /// The pod, or one of them.
        pod: String,
        /// What is wrong with it.
        kind: RefusalKind,
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// Why it is refused.
        reason: String,
        /// How many pods are refused.
        pods: u32,
    },
    /// The group has a field that is not supported yet.
    Unsupported {
        /// The field.
        field: String,
        /// Its value.
        value: String,
    },
}

/// Why a pod fits on no node, by number of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FitError {
    /// How many nodes there are.
    pub nodes: u32,
    /// How many nodes were rejected for each reason.
    pub rejections: Vec<(Rejection, u32)>,
    /// How many nodes have room and are only reserved for a group that has waited too long.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserved_only: u32,
    /// The claims that tie the pod, or one of the pods, to certain nodes, if nodes were rejected for that; at most
    /// three.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tied_claims: Vec<TiedClaim>,
}

/// A claim whose volume not all nodes can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TiedClaim {
    /// The claim, as namespace and name.
    pub claim: String,
    /// The volume that it is bound to.
    pub volume: Option<String>,
    /// The node for which its volume is being provisioned; empty if it is bound.
    pub selected_node: String,
    /// How many nodes can use it.
    pub nodes: u32,
    /// Some of them.
    pub examples: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Why a node was rejected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Rejection {
    /// The pod has another node name.
    NodeName,
    /// The node is cordoned.
    Unschedulable,
    /// The node has a taint that the pod does not tolerate.
    Taints,
    /// The node does not match the affinity that the scheduler's configuration adds.
    EnforcedAffinity,
    /// The node does not match the pod's selector or required affinity.
    NodeAffinity,
    /// A host port is in use.
    Ports,
    /// The node has as many pods as it can hold.
    TooManyPods,
    /// There is too little of a resource.
    Insufficient {
        /// The resource.
        resource: String,
    },
    /// A disk that the pod names is in use on the node.
    Disk,
    /// Another pod uses a `ReadWriteOncePod` claim of the pod.
    ReadWriteOncePod,
    /// The node has as many volumes attached as it can.
    VolumeLimit,
    /// The node does not have a CSI driver that its pods need.
    DriverMissing {
        /// The driver.
        driver: String,
    },
    /// A volume of the pod is not accessible from the node.
    VolumeAffinity,
    /// No volume matches a claim of the pod, and none can be provisioned.
    NoVolume,
    /// There is too little storage for a volume of the pod.
    NoStorage,
    /// A claim of the pod is bound to a volume that does not exist.
    VolumeMissing,
    /// A volume of the pod is in another zone.
    VolumeZone,
    /// The node violates a topology spread constraint.
    Spread,
    /// The node lacks the topology key of a topology spread constraint.
    SpreadLabel,
    /// The node does not match the pod's affinity to other pods.
    PodAffinity,
    /// The node does not match the pod's anti-affinity to other pods.
    PodAntiAffinity,
    /// The node does not match the anti-affinity of existing pods to the pod.
    ExistingPodAntiAffinity,
    /// The node does not declare a feature that the pod needs.
    Features,
    /// The node is reserved for a starving group.
    #[serde(rename = "Claimed")]
    Reserved,
    /// The node is not in the topology domain that comes closest.
    OtherDomain,
    /// The node has room for the pod, but its domain not for the part of the group that has to be there, or not for it
    /// beside the other parts.
    PartOfGroup,
    /// The node refused the bind recently.
    RefusedBind,
}

/// The node that came closest to having enough capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closest {
    /// The node.
    pub node: String,
    /// What it lacks for one more pod, in base units. Empty if it lacks something other than a resource.
    pub lacks: Vec<(String, i64)>,
    /// What else rejects the pod there.
    pub rejections: Vec<Rejection>,
}

/// By how much a group does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// An earlier start of the group is still valid, for the current minimum or another one. Otherwise earlier reports
    /// that it started no longer apply.
    pub started: bool,
    /// The minimum of the group; zero if it has none or has reached it before.
    pub minimum: u32,
    /// Members that are placed or succeeded.
    pub held: u32,
    /// Members that wait.
    pub waiting: u32,
    /// How many of them would fit now.
    pub would_fit: u32,
    /// Those that would not, by class, the hardest first; at most [`KINDS_MAX`].
    pub kinds: Vec<KindShortfall>,
    /// The required members fit, but the cluster has too little left for the `minResources` of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<ResourceGap>,
    /// The required members fit, but not pods that their owner creates later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later: Option<LaterGap>,
    /// The domain that came closest, if the members have to share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Box<DomainGap>>,
    /// What alone shows that members of different kinds do not fit together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Box<Bottleneck>>,
    /// How certain this is.
    pub proof: Proof,
    /// Why there was no preemption.
    pub preemption: Preemption,
}

/// What alone shows that the needed members of a group do not fit, wherever they are placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bottleneck {
    /// Members of some kinds fit fewer times than they are needed, even without the others.
    Places {
        /// What these members request, at most [`KINDS_MAX`].
        kinds: Vec<MemberKind>,
        /// How many of them fit.
        fit: u32,
        /// How many of them are needed.
        need: u32,
    },
    /// They request more of a resource than can be used: what is left on a node beside pods that fit there does not
    /// count.
    Resource {
        /// The resource.
        resource: String,
        /// What they request, in base units.
        asked: i64,
        /// What they can use of it on the nodes that they may use.
        usable: i64,
    },
    /// Members of these kinds do not fit together, for more than one resource.
    Mix {
        /// What these members request, at most [`KINDS_MAX`].
        kinds: Vec<MemberKind>,
        /// How many kinds there are.
        count: u32,
    },
}

/// What a member requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberKind {
    /// Its subset; empty if the group has none.
    pub subset: String,
    /// Resources with amounts in base units.
    pub requests: Vec<(String, i64)>,
}

/// The topology domain in which the most members of a group fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainGap {
    /// The label of which the members have to share the value.
    pub key: String,
    /// The values of the labels down to that one; empty if no node has them.
    pub path: Vec<String>,
    /// How many domains the group may use.
    pub domains: u32,
    /// Members that are placed decide which domain it is.
    pub held: bool,
    /// How many members are placed outside of it: labels have changed since.
    pub outside: u32,
    /// How many nodes lack one of the labels.
    pub without_label: u32,
    /// What the parts of the group lack, if they have to share domains or to be spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<PartsGap>,
    /// How many domains other groups have for themselves.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub closed: u32,
}

/// What the parts of a group lack in the domain that comes closest, or in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartsGap {
    /// Whether all parts have to be in one domain of the key of the gap.
    pub in_one_domain: bool,
    /// The slices, if there are any.
    pub slices: Option<SlicesGap>,
    /// The domains to spread over, if there are any.
    pub spread: Option<SpreadGap>,
}

/// Slices that do not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlicesGap {
    /// The label of which the members of a slice have to share the value.
    pub key: String,
    /// How many members that are.
    pub size: u32,
    /// How many slices are to be placed.
    pub needed: u32,
    /// How many fit.
    pub fit: u32,
    /// The most members for which one domain has room.
    pub largest: u32,
}

/// Domains to spread over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadGap {
    /// The label of the domains.
    pub key: String,
    /// At least so many.
    pub min: u32,
    /// At most so many.
    pub max: u32,
    /// How many are used or have room.
    pub with_room: u32,
}

/// A resource of which there is too little for the `minResources` of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGap {
    /// The resource.
    pub resource: String,
    /// The amount in `minResources`, in base units.
    pub asked: i64,
    /// What its placed members use or would use.
    pub taken: i64,
    /// What is free for other members on the nodes that it may use.
    pub left: i64,
    /// How much of that is needed by incomplete groups that started earlier.
    #[serde(default)]
    pub owed: i64,
}

/// Pods that an owner creates later, for which there is no room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaterGap {
    /// The group that they join.
    pub group: String,
    /// How many.
    pub pods: u32,
    /// How many of them would fit.
    pub fit: u32,
    /// Whether they run at the same time as the group.
    pub beside: bool,
}

/// The maximum number of classes in a shortfall.
pub const KINDS_MAX: usize = 3;

/// Members of one class that do not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindShortfall {
    /// Their subset; empty if the group has none.
    pub subset: String,
    /// How many.
    pub pods: u32,
    /// Why, with the other members in place.
    pub fit: FitError,
    /// The node that came closest.
    pub closest: Option<Closest>,
}

/// How certain it is that there is no placement.
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
        /// The pods are alike, but where one of them may be depends on where the others are.
        #[serde(default)]
        alike: bool,
    },
    /// Nodes that refused a bind recently were left out.
    NodesLeftOut,
}

/// The victims that an entity waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victims {
    /// An earlier start of the group is still valid.
    pub started: bool,
    /// How many more members the group needs; zero if it has its minimum, and for single pods.
    pub needed: u32,
    /// How many pods are evicted; zero if it only waits for pods that were leaving already.
    pub evicted: u32,
    /// How many units these are: single pods and whole groups.
    pub units: u32,
    /// How many of the units are whole groups.
    pub groups: u32,
    /// The highest priority among them.
    pub highest: Option<i32>,
    /// How many of them are evicted despite a disruption budget.
    #[serde(rename = "against_budgets")]
    pub pdb_violations: u32,
    /// Examples by name: groups, or pods that are evicted alone.
    pub examples: Vec<String>,
    /// It is proven that no cheaper set of victims exists.
    pub proven: bool,
    /// At least so many groups must be evicted whole, as far as that is proven.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub groups_at_least: u32,
    /// When the grace period of the last of them ends, if known.
    #[serde(rename = "gone_by_ms")]
    pub grace_period_ends_ms: Option<u64>,
    /// The time left until then when it was first known.
    pub within_ms: Option<u64>,
    /// Examples of those that should be gone by now.
    pub overdue: Vec<String>,
    /// One whose eviction fails, and the error.
    pub failing: Option<String>,
}

impl Victims {
    /// The sum of both.
    pub(crate) fn with(mut self, more: &Self) -> Self {
        self.evicted += more.evicted;
        self.units += more.units;
        self.groups += more.groups;
        self.highest = self.highest.max(more.highest);
        self.pdb_violations += more.pdb_violations;
        let room = EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(more.examples.iter().take(room).cloned());
        self.proven &= more.proven;
        self.groups_at_least = self.groups_at_least.max(more.groups_at_least);
        self
    }
}

/// The maximum number of victims that are named.
pub const EXAMPLES_MAX: usize = 3;

/// Why there was no preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preemption {
    /// Preemption was not considered.
    NotTried,
    /// Its preemption policy is `Never`.
    Never,
    /// No pod of a lower priority is in the way.
    #[serde(rename = "NobodyBelow")]
    NoLowerPriority,
    /// It would not even fit without all pods of a lower priority.
    NotEnough,
    /// Its members would fit, but not the `minResources` of the group.
    MinResources,
    /// Pods that come later would not fit beside the group.
    LaterPods,
    /// It has its minimum, and the configuration forbids to preempt for more.
    BeyondMinimum,
    /// No plan was found; there may be one.
    NotFound,
    /// It would violate a disruption budget.
    Budgets,
    /// Possible victims are spared for a while because their eviction was refused.
    Spared,
    /// It fits once upcoming nodes are ready.
    #[serde(rename = "NodesArriving")]
    UpcomingNodes {
        /// How many nodes are starting up.
        nodes: u32,
    },
    /// Preemption is delayed.
    Delayed {
        /// The delay.
        delay_ms: u64,
    },
    /// The victims of an earlier plan did not leave in time, and nothing more is evicted for a while.
    TimedOut {
        /// For how long.
        pause_ms: u64,
    },
}

impl Diagnosis {
    /// The reason of the group's condition.
    pub fn group_reason(&self) -> &'static str {
        match self {
            // In a group that has started only later members can wait: the group itself stays scheduled.
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
                | Waiting::TreeInvalid { .. }
                | Waiting::OtherPriority { .. }
                | Waiting::Former { .. }
                | Waiting::PodRefused { kind: RefusalKind::Reference | RefusalKind::Invalid, .. },
            ) => "Invalid",
            Self::Waiting(Waiting::Volumes { .. } | Waiting::PodRefused { kind: RefusalKind::Volume, .. }) => {
                "WaitingForVolumes"
            }
            Self::Waiting(_) => "WaitingForMembers",
            Self::PodUnschedulable { never: true, .. } => "NeverFits",
            Self::PodUnschedulable { .. } => "Unschedulable",
            Self::GroupUnschedulable(shortfall) => match shortfall.proof {
                Proof::Impossible => "Unschedulable",
                Proof::NeverFits => "NeverFits",
                Proof::NotFound { .. } | Proof::NodesLeftOut => "NotFoundWithinBudget",
            },
            Self::WaitingForVictims(_) => "WaitingForVictims",
            Self::BindFailed { .. } | Self::VolumeBindFailed { .. } => "SchedulerError",
            Self::TimedOut { .. } => "ScheduleTimeout",
            Self::Degraded { .. } => "Degraded",
        }
    }

    /// Whether it is reported at once. Waiting and losses are reported if they last; a refusal does not end by itself.
    pub fn is_urgent(&self) -> bool {
        match self {
            Self::Waiting(waiting) => matches!(waiting, Waiting::PodRefused { .. }),
            Self::Degraded { evicted, .. } => *evicted > 0,
            _ => true,
        }
    }

    /// Whether both refuse pods for the same reason: further pods of the same kind are not urgent.
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
