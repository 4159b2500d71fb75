//! The rules of the Workload of 1.35, and of a pod's reference to it.
//!
//! They are written by hand upstream and not derived from the types, so their words and their order differ from those
//! of the later versions, and everything is looked at again in every change.

use super::{PodGroup, Workload, WorkloadSpec};
use crate::field_error::FieldError;
use crate::invalid::FieldPath;
use crate::native::checks::{Errors, long_name, object_name, short_name};
use crate::native::policy::SchedulingPolicy;
use crate::wire::pod::WorkloadRef;

/// The most groups of a Workload.
const MAX_POD_GROUPS: usize = 8;

const SPEC: FieldPath<'static> = FieldPath::Root("spec");

/// Checks a new Workload; all errors in the server's order.
pub fn validate_workload(workload: &Workload) -> Vec<FieldError> {
    let mut errors = Errors::new();
    object_name(workload.metadata.name.as_deref(), &mut errors);
    workload.spec.validate(&mut errors);
    errors
}

/// Checks a Workload that takes the place of an older one.
pub fn validate_workload_update(workload: &Workload, old: &Workload) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (new, old) = (&workload.spec, &old.spec);
    new.validate(&mut errors);
    // The server names these fields without their parent.
    if old.controller_ref.is_some() && new.controller_ref != old.controller_ref {
        let at = FieldPath::Root("controllerRef");
        errors.push(FieldError::invalid(&at, &new.controller_ref, "field is immutable"));
    }
    if new.pod_groups != old.pod_groups {
        let at = FieldPath::Root("podGroups");
        errors.push(FieldError::invalid(&at, &new.pod_groups, "field is immutable"));
    }
    errors
}

/// Checks `spec.workloadRef` of a new pod.
pub fn validate_workload_reference(reference: &WorkloadRef, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    long_name(&reference.name, &path.child("name"), &mut errors);
    short_name(&reference.pod_group, &path.child("podGroup"), &mut errors);
    if !reference.pod_group_replica_key.is_empty() {
        short_name(&reference.pod_group_replica_key, &path.child("podGroupReplicaKey"), &mut errors);
    }
    errors
}

impl WorkloadSpec {
    fn validate(&self, errors: &mut Errors) {
        if let Some(reference) = &self.controller_ref {
            reference.validate(&SPEC.child("controllerRef"), errors);
        }
        let at = SPEC.child("podGroups");
        let list = &self.pod_groups;
        if list.is_empty() {
            errors.push(FieldError::required(&at, "must have at least one item"));
        } else if list.len() > MAX_POD_GROUPS {
            errors.push(FieldError::too_many(&at, list.len(), MAX_POD_GROUPS));
        } else {
            for (index, group) in list.iter().enumerate() {
                group.validate(&list[..index], &at.index(index), errors);
            }
        }
    }
}

impl PodGroup {
    fn validate(&self, before: &[PodGroup], path: &FieldPath<'_>, errors: &mut Errors) {
        let at = path.child("name");
        short_name(&self.name, &at, errors);
        if before.iter().any(|other| other.name == self.name) {
            errors.push(FieldError::duplicate(&at, &self.name));
        }
        validate_policy(&self.policy, &path.child("policy"), errors);
    }
}

fn validate_policy(policy: &SchedulingPolicy, path: &FieldPath<'_>, errors: &mut Errors) {
    const ONE: &str = "exactly one of `basic`, `gang` is required";
    match (&policy.basic, &policy.gang) {
        (None, None) => errors.push(FieldError::required(path, ONE)),
        (Some(_), Some(_)) => {
            let detail = format_args!("{ONE}, but multiple fields are set");
            errors.push(FieldError::invalid(path, "{`basic`, `gang`}", detail));
        }
        (None, Some(gang)) if gang.min_count < 1 => {
            let at = path.child("gang");
            let at = at.child("minCount");
            errors.push(FieldError::invalid(&at, &gang.min_count, "must be greater than zero"));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_names_workload_group_and_perhaps_a_replica() {
        let spec = FieldPath::Root("spec");
        let fields = |name: &str, group: &str, key: &str| {
            let reference = WorkloadRef {
                name: name.to_owned(),
                pod_group: group.to_owned(),
                pod_group_replica_key: key.to_owned(),
            };
            let errors = validate_workload_reference(&reference, &spec.child("workloadRef"));
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert!(fields("a.b", "workers", "").is_empty());
        assert!(fields("a.b", "workers", "r-0").is_empty());
        let all = ["spec.workloadRef.name", "spec.workloadRef.podGroup", "spec.workloadRef.podGroupReplicaKey"];
        assert_eq!(fields("A", "a.b", "R"), all);
        assert_eq!(fields("", "", ""), all[..2]);
    }
}
