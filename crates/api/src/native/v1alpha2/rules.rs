//! Validation of the PodGroup and the Workload of 1.36, whose specs are immutable.
//!
//! Of the metadata only the name of a new object is checked; the rest is the same for all kinds and left to the server.
//! Must not depend on priority classes or on whether a template exists.

use super::{
    DISRUPT_POD, DISRUPT_POD_GROUP, Gates, PodGroup, PodGroupSpec, PodGroupTemplate, TemplateReference, Workload,
    WorkloadSpec,
};
use crate::field_error::FieldError;
use crate::invalid::FieldPath;
use crate::native::checks::{
    Errors, dns_label, dns_subdomain, immutable, is_unchanged, object_name, one_of, required_name, unique,
};
use crate::native::policy::{ResourceClaim, SchedulingConstraints, SchedulingPolicy};
use crate::native::validate_status::{Release, validate_status};
use crate::native::validate_template::{
    MAX_RESOURCE_CLAIMS, validate_claims, validate_min_count, validate_priority, validate_topology,
};
use crate::native::validate_workload::MAX_TEMPLATES;

/// The known disruption modes, sorted.
const DISRUPTION_MODES: [&str; 2] = [DISRUPT_POD, DISRUPT_POD_GROUP];

const SPEC: FieldPath<'static> = FieldPath::Root("spec");

/// Checks a new PodGroup, after defaults; all errors in the server's order.
pub fn validate_pod_group(group: &PodGroup, gates: Gates) -> Vec<FieldError> {
    let mut errors = Errors::new();
    object_name(group.metadata.name.as_deref(), &mut errors);
    group.spec.validate(None, gates, &mut errors);
    errors
}

/// Checks an update of a PodGroup, after defaults.
pub fn validate_pod_group_update(group: &PodGroup, old: &PodGroup, gates: Gates) -> Vec<FieldError> {
    let mut errors = Errors::new();
    group.spec.validate(Some(&old.spec), gates, &mut errors);
    errors
}

/// Checks an update of a status. The spec is that of the stored object.
pub fn validate_pod_group_status_update(group: &PodGroup, old: &PodGroup) -> Vec<FieldError> {
    validate_status(&group.status, &old.status, &group.spec.resource_claims, Release::V1_36)
}

/// Checks a new Workload; all errors in the server's order.
pub fn validate_workload(workload: &Workload, gates: Gates) -> Vec<FieldError> {
    let mut errors = Errors::new();
    object_name(workload.metadata.name.as_deref(), &mut errors);
    workload.spec.validate(None, gates, &mut errors);
    errors
}

/// Checks an update of a Workload.
pub fn validate_workload_update(workload: &Workload, old: &Workload, gates: Gates) -> Vec<FieldError> {
    let mut errors = Errors::new();
    workload.spec.validate(Some(&old.spec), gates, &mut errors);
    errors
}

impl PodGroupSpec {
    fn validate(&self, old: Option<&PodGroupSpec>, gates: Gates, errors: &mut Errors) {
        let at = SPEC.child("podGroupTemplateRef");
        let old_reference = old.map(|old| &old.pod_group_template_ref);
        immutable(&self.pod_group_template_ref, old_reference, &at, errors, |reference, errors| {
            if let Some(reference) = reference {
                reference.validate(&at, errors);
            }
        });
        self.settings().validate(old.map(PodGroupSpec::settings).as_ref(), &SPEC, gates, errors);
    }

    fn settings(&self) -> Settings<'_> {
        Settings {
            is_template: false,
            scheduling_policy: &self.scheduling_policy,
            scheduling_constraints: self.scheduling_constraints.as_ref(),
            resource_claims: &self.resource_claims,
            disruption_mode: self.disruption_mode.as_deref(),
            priority_class_name: &self.priority_class_name,
            priority: self.priority,
        }
    }
}

impl TemplateReference {
    fn validate(&self, path: &FieldPath<'_>, errors: &mut Errors) {
        one_of(&[("workload", self.workload.is_some())], path, errors);
        if let Some(template) = &self.workload {
            let path = path.child("workload");
            required_name(&template.workload_name, &path.child("workloadName"), errors, dns_subdomain);
            required_name(&template.pod_group_template_name, &path.child("podGroupTemplateName"), errors, dns_label);
        }
    }
}

impl WorkloadSpec {
    fn validate(&self, old: Option<&WorkloadSpec>, gates: Gates, errors: &mut Errors) {
        let at = SPEC.child("controllerRef");
        immutable(&self.controller_ref, old.map(|old| &old.controller_ref), &at, errors, |reference, errors| {
            if let Some(reference) = reference {
                reference.validate(&at, errors);
            }
        });
        let list = &self.pod_group_templates;
        let old = old.map(|old| &old.pod_group_templates);
        if is_unchanged(list, old) {
            return;
        }
        let at = SPEC.child("podGroupTemplates");
        let before = errors.len();
        if old.is_some() {
            errors.push(FieldError::invalid(&at, &(), "field is immutable"));
        }
        if list.len() > MAX_TEMPLATES {
            errors.push(FieldError::too_many(&at, list.len(), MAX_TEMPLATES));
        }
        if list.is_empty() {
            errors.push(FieldError::required(&at, ""));
        }
        // A list that is refused as a whole is not checked further.
        if errors.len() > before {
            return;
        }
        unique(list, |template| &template.name, &at, errors);
        for (index, template) in list.iter().enumerate() {
            template.validate(&at.index(index), gates, errors);
        }
    }
}

