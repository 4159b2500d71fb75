//! Validation of the native PodGroup: valid objects and allowed changes.
//!
//! Of the metadata only the name of a new object is checked; the rest is the same for all kinds and left to the server.
//! Must not depend on priority classes or on the Workload of the template.

use super::checks::{Errors, dns_label, dns_subdomain, gated, immutable, is_unchanged, object_name, required_name};
use super::gates::Gates;
use super::pod_group::{PodGroup, PodGroupSpec, WorkloadReference};
use super::validate_template::{Settings, WrittenMode};
use super::version::Release;
use crate::field_error::FieldError;
use crate::invalid::FieldPath;

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

impl PodGroupSpec {
    fn validate(&self, old: Option<&PodGroupSpec>, gates: Gates, errors: &mut Errors) {
        let path = FieldPath::Root("spec");
        // Checked in new objects only, as the server does.
        if old.is_none() && self.parent_composite_pod_group_name.is_some() && self.workload_ref.is_none() {
            let detail = "must be set when parentCompositePodGroupName is set";
            errors.push(FieldError::required(&path.child("workloadRef"), detail));
        }
        self.validate_parent(old, &path.child("parentCompositePodGroupName"), gates, errors);
        let at = path.child("workloadRef");
        immutable(&self.workload_ref, old.map(|old| &old.workload_ref), &at, errors, |reference, errors| {
            if let Some(reference) = reference {
                reference.validate(&at, errors);
            }
        });
        self.settings().validate(old.map(PodGroupSpec::settings).as_ref(), &path, gates, errors);
    }

    fn validate_parent(&self, old: Option<&PodGroupSpec>, at: &FieldPath<'_>, gates: Gates, errors: &mut Errors) {
        let new = &self.parent_composite_pod_group_name;
        let old = old.map(|old| &old.parent_composite_pod_group_name);
        if is_unchanged(new, old) {
            return;
        }
        let is_enabled = gated(gates.composite_pod_group, new.is_some(), at, errors);
        immutable(new, old, at, errors, |name, errors| {
            if let Some(name) = name.as_deref().filter(|_| is_enabled) {
                dns_subdomain(name, at, errors);
            }
        });
    }

    fn settings(&self) -> Settings<'_> {
        Settings {
            release: Release::V1_37,
            is_template: false,
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

impl WorkloadReference {
    fn validate(&self, path: &FieldPath<'_>, errors: &mut Errors) {
        required_name(&self.workload_name, &path.child("workloadName"), errors, dns_subdomain);
        required_name(&self.template_name, &path.child("templateName"), errors, dns_label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn disabled_field_is_forbidden_and_not_validated() {
        let group: PodGroup = serde_json::from_value(json!({
            "metadata": {"name": "g"},
            "spec": {
                "schedulingPolicy": {"basic": {}}, "disruptionMode": {"single": {}},
                "workloadRef": {"workloadName": "w", "templateName": "t"}, "parentCompositePodGroupName": "A",
                "schedulingConstraints": {"topology": [{"key": ""}]}, "preemptionPolicy": "Sometimes",
            },
        }))
        .unwrap();
        let errors: Vec<_> = validate_pod_group(&group, Gates::default()).iter().map(ToString::to_string).collect();
        let expected = [
            "spec.parentCompositePodGroupName: Forbidden",
            "spec.schedulingConstraints: Forbidden",
            "spec.preemptionPolicy: Forbidden",
        ];
        assert_eq!(errors, expected);
    }
}
