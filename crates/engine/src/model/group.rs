//! Pod groups: the common form that the groups of all dialects are translated to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Millis;
use super::class::ClassSpec;
use super::topology::{GroupTopology, as_list};
use super::tree::GroupTree;

/// The identity of a group. Two dialects may use the same name, so the origin is part of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupKey {
    /// The dialect and kind that define the group, as users know it.
    pub origin: String,
    /// The namespace.
    pub namespace: String,
    /// The name; groups inside a larger object are `object/group`.
    pub name: String,
    /// The replica, where one definition stands for several gangs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub replica: String,
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)?;
        if self.replica.is_empty() { Ok(()) } else { write!(f, "[{}]", self.replica) }
    }
}

/// How a group starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// All or nothing: at least this many members at once.
    Gang {
        /// 1 to `i32::MAX`.
        min_count: u32,
    },
    /// No minimum: as many members as fit; the number is a hint that never blocks.
    Basic {
        /// How many members are expected in all.
        desired_count: Option<u32>,
    },
    /// All or nothing, with a minimum for each kind of member.
    Subsets(Vec<Subset>),
    /// Its members are groups: so many of them at least. Together they are a tree.
    Groups {
        /// 1 to `i32::MAX`.
        min_groups: u32,
    },
    /// All or nothing, the root of a tree of groups: its leaves are the subsets.
    Tree(Arc<GroupTree>),
}

impl Policy {
    /// The quorum rules, one per subset; a basic group has one with a minimum of zero.
    pub fn rules(&self) -> Vec<Subset> {
        let one = |min_member| vec![Subset { name: String::new(), min_member }];
        match self {
            Self::Gang { min_count } => one(*min_count),
            Self::Basic { .. } | Self::Groups { .. } => one(0),
            Self::Subsets(subsets) => subsets.clone(),
            Self::Tree(tree) => tree.rules(),
        }
    }

    /// The tree, if it is the root of one.
    pub fn tree(&self) -> Option<&Arc<GroupTree>> {
        if let Self::Tree(tree) = self { Some(tree) } else { None }
    }
}

/// One kind of member and its minimum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subset {
    /// The name; may be empty if the group has only one subset.
    pub name: String,
    /// 1 to `i32::MAX`; 0 only for the unnamed subset of an open group.
    pub min_member: u32,
}

/// Where a group's priority comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupPriority {
    /// The group's own priority; those of its members do not change it.
    Own(i32),
    /// The lowest priority among its members.
    LowestMember,
    /// The one priority that all members share; a member that differs from the oldest is left out.
    SharedByMembers,
}

/// How a group may be disrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisruptionMode {
    /// Pod by pod.
    #[default]
    Pod,
    /// Only all members together.
    Group,
}

/// Whether a group may preempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreemptionPolicy {
    /// It may preempt pods and groups of lower priority.
    #[default]
    LowerPriority,
    /// It never preempts.
    Never,
}

/// The start of a group as the API has recorded it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenStart")]
pub enum RecordedStart {
    /// No start is recorded.
    #[default]
    #[serde(rename = "New")]
    None,
    /// The rest of it was deleted after it had lost members: it starts again as a whole.
    GivenUp,
    /// It was confirmed.
    Confirmed {
        /// With this minimum in each subset; `None` if that is not known.
        minimum: Option<Vec<Subset>>,
        /// When it was decided; `None` if that is not known. Members that are stamped with a later start do not belong
        /// to it.
        decided_ms: Option<Millis>,
    },
}

/// A recorded start as recordings of this and of earlier versions have it.
#[derive(Deserialize)]
enum WrittenStart {
    New,
    /// Earlier versions did not say with which minimum.
    #[serde(alias = "StartedOtherwise")]
    Started,
    GivenUp,
    Confirmed {
        minimum: Option<Vec<Subset>>,
        decided_ms: Option<Millis>,
    },
}

impl From<WrittenStart> for RecordedStart {
    fn from(written: WrittenStart) -> Self {
        match written {
            WrittenStart::New => Self::None,
            WrittenStart::Started => Self::Confirmed { minimum: None, decided_ms: None },
            WrittenStart::GivenUp => Self::GivenUp,
            WrittenStart::Confirmed { minimum, decided_ms } => Self::Confirmed { minimum, decided_ms },
        }
    }
}

/// How a gang that fell below its minimum after its start is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DegradedPolicy {
    /// Lost members are replaced one by one.
    #[default]
    Replace,
    /// No member is placed before all that are missing from the minimum can be.
    Requorum,
    /// The remaining members are deleted, so that the gang starts again as a whole.
    Evict,
}

/// The queue position of a group, where its object determines it and not its oldest member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePosition {
    /// When the object was created.
    pub created_ms: Millis,
    /// The UID of the object. Of two objects created at the same time, the one with the greater UID goes first.
    pub uid: Arc<str>,
}

/// Pods of one template that their owner creates when others run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaterPods {
    /// The group that they join.
    pub group: GroupKey,
    /// How many members it will have in all, those that exist already included.
    pub count: u32,
    /// What each of them requires.
    pub class: Arc<ClassSpec>,
}

