//! The native CompositePodGroup of v1alpha3, a group of groups, and its validation: valid objects and allowed changes.
//!
//! Of the metadata only the name of a new object is checked; the rest is the same for all kinds and left to the server.
//! Must not depend on other objects.

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checks::{Errors, dns_label, dns_subdomain, immutable, object_name, required_name};
use super::gates::{Gates, set_default};
use super::pod_group::WorkloadReference;
use super::policy::{DisruptionMode, Empty, SchedulingConstraints};
use crate::field_error::FieldError;
use crate::invalid::FieldPath;
use crate::null::{is_default, null_is_default};
use crate::wire::condition::Condition;
use crate::wire::object::{Kind, Object};

/// A group of groups.
pub type CompositePodGroup = Object<CompositePodGroupKind>;

/// The kind `CompositePodGroup` of `scheduling.k8s.io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompositePodGroupKind;

impl Kind for CompositePodGroupKind {
    type Spec = CompositePodGroupSpec;
    type Status = CompositePodGroupStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::V1ALPHA3;
    const KIND: &'static str = "CompositePodGroup";
    const PLURAL: &'static str = "compositepodgroups";
}

/// The spec of a group of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CompositePodGroupSpec {
    /// The composite group it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_composite_pod_group_name: Option<String>,
    /// The template it was created from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadReference>,
    /// How many of its groups start together.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduling_policy: CompositeSchedulingPolicy,
    /// Topology constraints of all of its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_constraints: Option<SchedulingConstraints>,
    /// Whether all of its pods are evicted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption_mode: Option<DisruptionMode>,
    /// The priority class.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub priority_class_name: String,
    /// The value of that class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The preemption policy (gate `PodGroupPreemptionPolicy`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_policy: Option<String>,
}

/// How many groups start together: exactly one is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CompositeSchedulingPolicy {
    /// One by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic: Option<Empty>,
    /// All or nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<CompositeGangPolicy>,
}

/// All or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CompositeGangPolicy {
    /// The minimum number of groups.
    #[serde(deserialize_with = "null_is_default")]
    pub min_group_count: i32,
}

/// The status of a group of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CompositePodGroupStatus {
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}

/// Sets defaults of a CompositePodGroup.
pub fn set_composite_pod_group_defaults(object: &mut Value, gates: Gates) {
    set_default(object, "disruptionMode", json!({"single": {}}));
    if gates.pod_group_preemption_policy {
        set_default(object, "preemptionPolicy", json!("PreemptLowerPriority"));
    }
}

/// Checks a new CompositePodGroup, after defaults.
pub fn validate_composite_pod_group(group: &CompositePodGroup) -> Vec<FieldError> {
    let mut errors = Errors::new();
    object_name(group.metadata.name.as_deref(), &mut errors);
    group.spec.validate(&mut errors);
    errors
}

/// Checks an update of a CompositePodGroup, after defaults: its spec is immutable.
pub fn validate_composite_pod_group_update(group: &CompositePodGroup, old: &CompositePodGroup) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = FieldPath::Root("spec");
    immutable(&group.spec, Some(&old.spec), &path, &mut errors, CompositePodGroupSpec::validate);
    errors
}

impl CompositePodGroupSpec {
    fn validate(&self, errors: &mut Errors) {
        let path = FieldPath::Root("spec");
        if let Some(parent) = &self.parent_composite_pod_group_name {
            dns_subdomain(parent, &path.child("parentCompositePodGroupName"), errors);
        }
        let at = path.child("workloadRef");
        match &self.workload_ref {
            Some(reference) => {
                required_name(&reference.workload_name, &at.child("workloadName"), errors, dns_subdomain);
                required_name(&reference.template_name, &at.child("templateName"), errors, dns_label);
            }
            None => errors.push(FieldError::required(&at, "")),
        }
        self.validate_policy(&path.child("schedulingPolicy"), errors);
    }

    fn validate_policy(&self, path: &FieldPath<'_>, errors: &mut Errors) {
        match (&self.scheduling_policy.basic, &self.scheduling_policy.gang) {
            (Some(_), Some(_)) => {
                let members = "must specify exactly one of: `basic`, `gang`";
                errors.push(FieldError::invalid(path, &"{basic, gang}", members));
            }
            (None, None) => {
                errors.push(FieldError::invalid(path, &"", "must specify one of: `basic`, `gang`"));
            }
            (None, Some(gang)) if gang.min_group_count < 1 => {
                let at = path.child("gang");
                let at = at.child("minGroupCount");
                errors.push(FieldError::invalid(&at, &gang.min_group_count, "must be greater than or equal to 1"));
            }
            _ => {}
        }
    }
}
