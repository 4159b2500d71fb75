//! Validation of the Workload of 1.35, and of a pod's reference to it.
//!
//! Upstream it is written by hand and not generated from the types, so messages and order differ from those of the
//! later versions, and unchanged fields are checked again in every update.

use serde_json::{Value, json};

use super::{PodGroup, Workload, WorkloadSpec};
use crate::field_error::FieldError;
use crate::invalid::FieldPath;
use crate::native::checks::{Errors, dns_label, dns_subdomain, object_name};
use crate::native::policy::SchedulingPolicy;
use crate::wire::pod::WorkloadRef;

/// The maximum number of groups of a Workload.
const MAX_POD_GROUPS: usize = 8;

const SPEC: FieldPath<'static> = FieldPath::Root("spec");

/// Checks a new Workload; all errors in the server's order.
pub fn validate_workload(workload: &Workload) -> Vec<FieldError> {
    let mut errors = Errors::new();
    object_name(workload.metadata.name.as_deref(), &mut errors);
    workload.spec.validate(&mut errors);
    errors
}

/// Checks an update of a Workload.
pub fn validate_workload_update(workload: &Workload, old: &Workload) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (new, old) = (&workload.spec, &old.spec);
    new.validate(&mut errors);
    // The server names these fields without their parent, and prints values with their Go field names.
    if old.controller_ref.is_some() && new.controller_ref != old.controller_ref {
        let printed = new
            .controller_ref
            .as_ref()
            .map(|reference| json!({"APIGroup": reference.api_group, "Kind": reference.kind, "Name": reference.name}));
        errors.push(FieldError::invalid(&FieldPath::Root("controllerRef"), &printed, "field is immutable"));
    }
    if new.pod_groups != old.pod_groups {
        let printed: Vec<Value> = new.pod_groups.iter().map(PodGroup::to_go_value).collect();
        errors.push(FieldError::invalid(&FieldPath::Root("podGroups"), &printed, "field is immutable"));
    }
    errors
}

/// Checks `spec.workloadRef` of a new pod.
pub fn validate_workload_reference(reference: &WorkloadRef, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    dns_subdomain(&reference.name, &path.child("name"), &mut errors);
    dns_label(&reference.pod_group, &path.child("podGroup"), &mut errors);
    if !reference.pod_group_replica_key.is_empty() {
        dns_label(&reference.pod_group_replica_key, &path.child("podGroupReplicaKey"), &mut errors);
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
    /// The value with the Go field names of the server.
    fn to_go_value(&self) -> Value {
        let basic = self.policy.basic.map(|_| json!({}));
        let gang = self.policy.gang.as_ref().map(|gang| json!({"MinCount": gang.min_count}));
        json!({"Name": self.name, "Policy": {"Basic": basic, "Gang": gang}})
    }

    fn validate(&self, before: &[PodGroup], path: &FieldPath<'_>, errors: &mut Errors) {
        let at = path.child("name");
        dns_label(&self.name, &at, errors);
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
    fn pod_references_workload_group_and_optional_replica() {
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
