//! Validation of our own Workload, `workloads.muster.dev`: valid specs and allowed changes.
//!
//! The rules are those of the CRD's schema, repeated for code paths where the schema is not applied.
//!
//! Invariant of a checked workload: it has 1 to 8 groups, and their names are unique DNS labels. Must not depend on
//! what fills in the priority, or on what the engine does.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::group::{Group, WrittenGroup, WrittenPolicy};
use crate::group_topology::WrittenTopology;
use crate::invalid::{FieldPath, InvalidField};
use crate::names::{check_dns_label, check_dns_subdomain, check_path_segment};
use crate::null::{is_default, null_is_default};
use crate::pod_group::{Settings, same_kind_of_policy, unchanged_settings};
use crate::workload_tree::{CompositeGroup, WrittenCompositeGroup, validate_tree};

/// The maximum number of groups of a workload.
pub const MAX_POD_GROUPS: usize = 8;
/// The maximum number of characters of the kind or the name in a reference.
pub const MAX_REFERENCE_LENGTH: usize = 253;

/// A workload's settings as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenWorkload {
    /// The object that owns the pods, such as a Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_ref: Option<WrittenControllerRef>,
    /// The groups of groups.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub composite_pod_groups: Vec<WrittenCompositeGroup>,
    /// The groups of pods.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_groups: Vec<WrittenWorkloadGroup>,
}

/// A reference to an object in the same namespace, as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenControllerRef {
    /// The API group; empty for the core.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub api_group: String,
    /// The kind.
    #[serde(deserialize_with = "null_is_default")]
    pub kind: String,
    /// The name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
}

/// A group inside a workload as written in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenWorkloadGroup {
    /// The name, by which pods join.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The composite group that it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// How members are placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<WrittenPolicy>,
    /// Whether members are evicted individually or together.
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
    /// Topology domains that members share.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub topology: Vec<WrittenTopology>,
    /// What happens when the domains of the running members have no room for another member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_policy: Option<String>,
}

/// A checked workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The object that owns the pods, if it is named.
    pub controller_ref: Option<WrittenControllerRef>,
    /// The groups with their names, in the order written.
    pub groups: Vec<(String, Group)>,
    /// The groups of groups with their names, in the order written.
    pub composite_groups: Vec<(String, CompositeGroup)>,
    /// The parents of the groups that have one, by name.
    pub parents: BTreeMap<String, String>,
}

/// Checks a new Workload's spec.
pub fn validate_workload(spec: &WrittenWorkload, path: &FieldPath<'_>) -> Result<Workload, InvalidField> {
    if let Some(reference) = &spec.controller_ref {
        reference.validate(&path.child("controllerRef"))?;
    }
    let whole = path;
    let path = path.child("podGroups");
    if spec.pod_groups.is_empty() || spec.pod_groups.len() > MAX_POD_GROUPS {
        let reason = format_args!("must have 1 to {MAX_POD_GROUPS} entries");
        return Err(path.invalid(&spec.pod_groups.len(), reason));
    }
    let mut names = BTreeSet::new();
    let mut groups = Vec::with_capacity(spec.pod_groups.len());
    for (index, one) in spec.pod_groups.iter().enumerate() {
        let path = path.index(index);
        check_dns_label(&one.name).map_err(|reason| path.child("name").invalid(&one.name, reason))?;
        if !names.insert(&one.name) {
            return Err(path.child("name").invalid(&one.name, "another group has this name"));
        }
        groups.push((one.name.clone(), one.validate(&path)?));
    }
    let composite_groups = validate_tree(spec, &groups, whole)?;
    let parents = spec.pod_groups.iter().filter_map(|one| Some((one.name.clone(), one.parent.clone()?))).collect();
    Ok(Workload { controller_ref: spec.controller_ref.clone(), groups, composite_groups, parents })
}

