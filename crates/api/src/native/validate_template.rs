//! Validation that native PodGroups and PodGroup templates share, in 1.36 and 1.37.
//!
//! All have the same settings with small differences, so the caller states which it is. Must not depend on the rest of
//! any kind.

use super::checks::{Errors, dns_label, dns_subdomain, gated, immutable, is_unchanged, one_of, required_name, unique};
use super::gates::Gates;
use super::policy::{DisruptionMode, GangPolicy, ResourceClaim, SchedulingConstraints, SchedulingPolicy};
use super::v1alpha2::{DISRUPT_POD, DISRUPT_POD_GROUP};
use super::version::Release;
use crate::field_error::FieldError;
use crate::invalid::FieldPath;
use crate::names::check_label_key;

/// The maximum number of domains that members share.
const MAX_TOPOLOGY: usize = 1;
/// The maximum number of claims of a group.
const MAX_RESOURCE_CLAIMS: usize = 4;
/// The highest priority that users may define.
const MAX_PRIORITY: i32 = 1_000_000_000;
/// The known disruption modes of 1.36, sorted.
const DISRUPTION_MODES: [&str; 2] = [DISRUPT_POD, DISRUPT_POD_GROUP];
/// The known preemption policies, sorted.
const PREEMPTION_POLICIES: [&str; 2] = ["Never", "PreemptLowerPriority"];

/// The settings of a group or of a template.
#[derive(Clone, Copy)]
pub(super) struct Settings<'a> {
    /// The release whose rules apply.
    pub(super) release: Release,
    /// Whether they belong to a template.
    pub(super) is_template: bool,
    pub(super) scheduling_policy: &'a SchedulingPolicy,
    pub(super) scheduling_constraints: Option<&'a SchedulingConstraints>,
    pub(super) resource_claims: &'a [ResourceClaim],
    pub(super) disruption_mode: Option<WrittenMode<'a>>,
    pub(super) priority_class_name: &'a str,
    pub(super) priority: Option<i32>,
    pub(super) preemption_policy: Option<&'a str>,
}

/// A disruption mode as written in the object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WrittenMode<'a> {
    /// A union, as of 1.37.
    Union(&'a DisruptionMode),
    /// A name, as of 1.36.
    Name(&'a str),
}

impl WrittenMode<'_> {
    fn validate(self, path: &FieldPath<'_>, errors: &mut Errors) {
        match self {
            Self::Union(mode) => {
                one_of(&[("single", mode.single.is_some()), ("all", mode.all.is_some())], path, errors);
            }
            Self::Name(name) if DISRUPTION_MODES.contains(&name) => {}
            Self::Name(name) => errors.push(FieldError::not_supported(path, name, &DISRUPTION_MODES)),
        }
    }
}

