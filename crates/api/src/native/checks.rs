//! The small rules of the native API: names, choices, bounds, and what may not change.
//!
//! A rule looks at a new value and, for a change, at the old one. What did not change is not looked
//! at again, so that an object that an older server took can still be updated.
//!
//! Errors are gathered, not returned, since a server tells them all. Nothing here may know a kind.

use serde::Serialize;

use crate::field_error::FieldError;
use crate::invalid::FieldPath;
use crate::names::{check_dns_label, check_dns_subdomain, check_path_segment};

/// The errors found so far.
pub(super) type Errors = Vec<FieldError>;

/// Whether a change left a value as it was.
pub(super) fn is_unchanged<T: PartialEq + ?Sized>(new: &T, old: Option<&T>) -> bool {
    old.is_some_and(|old| new == old)
}

/// A field that holds for an object's life: looks at it when it is new, refuses a change.
pub(super) fn fixed<T: PartialEq + ?Sized>(
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

/// A name that must be there.
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
pub(super) fn short_name(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    errors.extend(check_dns_label(name).err().map(|reason| FieldError::invalid(path, name, reason)));
}

/// A DNS subdomain.
pub(super) fn long_name(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    errors.extend(check_dns_subdomain(name).err().map(|reason| FieldError::invalid(path, name, reason)));
}

/// One step of a path.
pub(super) fn path_segment(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    errors.extend(check_path_segment(name, usize::MAX).err().map(|reason| FieldError::invalid(path, name, reason)));
}

/// A choice of which exactly one is set: `members` are their names and whether each is set.
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

/// A list in which `key` is unique.
pub(super) fn unique<T: Serialize>(list: &[T], key: impl Fn(&T) -> &str, path: &FieldPath<'_>, errors: &mut Errors) {
    for (index, one) in list.iter().enumerate() {
        if list[..index].iter().any(|other| key(other) == key(one)) {
            errors.push(FieldError::duplicate(&path.index(index), one));
        }
    }
}

/// A field whose gate is off. Whether it is set and may go on.
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
        Some(name) => long_name(name, &path, errors),
    }
}
