//! Reusable checks of the native API: names, unions, bounds, and immutable fields.
//!
//! A check gets the new value and, for an update, the old one. Unchanged values are not checked again, so that an
//! object accepted by an older server can still be updated.
//!
//! Errors are collected, since a server reports all of them. Nothing here may depend on a kind.

use serde::Serialize;

use crate::field_error::FieldError;
use crate::invalid::FieldPath;
use crate::names::{check_dns_label, check_dns_subdomain, check_path_segment};

/// The errors found so far.
pub(super) type Errors = Vec<FieldError>;

/// Whether an update left a value unchanged.
pub(super) fn is_unchanged<T: PartialEq + ?Sized>(new: &T, old: Option<&T>) -> bool {
    old.is_some_and(|old| new == old)
}

/// An immutable field: checked in a new object, not allowed to change in an update.
pub(super) fn immutable<T: PartialEq + ?Sized>(
    new: &T,
    old: Option<&T>,
    path: &FieldPath<'_>,
    errors: &mut Errors,
    check: impl FnOnce(&T, &mut Errors),
) {
    match old {
        None => check(new, errors),
        Some(old) if new == old => {}
        Some(_) => errors.push(FieldError::invalid(path, &(), "field is immutable")),
    }
}

/// A required name.
pub(super) fn required_name(
    name: &str,
    path: &FieldPath<'_>,
    errors: &mut Errors,
    check: impl FnOnce(&str, &FieldPath<'_>, &mut Errors),
) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        check(name, path, errors);
    }
}

/// A DNS label.
pub(super) fn dns_label(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    errors.extend(check_dns_label(name).err().map(|reason| FieldError::invalid(path, name, reason)));
}

/// A DNS subdomain.
pub(super) fn dns_subdomain(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    errors.extend(check_dns_subdomain(name).err().map(|reason| FieldError::invalid(path, name, reason)));
}

/// A path segment.
pub(super) fn path_segment(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    errors.extend(check_path_segment(name, usize::MAX).err().map(|reason| FieldError::invalid(path, name, reason)));
}

/// A union of which exactly one member is set: `members` are their names and whether each is set.
pub(super) fn one_of(members: &[(&str, bool)], path: &FieldPath<'_>, errors: &mut Errors) {
    let set: Vec<_> = members.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    let all: Vec<_> = members.iter().map(|(name, _)| format!("`{name}`")).collect();
    let all = all.join(", ");
    match set.len() {
        0 => errors.push(FieldError::invalid(path, "", format_args!("must specify one of: {all}"))),
        1 => {}
        _ => {
            let set = format!("{{{}}}", set.join(", "));
            errors.push(FieldError::invalid(path, &set, format_args!("must specify exactly one of: {all}")));
        }
    }
}

/// A list with unique keys.
pub(super) fn unique<T: Serialize>(list: &[T], key: impl Fn(&T) -> &str, path: &FieldPath<'_>, errors: &mut Errors) {
    for (index, one) in list.iter().enumerate() {
        if list[..index].iter().any(|other| key(other) == key(one)) {
            errors.push(FieldError::duplicate(&path.index(index), one));
        }
    }
}

/// A field with a feature gate: forbidden while the gate is off. Returns whether it is set and enabled.
pub(super) fn gated(is_on: bool, is_set: bool, path: &FieldPath<'_>, errors: &mut Errors) -> bool {
    if is_set && !is_on {
        errors.push(FieldError::forbidden(path, ""));
    }
    is_set && is_on
}

/// The name of a new object.
pub(super) fn object_name(name: Option<&str>, errors: &mut Errors) {
    let metadata = FieldPath::Root("metadata");
    let path = metadata.child("name");
    match name {
        None | Some("") => errors.push(FieldError::required(&path, "name or generateName is required")),
        Some(name) => dns_subdomain(name, &path, errors),
    }
}