impl PodGroupTemplate {
    /// Checks a template, which is always new: the list is immutable.
    fn validate(&self, path: &FieldPath<'_>, gates: Gates, errors: &mut Errors) {
        required_name(&self.name, &path.child("name"), errors, dns_label);
        let settings = Settings {
            is_template: true,
            scheduling_policy: &self.scheduling_policy,
            scheduling_constraints: self.scheduling_constraints.as_ref(),
            resource_claims: &self.resource_claims,
            disruption_mode: self.disruption_mode.as_deref(),
            priority_class_name: &self.priority_class_name,
            priority: self.priority,
        };
        settings.validate(None, path, gates, errors);
    }
}

/// The settings that a group and a template share.
#[derive(Clone, Copy)]
struct Settings<'a> {
    is_template: bool,
    scheduling_policy: &'a SchedulingPolicy,
    scheduling_constraints: Option<&'a SchedulingConstraints>,
    resource_claims: &'a [ResourceClaim],
    disruption_mode: Option<&'a str>,
    priority_class_name: &'a str,
    priority: Option<i32>,
}

impl Settings<'_> {
    /// Checks new settings, or an update of `old`.
    fn validate(&self, old: Option<&Settings<'_>>, path: &FieldPath<'_>, gates: Gates, errors: &mut Errors) {
        let at = path.child("schedulingPolicy");
        immutable(self.scheduling_policy, old.map(|old| old.scheduling_policy), &at, errors, |policy, errors| {
            one_of(&[("basic", policy.basic.is_some()), ("gang", policy.gang.is_some())], &at, errors);
            if let Some(gang) = &policy.gang {
                let at = at.child("gang");
                validate_min_count(gang, &at.child("minCount"), errors);
            }
        });
        let at = path.child("schedulingConstraints");
        let is_on = gates.topology_aware_workload_scheduling;
        let (new, before) = (&self.scheduling_constraints, old.map(|old| &old.scheduling_constraints));
        gated_and_immutable((new, before), (is_on, new.is_some()), &at, errors, |constraints, errors| {
            if let Some(constraints) = constraints {
                validate_topology(constraints, &at.child("topology"), errors);
            }
        });
        let at = path.child("resourceClaims");
        let old_claims = old.map(|old| old.resource_claims);
        immutable(self.resource_claims, old_claims, &at, errors, |claims, errors| validate_claims(claims, &at, errors));
        // A changed list that is too long gets both errors.
        if !is_unchanged(self.resource_claims, old_claims) && self.resource_claims.len() > MAX_RESOURCE_CLAIMS {
            errors.push(FieldError::too_many(&at, self.resource_claims.len(), MAX_RESOURCE_CLAIMS));
        }
        self.validate_preemption(old, path, gates, errors);
    }

    fn validate_preemption(&self, old: Option<&Settings<'_>>, path: &FieldPath<'_>, gates: Gates, errors: &mut Errors) {
        let is_on = gates.workload_aware_preemption;
        let at = path.child("disruptionMode");
        let (new, before) = (&self.disruption_mode, old.map(|old| &old.disruption_mode));
        // On groups it is set by defaulting.
        if is_on && !self.is_template && new.is_none() && !is_unchanged(new, before) {
            errors.push(FieldError::required(&at, ""));
        }
        gated_and_immutable((new, before), (is_on, new.is_some()), &at, errors, |mode, errors| {
            if let Some(mode) = mode.filter(|mode| !DISRUPTION_MODES.contains(mode)) {
                errors.push(FieldError::not_supported(&at, mode, &DISRUPTION_MODES));
            }
        });
        let at = path.child("priorityClassName");
        let (new, before) = (self.priority_class_name, old.map(|old| old.priority_class_name));
        gated_and_immutable((new, before), (is_on, !new.is_empty()), &at, errors, |name, errors| {
            if !name.is_empty() {
                dns_subdomain(name, &at, errors);
            }
        });
        let at = path.child("priority");
        let (new, before) = (&self.priority, old.map(|old| &old.priority));
        gated_and_immutable((new, before), (is_on, new.is_some()), &at, errors, |priority, errors| {
            validate_priority(*priority, &at, errors);
        });
    }
}

/// A field with a gate: while the gate is off the field is forbidden but may be removed; while it is on the field is
/// immutable.
fn gated_and_immutable<T: PartialEq + ?Sized>(
    (new, old): (&T, Option<&T>),
    (is_on, is_set): (bool, bool),
    path: &FieldPath<'_>,
    errors: &mut Errors,
    check: impl FnOnce(&T, &mut Errors),
) {
    if is_unchanged(new, old) {
        return;
    }
    if is_on {
        immutable(new, old, path, errors, check);
    } else if is_set {
        errors.push(FieldError::forbidden(path, ""));
    }
}
