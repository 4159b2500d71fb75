//! A group as its object defines it, without its priority.
//!
//! It becomes an engine group once the PriorityClasses are known. Must not depend on any dialect.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::group as written;
use muster_api::group_topology::{DomainPolicy, Topology, TopologyRule};
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::resources::list_in_base_units;
use muster_api::wire::Pod;
use muster_api::workload_tree::CompositeGroup;
use muster_engine::model::group::{DegradedPolicy, DisruptionMode, Policy, PreemptionPolicy, Subset};
use muster_engine::model::topology::{GroupTopology, LevelRule, WhenFull};

use super::group_error::GroupError;

/// The group that a group is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    /// Its dialect.
    pub(crate) origin: &'static str,
    /// Its name: in an object with several groups one of them, else the name of an object.
    pub(crate) group: String,
}

/// A group whose priority is not resolved yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParsedGroup {
    /// Its scheduling policy.
    pub(crate) policy: Policy,
    /// The group of groups that it is a part of.
    pub(crate) parent: Option<Parent>,
    /// Its priority fields.
    pub(crate) priority: PriorityField,
    /// Whether it may preempt, if it is set.
    pub(crate) preemption_policy: Option<PreemptionPolicy>,
    /// How it may be disrupted.
    pub(crate) disruption_mode: DisruptionMode,
    /// The timeout of a start, if it is set.
    pub(crate) schedule_timeout_ms: Option<u64>,
    /// The topology domains that its members share.
    pub(crate) topology: Option<Arc<GroupTopology>>,
    /// The resources that the whole group needs.
    pub(crate) min_resources: BTreeMap<String, i64>,
    /// The pods that its owner creates later, by what runs at the same time.
    pub(crate) later: Vec<Vec<ParsedLaterPods>>,
    /// What it may do when it has lost members.
    pub(crate) degraded_policy: DegradedPolicy,
    /// Whether pods of unknown subsets are members too.
    pub(crate) open: bool,
    /// Whether it is queued by the age of the object, not by that of its oldest pending member.
    pub(crate) ranked_by_object: bool,
}

/// Pods of one template that their owner creates later.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParsedLaterPods {
    /// The group that they join: in a Workload one of its groups, else the name of the group object.
    pub(crate) group: String,
    /// How many members it will have in all.
    pub(crate) count: u32,
    /// What each of them requires.
    pub(crate) pod: Arc<Pod>,
}

/// The priority fields of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PriorityField {
    /// Its PriorityClass.
    pub(crate) class: Option<String>,
    /// The priority value next to the class.
    pub(crate) number: Option<i32>,
    /// Who has written the value.
    pub(crate) number_by: NumberBy,
    /// The priority of a group without a class.
    pub(crate) without_class: WithoutClass,
}

impl PriorityField {
    /// The priority that the API server resolved when the object was created.
    pub(crate) fn number_by_server(&self) -> Option<i32> {
        self.number.filter(|_| self.number_by == NumberBy::Server)
    }
}

/// The priority of a group without a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutClass {
    /// That of the cluster's default class.
    Default,
    /// The priority that all members must share.
    SharedByMembers,
    /// The lowest priority of its members: the object cannot name a class.
    LowestMember,
}

/// Who has written the value of a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberBy {
    /// The API server, from the class when the object was created: it counts.
    Server,
    /// A user: an object whose value differs from the resolved priority is invalid.
    User,
}

impl ParsedGroup {
    /// A group with this policy and defaults otherwise.
    pub(crate) fn with_policy(policy: Policy, without_class: WithoutClass) -> Self {
        Self {
            policy,
            parent: None,
            priority: PriorityField { class: None, number: None, number_by: NumberBy::User, without_class },
            preemption_policy: None,
            disruption_mode: DisruptionMode::Pod,
            schedule_timeout_ms: None,
            topology: None,
            min_resources: BTreeMap::new(),
            later: Vec::new(),
            degraded_policy: DegradedPolicy::Replace,
            open: false,
            ranked_by_object: false,
        }
    }

    /// Sets another disruption mode than its fields have.
    pub(crate) fn set_disruption_mode(
        &mut self,
        mode: written::DisruptionMode,
        path: &FieldPath<'_>,
    ) -> Result<(), InvalidField> {
        if mode == written::DisruptionMode::PodGroup && matches!(self.policy, Policy::Basic { .. }) {
            return Err(path.invalid(mode.as_str(), "needs a gang policy"));
        }
        self.disruption_mode = disruption_mode(mode);
        Ok(())
    }