impl Settings<'_> {
    /// Checks new settings, or an update of `old`.
    pub(super) fn validate(&self, old: Option<&Settings<'_>>, path: &FieldPath<'_>, gates: Gates, errors: &mut Errors) {
        let old_policy = old.map(|old| old.scheduling_policy);
        validate_policy(self.scheduling_policy, old_policy, self.release, &path.child("schedulingPolicy"), errors);
        self.validate_constraints(old, &path.child("schedulingConstraints"), gates, errors);
        let at = path.child("resourceClaims");
        let old_claims = old.map(|old| old.resource_claims);
        immutable(self.resource_claims, old_claims, &at, errors, |claims, errors| validate_claims(claims, &at, errors));
        // A changed list that is too long gets both errors.
        if !is_unchanged(self.resource_claims, old_claims) && self.resource_claims.len() > MAX_RESOURCE_CLAIMS {
            errors.push(FieldError::too_many(&at, self.resource_claims.len(), MAX_RESOURCE_CLAIMS));
        }
        self.validate_disruption(old, path, gates.workload_aware_preemption, errors);
        self.validate_preemption_policy(old, &path.child("preemptionPolicy"), gates, errors);
    }

    fn validate_disruption(&self, old: Option<&Settings<'_>>, path: &FieldPath<'_>, is_on: bool, errors: &mut Errors) {
        let at = path.child("disruptionMode");
        let (new, before) = (&self.disruption_mode, old.map(|old| &old.disruption_mode));
        gated_and_immutable((new, before), (is_on, new.is_some()), &at, errors, |mode, errors| match mode {
            Some(mode) => mode.validate(&at, errors),
            // On groups it is set by defaulting.
            None if !self.is_template => errors.push(FieldError::required(&at, "")),
            None => {}
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

    fn validate_constraints(&self, old: Option<&Settings<'_>>, at: &FieldPath<'_>, gates: Gates, errors: &mut Errors) {
        let is_on = gates.topology_aware_workload_scheduling;
        let new = &self.scheduling_constraints;
        let old = old.map(|old| &old.scheduling_constraints);
        if is_unchanged(new, old) {
            return;
        }
        let is_enabled = gated(is_on, new.is_some(), at, errors);
        // While the gate is off, the field may be removed from a group, but not from a template.
        if !is_on && !self.is_template {
            return;
        }
        immutable(new, old, at, errors, |constraints, errors| {
            if let Some(constraints) = constraints.filter(|_| is_enabled) {
                validate_topology(constraints, &at.child("topology"), errors);
            }
        });
    }

    fn validate_preemption_policy(
        &self,
        old: Option<&Settings<'_>>,
        at: &FieldPath<'_>,
        gates: Gates,
        errors: &mut Errors,
    ) {
        let new = &self.preemption_policy;
        let old = old.map(|old| &old.preemption_policy);
        if is_unchanged(new, old) {
            return;
        }
        let is_enabled = gated(gates.pod_group_preemption_policy, new.is_some(), at, errors);
        immutable(new, old, at, errors, |policy, errors| {
            if let Some(policy) = policy.filter(|policy| is_enabled && !PREEMPTION_POLICIES.contains(policy)) {
                errors.push(FieldError::not_supported(at, policy, &PREEMPTION_POLICIES));
            }
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
    if is_on {
        immutable(new, old, path, errors, check);
    } else if is_set && !is_unchanged(new, old) {
        errors.push(FieldError::forbidden(path, ""));
    }
}

fn validate_policy(
    new: &SchedulingPolicy,
    old: Option<&SchedulingPolicy>,
    release: Release,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    if is_unchanged(new, old) {
        return;
    }
    // In 1.37 the minimum of a gang is mutable.
    if old.is_some() && release == Release::V1_36 {
        errors.push(FieldError::invalid(path, &(), "field is immutable"));
        return;
    }
    let members = |policy: &SchedulingPolicy| [("basic", policy.basic.is_some()), ("gang", policy.gang.is_some())];
    if old.map(members) != Some(members(new)) {
        one_of(&members(new), path, errors);
    }
    immutable(&new.basic, old.map(|old| &old.basic), &path.child("basic"), errors, |_, _| {});
    let at = path.child("gang");
    match (&new.gang, old.map(|old| &old.gang)) {
        (Some(_), Some(None)) => errors.push(FieldError::invalid(&at, &(), "field cannot be set once created")),
        (None, Some(Some(_))) => errors.push(FieldError::invalid(&at, &(), "field cannot be cleared once set")),
        (Some(gang), old) if !is_unchanged(gang, old.and_then(Option::as_ref)) => {
            validate_min_count(gang, &at.child("minCount"), errors);
        }
        _ => {}
    }
}

fn validate_priority(priority: Option<i32>, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(priority) = priority.filter(|&priority| priority > MAX_PRIORITY) {
        let detail = format_args!("must be less than or equal to {MAX_PRIORITY}");
        errors.push(FieldError::invalid(path, &priority, detail));
    }
}

fn validate_min_count(gang: &GangPolicy, path: &FieldPath<'_>, errors: &mut Errors) {
    // Zero is indistinguishable from an unset field.
    match gang.min_count {
        0 => errors.push(FieldError::required(path, "")),
        1.. => {}
        count => errors.push(FieldError::invalid(path, &count, "must be greater than or equal to 1")),
    }
}

fn validate_topology(constraints: &SchedulingConstraints, path: &FieldPath<'_>, errors: &mut Errors) {
    let list = &constraints.topology;
    if list.len() > MAX_TOPOLOGY {
        errors.push(FieldError::too_many(path, list.len(), MAX_TOPOLOGY));
        return;
    }
    for (index, one) in list.iter().enumerate() {
        let path = path.index(index);
        required_name(&one.key, &path.child("key"), errors, |key, path, errors| {
            errors.extend(check_label_key(key).err().map(|reason| FieldError::invalid(path, key, reason)));
        });
    }
}

fn validate_claims(claims: &[ResourceClaim], path: &FieldPath<'_>, errors: &mut Errors) {
    if claims.len() > MAX_RESOURCE_CLAIMS {
        return;
    }
    unique(claims, |claim| &claim.name, path, errors);
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let sources = [
            ("resourceClaimName", claim.resource_claim_name.as_deref()),
            ("resourceClaimTemplateName", claim.resource_claim_template_name.as_deref()),
        ];
        one_of(&sources.map(|(field, name)| (field, name.is_some())), &path, errors);
        required_name(&claim.name, &path.child("name"), errors, dns_label);
        for (field, name) in sources {
            if let Some(name) = name {
                dns_subdomain(name, &path.child(field), errors);
            }
        }
    }
}
