//! Groups: the one form of every dialect's gang.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

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
    /// 1 to `i32::MAX`; 0 only for the part without a name of an open group.
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

/// What a gang may do that fell below its minimum after it had started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DegradedPolicy {
    /// Lost members are replaced one by one.
    #[default]
    Replace,
    /// Nobody joins before all that is missing of the minimum can.
    Requorum,
    /// What is left of it is deleted, so that it starts anew as a whole.
    Evict,
}

/// When it is a group's turn, where its object decides that and not its oldest member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// When the object was made.
    pub created_ms: Millis,
    /// The UID of the object. Of two that were made at the same time the greater one goes first.
    pub uid: Arc<str>,
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
    /// What the whole group will need, where its members are not all there when it starts: base units by name.
    #[serde(default)]
    pub min_resources: BTreeMap<String, i64>,
    /// Groups of one family need their `min_resources` together, not each: those that come later take from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// What it may do when it has lost members.
    #[serde(default)]
    pub degraded_policy: DegradedPolicy,
    /// Whether pods that name a subset which it does not have are members all the same, of the part without a name.
    #[serde(default)]
    pub open: bool,
    /// When it is its turn; if `None`, when it is that of its oldest waiting member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Turn>,
    /// The group that this one is a part of.
    #[serde(default)]
    pub parent: Option<GroupKey>,
    /// What the API says of its past. Read when the object is first seen: it tells a gang that lost members
    /// from one whose start was cut short.
    #[serde(default)]
    pub history: History,
    /// Members that were made before this time are left over from an earlier group of the same name: they count for
    /// nothing, and are not placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members_since_ms: Option<Millis>,
    /// Which object it is, where another of its name is another group: what the former one reached is nothing to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
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
            family: None,
            degraded_policy: DegradedPolicy::default(),
            open: false,
            turn: None,
            parent: None,
            history: History::New,
            members_since_ms: None,
            incarnation: None,
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

/// The subset that a pod's reference means under these rules: by name, or the only one if it names none. In an open group
/// whoever is of no other part is of the one without a name.
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
    fn a_lone_subset_needs_no_name_and_several_do() {
        let subset = |name: &str| Subset { name: name.into(), min_member: 1 };
        assert_eq!(subset_of(&[subset("")], false, ""), Some(0));
        assert_eq!(subset_of(&[subset("ps")], false, ""), Some(0));
        assert_eq!(subset_of(&[subset("ps")], false, "worker"), None);
        assert_eq!(subset_of(&[subset("")], false, "worker"), None);
        assert_eq!(subset_of(&[subset("ps"), subset("worker")], false, ""), None);
        assert_eq!(subset_of(&[subset("ps"), subset("worker")], false, "worker"), Some(1));
    }

    #[test]
    fn an_open_group_takes_in_whoever_is_of_no_other_part() {
        let subset = |name: &str| Subset { name: name.into(), min_member: 1 };
        assert_eq!(subset_of(&[subset("")], true, "worker"), Some(0));
        assert_eq!(subset_of(&[subset("ps"), subset("")], true, "worker"), Some(1));
        assert_eq!(subset_of(&[subset("ps"), subset("")], true, "ps"), Some(0));
        assert_eq!(subset_of(&[subset("ps")], true, "worker"), None, "there is no part without a name");
    }

    #[test]
    fn keys_print_as_users_know_them() {
        let mut key = GroupKey { namespace: "ml".into(), name: "train/workers".into(), ..GroupKey::default() };
        assert_eq!(key.to_string(), "ml/train/workers");
        key.replica = "3".into();
        assert_eq!(key.to_string(), "ml/train/workers[3]");
    }
}
