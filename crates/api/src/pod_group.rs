//! Validation of our own PodGroup, `podgroups.muster.dev`: valid specs and allowed changes.
//!
//! The rules are those of the CRD's schema, repeated for code paths where the schema is not applied, plus rules that a
//! schema cannot express (resource names, amounts).
//!
//! Invariant: an accepted change keeps the kind of policy, the names of subsets, the disruption mode and the priority
//! class. Must not depend on what fills in the priority, or on what the engine does.

use std::collections::BTreeSet;

use crate::group::{Group, WrittenGroup, WrittenPolicy, WrittenSubset};
use crate::invalid::{FieldPath, InvalidField};

/// Checks a new PodGroup's spec.
pub fn validate_pod_group(spec: &WrittenGroup, path: &FieldPath<'_>) -> Result<Group, InvalidField> {
    spec.validate(path)
}

/// Checks an update of a PodGroup's spec.
pub fn validate_pod_group_update(
    spec: &WrittenGroup,
    old: &WrittenGroup,
    path: &FieldPath<'_>,
) -> Result<Group, InvalidField> {
    let group = validate_pod_group(spec, path)?;
    same_kind_of_policy(spec.policy.as_ref(), old.policy.as_ref(), &path.child("policy"))?;
    if let (Some(subsets), Some(old)) = (&spec.subsets, &old.subsets) {
        same_subsets(subsets, old, &path.child("subsets"))?;
    }
    unchanged_settings(&Settings::of_group(spec), &Settings::of_group(old), path)?;
    Ok(group)
}

/// The immutable settings of a group.
pub(crate) struct Settings<'a> {
    pub(crate) disruption_mode: Option<&'a str>,
    pub(crate) priority_class_name: Option<&'a str>,
}

impl Settings<'_> {
    fn of_group(group: &WrittenGroup) -> Settings<'_> {
        Settings {
            disruption_mode: group.disruption_mode.as_deref(),
            priority_class_name: group.priority_class_name.as_deref(),
        }
    }
}

/// Refuses changes of immutable settings. The number of a priority may change: a wrong one can be corrected.
pub(crate) fn unchanged_settings(
    new: &Settings<'_>,
    old: &Settings<'_>,
    path: &FieldPath<'_>,
) -> Result<(), InvalidField> {
    if new.disruption_mode.unwrap_or("Pod") != old.disruption_mode.unwrap_or("Pod") {
        return Err(path.child("disruptionMode").invalid(&new.disruption_mode, "cannot be changed"));
    }
    if new.priority_class_name.unwrap_or_default() != old.priority_class_name.unwrap_or_default() {
        return Err(path.child("priorityClassName").invalid(&new.priority_class_name, "cannot be changed"));
    }
    Ok(())
}

/// Refuses another kind of policy. Its counts may change.
pub(crate) fn same_kind_of_policy(
    new: Option<&WrittenPolicy>,
    old: Option<&WrittenPolicy>,
    path: &FieldPath<'_>,
) -> Result<(), InvalidField> {
    let kind = |policy: &WrittenPolicy| if policy.gang.is_some() { "gang" } else { "basic" };
    let (new, old) = (new.map_or("subsets", kind), old.map_or("subsets", kind));
    if new == old {
        return Ok(());
    }
    Err(path.invalid(new, format_args!("the kind of policy cannot be changed, it is {old}")))
}

fn same_subsets(new: &[WrittenSubset], old: &[WrittenSubset], path: &FieldPath<'_>) -> Result<(), InvalidField> {
    let names = |list: &[WrittenSubset]| list.iter().map(|one| one.name.clone()).collect::<BTreeSet<_>>();
    let (new, old) = (names(new), names(old));
    if new == old {
        return Ok(());
    }
    Err(path.invalid(&new, "subsets cannot be added or removed, only their minMember can change"))
}
