//! Validation of the PodGroup and the Workload of 1.36, whose specs are immutable.
//!
//! Of the metadata only the name of a new object is checked; the rest is the same for all kinds and left to the server.
//! Must not depend on priority classes or on whether a template exists.

use super::{PodGroup, PodGroupSpec, PodGroupTemplate, TemplateReference, Workload, WorkloadSpec};
use crate::field_error::FieldError;
use crate::invalid::FieldPath;
use crate::native::Gates;
use crate::native::checks::{
    Errors, dns_label, dns_subdomain, immutable, is_unchanged, object_name, one_of, required_name, unique,
};
use crate::native::validate_status::validate_status;
use crate::native::validate_template::{Settings, WrittenMode};
use crate::native::validate_workload::MAX_TEMPLATES;
use crate::native::version::Release;

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
            release: Release::V1_36,
            is_template: false,
            scheduling_policy: &self.scheduling_policy,
            scheduling_constraints: self.scheduling_constraints.as_ref(),
            resource_claims: &self.resource_claims,
            disruption_mode: self.disruption_mode.as_deref().map(WrittenMode::Name),
            priority_class_name: &self.priority_class_name,
            priority: self.priority,
            preemption_policy: None,
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
            release: Release::V1_36,
            is_template: true,
            scheduling_policy: &self.scheduling_policy,
            scheduling_constraints: self.scheduling_constraints.as_ref(),
            resource_claims: &self.resource_claims,
            disruption_mode: self.disruption_mode.as_deref().map(WrittenMode::Name),
            priority_class_name: &self.priority_class_name,
            priority: self.priority,
            preemption_policy: None,
        };
        settings.validate(None, path, gates, errors);
    }
}
