//! Validation of the native Workload: valid objects and allowed changes.
//!
//! Of the metadata only the name of a new object is checked; the rest is the same for all kinds and left to the server.
//! Must not depend on priority classes or on the groups created from templates.

use super::checks::{
    Errors, dns_label, dns_subdomain, immutable, is_unchanged, object_name, one_of, path_segment, required_name, unique,
};
use super::gates::Gates;
use super::validate_template::{Settings, WrittenMode};
use super::version::Release;
use super::workload::{ControllerReference, PodGroupTemplate, Workload, WorkloadSpec};
use crate::field_error::FieldError;
use crate::invalid::FieldPath;

/// The maximum number of templates of a Workload.
pub(super) const MAX_TEMPLATES: usize = 8;

const SPEC: FieldPath<'static> = FieldPath::Root("spec");

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

impl WorkloadSpec {
    fn validate(&self, old: Option<&WorkloadSpec>, gates: Gates, errors: &mut Errors) {
        self.validate_priorities(errors);
        if is_unchanged(self, old) {
            return;
        }
        let is_set = |spec: &WorkloadSpec| !spec.pod_group_templates.is_empty();
        if old.map(is_set) != Some(is_set(self)) {
            // The other member is disabled, so it is never set; the server names it anyway.
            one_of(&[("podGroupTemplates", is_set(self)), ("compositePodGroupTemplates", false)], &SPEC, errors);
        }
        let at = SPEC.child("controllerRef");
        immutable(&self.controller_ref, old.map(|old| &old.controller_ref), &at, errors, |reference, errors| {
            if let Some(reference) = reference {
                reference.validate(&at, errors);
            }
        });
        let old = old.map(|old| old.pod_group_templates.as_slice());
        validate_templates(&self.pod_group_templates, old, &SPEC.child("podGroupTemplates"), gates, errors);
    }

    /// All templates must have the same priority and class. Checked in every update.
    fn validate_priorities(&self, errors: &mut Errors) {
        let mut priorities = self.pod_group_templates.iter().map(|one| (&one.priority_class_name, one.priority));
        if let Some(first) = priorities.next()
            && priorities.any(|other| other != first)
        {
            errors.push(FieldError::invalid(&SPEC, &(), "detected multiple priority configurations"));
        }
    }
}

impl ControllerReference {
    pub(super) fn validate(&self, path: &FieldPath<'_>, errors: &mut Errors) {
        if !self.api_group.is_empty() {
            dns_subdomain(&self.api_group, &path.child("apiGroup"), errors);
        }
        required_name(&self.kind, &path.child("kind"), errors, path_segment);
        required_name(&self.name, &path.child("name"), errors, path_segment);
    }
}

fn validate_templates(
    list: &[PodGroupTemplate],
    old: Option<&[PodGroupTemplate]>,
    path: &FieldPath<'_>,
    gates: Gates,
    errors: &mut Errors,
) {
    if is_unchanged(list, old) {
        return;
    }
    let before = errors.len();
    if list.len() > MAX_TEMPLATES {
        errors.push(FieldError::too_many(path, list.len(), MAX_TEMPLATES));
    }
    if let Some(old) = old {
        let has = |list: &[PodGroupTemplate], name: &str| list.iter().any(|one| one.name == name);
        for (index, _) in list.iter().enumerate().filter(|(_, one)| !has(old, &one.name)) {
            errors.push(FieldError::forbidden(&path.index(index), "item may not be added"));
        }
        for _ in old.iter().filter(|one| !has(list, &one.name)) {
            errors.push(FieldError::forbidden(path, "item may not be removed"));
        }
    }
    // A list of invalid length or with other entries is not checked further.
    if errors.len() > before {
        return;
    }
    unique(list, |template| &template.name, path, errors);
    for (index, template) in list.iter().enumerate() {
        let old = old.and_then(|old| old.iter().find(|old| old.name == template.name));
        if !is_unchanged(template, old) {
            template.validate(old, &path.index(index), gates, errors);
        }
    }
}

impl PodGroupTemplate {
    fn validate(&self, old: Option<&PodGroupTemplate>, path: &FieldPath<'_>, gates: Gates, errors: &mut Errors) {
        // In an update templates are matched by name, so the name is unchanged.
        if old.is_none() {
            required_name(&self.name, &path.child("name"), errors, dns_label);
        }
        self.settings().validate(old.map(PodGroupTemplate::settings).as_ref(), path, gates, errors);
    }

    fn settings(&self) -> Settings<'_> {
        Settings {
            release: Release::V1_37,
            is_template: true,
            scheduling_policy: &self.scheduling_policy,
            scheduling_constraints: self.scheduling_constraints.as_ref(),
            resource_claims: &self.resource_claims,
            disruption_mode: self.disruption_mode.as_ref().map(WrittenMode::Union),
            priority_class_name: &self.priority_class_name,
            priority: self.priority,
            preemption_policy: self.preemption_policy.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn disabled_field_is_forbidden_and_not_validated() {
        let workload: Workload = serde_json::from_value(json!({
            "metadata": {"name": "w"},
            "spec": {"podGroupTemplates": [{
                "name": "a", "schedulingPolicy": {"basic": {}},
                "schedulingConstraints": {"topology": [{"key": ""}]},
            }]},
        }))
        .unwrap();
        let errors: Vec<_> = validate_workload(&workload, Gates::default()).iter().map(ToString::to_string).collect();
        assert_eq!(errors, ["spec.podGroupTemplates[0].schedulingConstraints: Forbidden"]);
    }
}
