//! Validation of a native PodGroup's status, which is written at `/status`.
//!
//! All conditions are checked on every write. Must not depend on what a condition means.

use super::checks::{Errors, dns_subdomain, is_unchanged, unique};
use super::pod_group::{PodGroup, PodGroupStatus, ResourceClaimStatus};
use super::policy::ResourceClaim;
use super::version::Release;
use crate::field_error::FieldError;
use crate::invalid::FieldPath;
use crate::names::check_label_key;
use crate::wire::condition::Condition;

const MAX_CLAIM_STATUSES: usize = 4;
const MAX_REASON_BYTES: usize = 1024;
const MAX_MESSAGE_BYTES: usize = 32 * 1024;
/// The known statuses, sorted.
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Checks an update of a status. The spec is that of the stored object.
pub fn validate_pod_group_status_update(group: &PodGroup, old: &PodGroup) -> Vec<FieldError> {
    validate_status(&group.status, &old.status, &group.spec.resource_claims, Release::V1_37)
}

/// Checks an update of a status, of a group with these claims. The releases differ in the errors for missing fields and
/// duplicate types.
pub(super) fn validate_status(
    status: &PodGroupStatus,
    old: &PodGroupStatus,
    claims: &[ResourceClaim],
    release: Release,
) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = FieldPath::Root("status");
    validate_conditions(&status.conditions, release, &path.child("conditions"), &mut errors);
    let path = path.child("resourceClaimStatuses");
    let list = &status.resource_claim_statuses;
    for (index, one) in list.iter().enumerate() {
        if !claims.iter().any(|claim| claim.name == one.name) {
            let path = path.index(index);
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.push(FieldError::invalid(&path.child("name"), &one.name, detail));
        }
    }
    let old = &old.resource_claim_statuses;
    if !is_unchanged(list, Some(old)) {
        validate_claim_statuses(list, old, &path, &mut errors);
    }
    errors
}

fn validate_claim_statuses(
    list: &[ResourceClaimStatus],
    old: &[ResourceClaimStatus],
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    if list.len() > MAX_CLAIM_STATUSES {
        errors.push(FieldError::too_many(path, list.len(), MAX_CLAIM_STATUSES));
        return;
    }
    unique(list, |one| &one.name, path, errors);
    for (index, one) in list.iter().enumerate() {
        let old = old.iter().find(|old| old.name == one.name);
        if let Some(name) = one.resource_claim_name.as_ref().filter(|_| !is_unchanged(one, old)) {
            dns_subdomain(name, &path.index(index).child("resourceClaimName"), errors);
        }
    }
}

fn validate_conditions(list: &[Condition], release: Release, path: &FieldPath<'_>, errors: &mut Errors) {
    for (index, one) in list.iter().enumerate() {
        let path = path.index(index);
        if list[..index].iter().any(|other| other.kind == one.kind) {
            match release {
                Release::V1_36 => errors.push(FieldError::duplicate(&path.child("type"), &one.kind)),
                Release::V1_37 => errors.push(FieldError::duplicate(&path, &one.kind)),
            }
        }
        validate_condition(one, release, &path, errors);
    }
}

fn validate_condition(condition: &Condition, release: Release, path: &FieldPath<'_>, errors: &mut Errors) {
    let at = path.child("type");
    if condition.kind.is_empty() && release == Release::V1_37 {
        errors.push(FieldError::required(&at, "is required"));
    } else if let Err(reason) = check_label_key(&condition.kind) {
        errors.push(FieldError::invalid(&at, &condition.kind, reason));
    }
    let at = path.child("status");
    if condition.status.is_empty() && release == Release::V1_37 {
        errors.push(FieldError::required(&at, ""));
    } else if !STATUSES.contains(&condition.status.as_str()) {
        errors.push(FieldError::not_supported(&at, &condition.status, &STATUSES));
    }
    if condition.observed_generation < 0 {
        let at = path.child("observedGeneration");
        errors.push(FieldError::invalid(&at, &condition.observed_generation, "must be greater than or equal to zero"));
    }
    if condition.last_transition_time.is_none() {
        errors.push(FieldError::required(&path.child("lastTransitionTime"), ""));
    }
    let at = path.child("reason");
    if condition.reason.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else if !is_reason(&condition.reason) {
        let detail =
            "must start with a letter, consist of letters, digits and \"_,:\", and end with a letter, digit or \"_\"";
        errors.push(FieldError::invalid(&at, &condition.reason, detail));
    }
    if condition.reason.len() > MAX_REASON_BYTES {
        errors.push(FieldError::too_long(&at, MAX_REASON_BYTES));
    }
    if condition.message.len() > MAX_MESSAGE_BYTES {
        errors.push(FieldError::too_long(&path.child("message"), MAX_MESSAGE_BYTES));
    }
}

fn is_reason(text: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|&byte| edge(byte))
        && bytes.iter().all(|&byte| edge(byte) || b",:".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn unchanged_claim_is_not_checked_again() {
        let group = |statuses: Value| -> PodGroup {
            let spec = json!({"resourceClaims": [{"name": "a"}, {"name": "b"}]});
            serde_json::from_value(json!({"spec": spec, "status": {"resourceClaimStatuses": statuses}})).unwrap()
        };
        let old = group(json!([{"name": "a", "resourceClaimName": "A"}]));
        let new = group(json!([{"name": "a", "resourceClaimName": "A"}, {"name": "b", "resourceClaimName": "B"}]));
        let errors = validate_pod_group_status_update(&new, &old);
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["status.resourceClaimStatuses[1].resourceClaimName"]);
    }
}
