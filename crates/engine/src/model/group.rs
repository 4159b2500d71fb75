//! Groups: the one form of every dialect's gang.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Millis;

/// Which group. Two dialects may use one name, so the origin is part of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupKey {
    /// The dialect and kind that define the group, as users know it.
    pub origin: String,
    /// The namespace.
    pub namespace: String,
    /// The name; groups inside a larger object are `object/group`.
    pub name: String,
    /// The replica, where one definition stands for many gangs.
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
    /// Whole or not at all: at least so many members at once.
    Gang {
        /// 1 to `i32::MAX`.
        min_count: u32,
    },
    /// As many as fit; the number is a hint that never blocks.
    Basic {
        /// How many members are expected in all.
        desired_count: Option<u32>,
    },
    /// Whole or not at all, with a minimum for each kind of member.
    Subsets(Vec<Subset>),
}

/// One kind of member and its minimum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subset {
    /// The name; may be empty if the group has only one subset.
    pub name: String,
    /// 1 to `i32::MAX`.
    pub min_member: u32,
}

/// Where a group's priority comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupPriority {
    /// The group has its own; members that differ do not change it.
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
    /// Only as a whole.
    Group,
}

/// Whether a group may take room from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreemptionPolicy {
    /// From those of lower priority.
    #[default]
    LowerPriority,
    /// From nobody.
    Never,
}

/// What the API says of a group's past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum History {
    /// It never started, as far as anybody knows.
    #[default]
    New,
    /// It started under its present minimum.
    Started,
    /// It started under another minimum than it has now.
    StartedOtherwise,
}

/// A demand or wish that the members share one value of a node label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyConstraint {
    /// The label's key.
    pub key: String,
    /// A demand, or else a wish.
    pub required: bool,
}

/// A group as it is observed.
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
    /// What its members' nodes must have in common.
    #[serde(default)]
    pub topology: Vec<TopologyConstraint>,
    /// How long a start may take from the first bind on before it is taken back; the default if `None`.
    #[serde(default)]
    pub schedule_timeout_ms: Option<Millis>,
    /// What the whole group will need, where its members are not all there at once.
    #[serde(default)]
    pub min_resources: BTreeMap<String, i64>,
    /// The group that this one is a part of.
    #[serde(default)]
    pub parent: Option<GroupKey>,
    /// What the API says of its past. Read when the object is first seen: it tells a gang that lost members
    /// from one whose start was cut short.
    #[serde(default)]
    pub history: History,
}

impl GroupSpec {
    /// A gang with a minimum and defaults for the rest.
    pub fn gang(key: GroupKey, min_count: u32) -> Self {
        Self::with_policy(key, Policy::Gang { min_count })
    }

    /// A group with this policy and defaults for the rest.
    pub fn with_policy(key: GroupKey, policy: Policy) -> Self {
        Self {
            key,
            policy,
            priority: GroupPriority::LowestMember,
            preemption_policy: PreemptionPolicy::default(),
            disruption_mode: DisruptionMode::default(),
            topology: Vec::new(),
            schedule_timeout_ms: None,
            min_resources: BTreeMap::new(),
            parent: None,
            history: History::New,
        }
    }

    /// The rules of the quorum, one per subset; a basic group has one with a minimum of zero.
    pub fn rules(&self) -> Vec<Subset> {
        let one = |min_member| vec![Subset { name: String::new(), min_member }];
        match &self.policy {
            Policy::Gang { min_count } => one(*min_count),
            Policy::Basic { .. } => one(0),
            Policy::Subsets(subsets) => subsets.clone(),
        }
    }
}

/// The subset that a pod's reference means under these rules: by name, or the only one if it names none.
pub fn subset_of(rules: &[Subset], named: &str) -> Option<usize> {
    match rules {
        [_] if named.is_empty() => Some(0),
        _ => rules.iter().position(|rule| rule.name == named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_subset_needs_no_name_and_several_do() {
        let subset = |name: &str| Subset { name: name.into(), min_member: 1 };
        assert_eq!(subset_of(&[subset("")], ""), Some(0));
        assert_eq!(subset_of(&[subset("ps")], ""), Some(0));
        assert_eq!(subset_of(&[subset("ps")], "worker"), None);
        assert_eq!(subset_of(&[subset("ps"), subset("worker")], ""), None);
        assert_eq!(subset_of(&[subset("ps"), subset("worker")], "worker"), Some(1));
    }

    #[test]
    fn keys_print_as_users_know_them() {
        let mut key = GroupKey { namespace: "ml".into(), name: "train/workers".into(), ..GroupKey::default() };
        assert_eq!(key.to_string(), "ml/train/workers");
        key.replica = "3".into();
        assert_eq!(key.to_string(), "ml/train/workers[3]");
    }
}