/// Checks an update of a Workload's spec.
pub fn validate_workload_update(
    spec: &WrittenWorkload,
    old: &WrittenWorkload,
    path: &FieldPath<'_>,
) -> Result<Workload, InvalidField> {
    let workload = validate_workload(spec, path)?;
    if old.controller_ref.is_some() && spec.controller_ref != old.controller_ref {
        let reason = "cannot be changed or removed once it is set";
        return Err(path.child("controllerRef").invalid(&spec.controller_ref, reason));
    }
    let composite = path.child("compositePodGroups");
    if spec.composite_pod_groups.len() != old.composite_pod_groups.len() {
        return Err(composite.invalid(&spec.composite_pod_groups.len(), "groups cannot be added or removed"));
    }
    for (index, one) in spec.composite_pod_groups.iter().enumerate() {
        let Some(old) = old.composite_pod_groups.iter().find(|old| old.name == one.name) else {
            return Err(composite.invalid(&one.name, "groups cannot be added or removed"));
        };
        one.unchanged(old, &composite.index(index))?;
    }
    let path = path.child("podGroups");
    if spec.pod_groups.len() != old.pod_groups.len() {
        return Err(path.invalid(&spec.pod_groups.len(), "groups cannot be added or removed"));
    }
    for (index, one) in spec.pod_groups.iter().enumerate() {
        let Some(old) = old.pod_groups.iter().find(|old| old.name == one.name) else {
            return Err(path.invalid(&one.name, "groups cannot be added or removed"));
        };
        one.unchanged(old, &path.index(index))?;
    }
    Ok(workload)
}

impl WrittenControllerRef {
    fn validate(&self, path: &FieldPath<'_>) -> Result<(), InvalidField> {
        if !self.api_group.is_empty() {
            check_dns_subdomain(&self.api_group)
                .map_err(|reason| path.child("apiGroup").invalid(&self.api_group, reason))?;
        }
        for (field, text) in [("kind", &self.kind), ("name", &self.name)] {
            check_path_segment(text, MAX_REFERENCE_LENGTH).map_err(|reason| path.child(field).invalid(text, reason))?;
        }
        Ok(())
    }
}

impl WrittenWorkloadGroup {
    fn validate(&self, path: &FieldPath<'_>) -> Result<Group, InvalidField> {
        if self.policy.is_none() {
            return Err(path.child("policy").invalid(&(), "must be set"));
        }
        let group = WrittenGroup {
            policy: self.policy.clone(),
            disruption_mode: self.disruption_mode.clone(),
            priority_class_name: self.priority_class_name.clone(),
            priority: self.priority.clone(),
            preemption_policy: self.preemption_policy.clone(),
            topology: self.topology.clone(),
            domain_policy: self.domain_policy.clone(),
            ..WrittenGroup::default()
        };
        group.validate(path)
    }

    fn settings(&self) -> Settings<'_> {
        Settings {
            disruption_mode: self.disruption_mode.as_deref(),
            priority_class_name: self.priority_class_name.as_deref(),
        }
    }

    /// Refuses changes of a group, except of its counts, and that the number of its priority may be corrected.
    fn unchanged(&self, old: &WrittenWorkloadGroup, path: &FieldPath<'_>) -> Result<(), InvalidField> {
        if self.parent != old.parent {
            return Err(path.child("parent").invalid(&self.parent, "cannot be changed"));
        }
        same_kind_of_policy(self.policy.as_ref(), old.policy.as_ref(), &path.child("policy"))?;
        if self.preemption_policy != old.preemption_policy {
            return Err(path.child("preemptionPolicy").invalid(&self.preemption_policy, "cannot be changed"));
        }
        if self.topology != old.topology {
            return Err(path.child("topology").invalid(&self.topology, "cannot be changed"));
        }
        if self.domain_policy.as_deref().unwrap_or("Wait") != old.domain_policy.as_deref().unwrap_or("Wait") {
            return Err(path.child("domainPolicy").invalid(&self.domain_policy, "cannot be changed"));
        }
        unchanged_settings(&self.settings(), &old.settings(), path)
    }
}
