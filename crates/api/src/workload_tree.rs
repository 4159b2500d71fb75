//! Groups of groups in our own Workload: its composite groups, and which tree every group is a part of.
//!
//! Invariant of checked groups: every parent is a composite group of the same object, no tree has more than
//! [`DEPTH_MAX`] levels, and every composite group has enough children for its minimum. Must not depend on what
//! the engine does.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::group::{
    DisruptionMode, Group, Policy, PreemptionPolicy, count, preemption_policy, priority, priority_class_name,
};
use crate::group_topology::{DomainPolicy, Topology, TopologyRule, WrittenTopology, topology};
use crate::invalid::{FieldPath, InvalidField};
use crate::names::check_dns_label;
use crate::null::{is_default, null_is_default};
use crate::workload::{MAX_POD_GROUPS, WrittenWorkload};

/// The maximum number of levels, the groups of pods included.
pub const DEPTH_MAX: usize = 4;

/// A group of groups as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenCompositeGroup {
    /// The name, which no other group of the object has.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The composite group that it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// How many of its groups have to start together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<WrittenCompositePolicy>,
    /// Whether all of its pods are evicted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption_mode: Option<String>,
    /// The priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// The value of that class. It is filled in, not chosen.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: Value,
    /// The preemption policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_policy: Option<String>,
    /// Topology domains that all of its pods share.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub topology: Vec<WrittenTopology>,
}

/// The policy of a group of groups as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenCompositePolicy {
    /// A minimum number of groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<WrittenCompositeGang>,
    /// Each group as it fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic: Option<crate::native::policy::Empty>,
}

/// A minimum number of groups as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenCompositeGang {
    /// How many groups have to start together.
    #[serde(skip_serializing_if = "is_default")]
    pub min_group_count: Value,
}

/// A checked group of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompositeGroup {
    /// The composite group that it is a part of.
    pub parent: Option<String>,
    /// How many of its groups it needs; a basic one needs one.
    pub min_groups: i32,
    /// Whether all of its pods are evicted together.
    pub disruption_mode: DisruptionMode,
    /// The priority class, if it names one.
    pub priority_class_name: Option<String>,
    /// The priority in the spec.
    pub priority: Option<i32>,
    /// The preemption policy, if it is set.
    pub preemption_policy: Option<PreemptionPolicy>,
    /// The topology domains that all of its pods share, in the order written.
    pub topology: Vec<Topology>,
}

impl WrittenCompositeGroup {
    fn validate(&self, path: &FieldPath<'_>) -> Result<CompositeGroup, InvalidField> {
        check_dns_label(&self.name).map_err(|reason| path.child("name").invalid(&self.name, reason))?;
        let mode = self.disruption_mode.as_deref();
        let mode = mode.map(|mode| DisruptionMode::read(mode, &path.child("disruptionMode"))).transpose()?;
        let preemption = preemption_policy(self.preemption_policy.as_deref(), &path.child("preemptionPolicy"))?;
        only_at_the_root(self.parent.as_deref(), self.preemption_policy.as_deref(), path)?;
        Ok(CompositeGroup {
            parent: self.parent.clone(),
            min_groups: self.min_groups(&path.child("policy"))?,
            disruption_mode: mode.unwrap_or_default(),
            priority_class_name: priority_class_name(
                self.priority_class_name.as_deref(),
                &path.child("priorityClassName"),
            )?,
            priority: priority(&self.priority, &path.child("priority"))?,
            preemption_policy: preemption,
            topology: domains_of_all(topology(&self.topology, &path.child("topology"))?, path)?,
        })
    }

    fn min_groups(&self, path: &FieldPath<'_>) -> Result<i32, InvalidField> {
        let Some(policy) = &self.policy else { return Err(path.invalid(&(), "must be set")) };
        match (&policy.gang, &policy.basic) {
            (Some(gang), None) => count(&gang.min_group_count, &path.child("gang").child("minGroupCount")),
            (None, Some(_)) => Ok(1),
            (None, None) => Err(path.invalid(&(), "one of gang and basic must be set")),
            (Some(_), Some(_)) => Err(path.invalid(&["gang", "basic"], "only one of gang and basic may be set")),
        }
    }

    /// Refuses changes, except of the minimum and of topology, and that the number of its priority may be corrected.
    pub(crate) fn unchanged(&self, old: &Self, path: &FieldPath<'_>) -> Result<(), InvalidField> {
        let is_gang = |group: &Self| group.policy.as_ref().is_some_and(|policy| policy.gang.is_some());
        let mode = |group: &Self| group.disruption_mode.clone().unwrap_or_else(|| "Pod".to_owned());
        let class = |group: &Self| group.priority_class_name.clone().unwrap_or_default();
        if self.parent != old.parent {
            return Err(path.child("parent").invalid(&self.parent, "cannot be changed"));
        }
        if is_gang(self) != is_gang(old) {
            let kind = if is_gang(self) { "gang" } else { "basic" };
            return Err(path.child("policy").invalid(kind, "the kind of policy cannot be changed"));
        }
        if mode(self) != mode(old) {
            return Err(path.child("disruptionMode").invalid(&self.disruption_mode, "cannot be changed"));
        }
        if class(self) != class(old) {
            return Err(path.child("priorityClassName").invalid(&self.priority_class_name, "cannot be changed"));
        }
        if self.preemption_policy != old.preemption_policy {
            return Err(path.child("preemptionPolicy").invalid(&self.preemption_policy, "cannot be changed"));
        }
        Ok(())
    }
}