    /// A group of our own kinds. `path` is the path of its fields.
    pub(crate) fn of(group: &written::Group, path: &FieldPath<'_>) -> Result<Self, GroupError> {
        let min_resources = list_in_base_units(&group.min_resources, &path.child("minResources"))?;
        let subsets = matches!(group.policy, written::Policy::Subsets(_));
        Ok(Self {
            policy: policy(&group.policy),
            parent: None,
            priority: PriorityField {
                class: group.priority_class_name.clone(),
                number: group.priority,
                number_by: NumberBy::User,
                without_class: if subsets { WithoutClass::SharedByMembers } else { WithoutClass::Default },
            },
            preemption_policy: group.preemption_policy.map(preemption_policy),
            disruption_mode: disruption_mode(group.disruption_mode),
            schedule_timeout_ms: None,
            topology: topology(&group.topology, group.domain_policy),
            min_resources,
            later: Vec::new(),
            degraded_policy: match group.degraded_policy {
                written::DegradedPolicy::Replace => DegradedPolicy::Replace,
                written::DegradedPolicy::Requorum => DegradedPolicy::Requorum,
                written::DegradedPolicy::Evict => DegradedPolicy::Evict,
            },
            open: false,
            ranked_by_object: subsets,
        })
    }
}

impl ParsedGroup {
    /// A group of groups of our own kind.
    pub(crate) fn of_groups(group: &CompositeGroup, origin: &'static str) -> Self {
        let policy = Policy::Groups { min_groups: group.min_groups.unsigned_abs() };
        let mut parsed = Self {
            priority: PriorityField {
                class: group.priority_class_name.clone(),
                number: group.priority,
                number_by: NumberBy::User,
                without_class: WithoutClass::Default,
            },
            preemption_policy: group.preemption_policy.map(preemption_policy),
            disruption_mode: disruption_mode(group.disruption_mode),
            topology: topology(&group.topology, DomainPolicy::Wait),
            ..Self::with_policy(policy, WithoutClass::Default)
        };
        parsed.set_parent(group.parent.as_deref(), origin);
        parsed
    }

    /// Makes it a part of another group of the same object. Without a class it has the priority of that one.
    pub(crate) fn set_parent(&mut self, parent: Option<&str>, origin: &'static str) {
        let Some(parent) = parent else { return };
        self.parent = Some(Parent { origin, group: parent.to_owned() });
        if self.priority.class.is_none() {
            self.priority.without_class = WithoutClass::LowestMember;
        }
    }
}

fn preemption_policy(policy: written::PreemptionPolicy) -> PreemptionPolicy {
    match policy {
        written::PreemptionPolicy::Never => PreemptionPolicy::Never,
        written::PreemptionPolicy::PreemptLowerPriority => PreemptionPolicy::LowerPriority,
    }
}

fn topology(constraints: &[Topology], policy: DomainPolicy) -> Option<Arc<GroupTopology>> {
    let rule = |rule: TopologyRule| match rule {
        TopologyRule::Required { exclusive } => LevelRule::Required { exclusive },
        TopologyRule::Preferred => LevelRule::Preferred,
        TopologyRule::Slices { size, exclusive } => LevelRule::Slices { size, exclusive },
        TopologyRule::Spread { min, max } => LevelRule::Spread { min, max },
    };
    let topology = GroupTopology::of_rules(constraints.iter().map(|one| (one.key.clone(), rule(one.rule))))?;
    let when_full = match policy {
        DomainPolicy::Wait => WhenFull::Wait,
        DomainPolicy::Move => WhenFull::Move,
    };
    Some(Arc::new(GroupTopology { when_full, ..topology }))
}

fn disruption_mode(mode: written::DisruptionMode) -> DisruptionMode {
    match mode {
        written::DisruptionMode::Pod => DisruptionMode::Pod,
        written::DisruptionMode::PodGroup => DisruptionMode::Group,
    }
}

fn policy(policy: &written::Policy) -> Policy {
    // A validated count is from 1 to the largest i32.
    let count = |count: i32| count.unsigned_abs();
    match policy {
        written::Policy::Gang { min_count } => Policy::Gang { min_count: count(*min_count) },
        written::Policy::Basic { desired_count } => Policy::Basic { desired_count: desired_count.map(count) },
        written::Policy::Subsets(subsets) => Policy::Subsets(
            subsets
                .iter()
                .map(|subset| Subset { name: subset.name.clone(), min_member: count(subset.min_member) })
                .collect(),
        ),
    }
}