/// A group as observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// Which group.
    pub key: GroupKey,
    /// How it starts.
    pub policy: Policy,
    /// Where its priority comes from.
    pub priority: GroupPriority,
    /// Whether it may preempt.
    #[serde(default)]
    pub preemption_policy: PreemptionPolicy,
    /// How it may be disrupted.
    #[serde(default)]
    pub disruption_mode: DisruptionMode,
    /// The topology domains that its members share.
    #[serde(default, with = "as_list")]
    pub topology: Option<Arc<GroupTopology>>,
    /// How long a start may take from the first bind until it is rolled back; the default if `None`.
    #[serde(default)]
    pub schedule_timeout_ms: Option<Millis>,
    /// The total resources of the group, where not all members exist when it starts: base units by name.
    #[serde(default)]
    pub min_resources: BTreeMap<String, i64>,
    /// Pods that exist only after others run, by what runs at the same time. Groups that start one after another have
    /// the
    /// same list, each of them is in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<Vec<LaterPods>>,
    /// The declared cost of evicting it, compared with that of units of the same namespace and priority.
    #[serde(default)]
    pub preemption_cost: i32,
    /// How the group is treated after it lost members.
    #[serde(default)]
    pub degraded_policy: DegradedPolicy,
    /// Whether pods that name an unknown subset are members of the unnamed subset.
    #[serde(default)]
    pub open: bool,
    /// Its queue position; if `None`, that of its oldest pending member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "turn")]
    pub queue_position: Option<QueuePosition>,
    /// The parent group that it waits for: until then it is not known which tree it is a part of, and it is not
    /// scheduled.
    #[serde(default)]
    pub parent: Option<GroupKey>,
    /// When the object was created: of the groups of one parent, the oldest is tried first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub created_ms: Millis,
    /// The recorded start. Read when the object is first seen: it distinguishes a gang that lost members from one whose
    /// start was interrupted.
    #[serde(default, rename = "history")]
    pub recorded: RecordedStart,
    /// Members created before this time belong to an earlier group of the same name: they are neither counted nor
    /// placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members_since_ms: Option<Millis>,
    /// The UID of the owner that it was made for. Under another owner it is another group, for which the start of the
    /// former one does not count; nor do members that say that they are of another owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The UID of the object: binds are stamped with it. Empty if it is not known; then a start cannot be recognised
    /// after a restart.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl GroupSpec {
    /// A gang with a minimum and defaults for all other fields.
    pub fn gang(key: GroupKey, min_count: u32) -> Self {
        Self::with_policy(key, Policy::Gang { min_count })
    }

    /// A group with this policy and defaults for all other fields.
    pub fn with_policy(key: GroupKey, policy: Policy) -> Self {
        Self {
            key,
            policy,
            priority: GroupPriority::LowestMember,
            preemption_policy: PreemptionPolicy::default(),
            disruption_mode: DisruptionMode::default(),
            topology: None,
            schedule_timeout_ms: None,
            min_resources: BTreeMap::new(),
            later: Vec::new(),
            preemption_cost: 0,
            degraded_policy: DegradedPolicy::default(),
            open: false,
            queue_position: None,
            parent: None,
            created_ms: 0,
            recorded: RecordedStart::None,
            members_since_ms: None,
            owner: None,
            uid: String::new(),
        }
    }

    /// The quorum rules of its policy.
    pub fn rules(&self) -> Vec<Subset> {
        self.policy.rules()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &Millis) -> bool {
    *number == 0
}

/// The sum of the minimums.
pub fn total_minimum(rules: &[Subset]) -> u32 {
    rules.iter().fold(0, |sum: u32, rule| sum.saturating_add(rule.min_member))
}

/// The index of the subset that a pod belongs to under these rules: by name, or the only subset if the pod names none.
/// In an open group, pods that match no named subset belong to the unnamed one.
pub fn subset_of(rules: &[Subset], open: bool, named: &str) -> Option<usize> {
    match rules {
        [_] if named.is_empty() => Some(0),
        _ => {
            let of_name = |name: &str| rules.iter().position(|rule| rule.name == name);
            of_name(named).or_else(|| of_name("").filter(|_| open))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_subset_needs_no_name_and_several_do() {
        let subset = |name: &str| Subset { name: name.into(), min_member: 1 };
        assert_eq!(subset_of(&[subset("")], false, ""), Some(0));
        assert_eq!(subset_of(&[subset("ps")], false, ""), Some(0));
        assert_eq!(subset_of(&[subset("ps")], false, "worker"), None);
        assert_eq!(subset_of(&[subset("")], false, "worker"), None);
        assert_eq!(subset_of(&[subset("ps"), subset("worker")], false, ""), None);
        assert_eq!(subset_of(&[subset("ps"), subset("worker")], false, "worker"), Some(1));
    }

    #[test]
    fn open_group_assigns_unknown_subsets_to_the_unnamed_one() {
        let subset = |name: &str| Subset { name: name.into(), min_member: 1 };
        assert_eq!(subset_of(&[subset("")], true, "worker"), Some(0));
        assert_eq!(subset_of(&[subset("ps"), subset("")], true, "worker"), Some(1));
        assert_eq!(subset_of(&[subset("ps"), subset("")], true, "ps"), Some(0));
        assert_eq!(subset_of(&[subset("ps")], true, "worker"), None, "there is no unnamed subset");
    }

    #[test]
    fn keys_print_namespace_name_and_replica() {
        let mut key = GroupKey { namespace: "ml".into(), name: "train/workers".into(), ..GroupKey::default() };
        assert_eq!(key.to_string(), "ml/train/workers");
        key.replica = "3".into();
        assert_eq!(key.to_string(), "ml/train/workers[3]");
    }
}
