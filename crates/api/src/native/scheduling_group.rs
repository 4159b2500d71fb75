//! Validation of a pod's reference to its native group.
//!
//! Must not depend on whether the group exists.

use super::checks::{Errors, dns_subdomain};
use crate::field_error::FieldError;
use crate::invalid::FieldPath;
use crate::wire::pod::SchedulingGroup;

/// Checks `spec.schedulingGroup` of a new pod.
pub fn validate_scheduling_group(group: &SchedulingGroup, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = path.child("podGroupName");
    match &group.pod_group_name {
        None => errors.push(FieldError::invalid(&path, &(), "must specify one of: `podGroupName`")),
        Some(name) => dns_subdomain(name, &path, &mut errors),
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_reference_needs_a_valid_name() {
        let spec = FieldPath::Root("spec");
        let errors = |name: Option<&str>| {
            let group = SchedulingGroup { pod_group_name: name.map(str::to_owned) };
            let errors = validate_scheduling_group(&group, &spec.child("schedulingGroup"));
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(errors(Some("a.b")).is_empty());
        let expected = "spec.schedulingGroup.podGroupName: Invalid value: null: must specify one of: `podGroupName`";
        assert_eq!(errors(None), [expected]);
        assert!(errors(Some(""))[0].starts_with("spec.schedulingGroup.podGroupName: Invalid value: \"\": "));
    }
}