/// A group of a tree keeps to domains that all of its pods share, or prefers one.
fn domains_of_all(topology: Vec<Topology>, path: &FieldPath<'_>) -> Result<Vec<Topology>, InvalidField> {
    for (index, one) in topology.iter().enumerate() {
        let list = path.child("topology");
        let at = list.index(index);
        match one.rule {
            TopologyRule::Required { exclusive: false } | TopologyRule::Preferred => {}
            TopologyRule::Required { exclusive: true } => {
                return Err(at.child("exclusive").invalid(&true, "is not supported in a group of a tree"));
            }
            TopologyRule::Slices { .. } | TopologyRule::Spread { .. } => {
                let mode = one.written().mode;
                return Err(at.child("mode").invalid(&mode, "a group of a tree has Required or Preferred"));
            }
        }
    }
    Ok(topology)
}

/// Only the root of a tree preempts, for all of it.
fn only_at_the_root(parent: Option<&str>, policy: Option<&str>, path: &FieldPath<'_>) -> Result<(), InvalidField> {
    match policy.filter(|_| parent.is_some()) {
        Some(policy) => {
            let reason = "only a group without a parent has one: it preempts for its whole tree";
            Err(path.child("preemptionPolicy").invalid(policy, reason))
        }
        None => Ok(()),
    }
}

/// Checks the composite groups of a Workload and the parents of all of its groups. `groups` are its groups of pods.
pub(crate) fn validate_tree(
    spec: &WrittenWorkload,
    groups: &[(String, Group)],
    path: &FieldPath<'_>,
) -> Result<Vec<(String, CompositeGroup)>, InvalidField> {
    let list = path.child("compositePodGroups");
    if spec.composite_pod_groups.len() > MAX_POD_GROUPS {
        let reason = format_args!("must have at most {MAX_POD_GROUPS} entries");
        return Err(list.invalid(&spec.composite_pod_groups.len(), reason));
    }
    let mut names: BTreeSet<&str> = groups.iter().map(|(name, _)| name.as_str()).collect();
    let mut composite = Vec::new();
    for (index, one) in spec.composite_pod_groups.iter().enumerate() {
        let path = list.index(index);
        let checked = one.validate(&path)?;
        if !names.insert(&one.name) {
            return Err(path.child("name").invalid(&one.name, "another group has this name"));
        }
        composite.push((one.name.clone(), checked));
    }
    let parents: BTreeMap<&str, Option<&str>> =
        composite.iter().map(|(name, group)| (name.as_str(), group.parent.as_deref())).collect();
    for (index, one) in spec.pod_groups.iter().enumerate() {
        let list = path.child("podGroups");
        let path = list.index(index);
        check_parent(one.parent.as_deref(), &parents, 1, &path)?;
        only_at_the_root(one.parent.as_deref(), one.preemption_policy.as_deref(), &path)?;
        if one.parent.is_some() {
            let group = &groups[index].1;
            domains_of_all(group.topology.clone(), &path)?;
            if group.domain_policy == DomainPolicy::Move {
                return Err(path.child("domainPolicy").invalid("Move", "is not supported in a group of a tree"));
            }
        }
        if let (Some(_), Policy::Basic { desired_count: Some(desired) }) = (&one.parent, &groups[index].1.policy) {
            let (policy, reason) = (path.child("policy"), "has no effect in a group with a parent");
            return Err(policy.child("basic").child("desiredCount").invalid(desired, reason));
        }
    }
    for (index, (name, group)) in composite.iter().enumerate() {
        let path = list.index(index);
        check_parent(group.parent.as_deref(), &parents, 2, &path)?;
        let of_pods = spec.pod_groups.iter().filter(|one| one.parent.as_ref() == Some(name)).count();
        let children = of_pods + composite.iter().filter(|(_, one)| one.parent.as_ref() == Some(name)).count();
        if children == 0 {
            return Err(path.child("name").invalid(name, "no group has this parent"));
        }
        if group.min_groups as usize > children {
            let (policy, reason) = (path.child("policy"), format!("only {children} groups have this parent"));
            return Err(policy.child("gang").child("minGroupCount").invalid(&group.min_groups, reason));
        }
    }
    Ok(composite)
}

/// Checks that a parent exists and that there are not too many levels. `levels` is how many there are from the group
/// down.
fn check_parent(
    parent: Option<&str>,
    parents: &BTreeMap<&str, Option<&str>>,
    levels: usize,
    path: &FieldPath<'_>,
) -> Result<(), InvalidField> {
    let path = path.child("parent");
    let (mut at, mut depth) = (parent, levels);
    while let Some(name) = at {
        let Some(above) = parents.get(name) else {
            return Err(path.invalid(&parent, "there is no such composite group"));
        };
        depth += 1;
        if depth > DEPTH_MAX {
            let reason = format_args!("a tree has at most {DEPTH_MAX} levels, and no group is its own ancestor");
            return Err(path.invalid(&parent, reason));
        }
        at = *above;
    }
    Ok(())
}
