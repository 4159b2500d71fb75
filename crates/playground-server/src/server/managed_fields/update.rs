//! Field management of creates, updates and patches.
//!
//! The manager that sets a field owns it exclusively; a removed field has no owner. A write that changes nothing leaves
//! everything unchanged, including timestamps.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::compare::{Comparison, compare};
use super::field_set::FieldSet;
use super::managers::{Manager, Managers, Owned};
use super::path_element::NoPathElement;
use super::typed::{self, Duplicates, TypeErrors};
use super::{KindVersion, UNOWNED, Writer, put, take};
use crate::kinds::{Kind, Registry};

/// Why the fields of an object cannot be managed, with the messages of kube-apiserver.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FieldsError {
    #[error("failed to create typed patch object ({object}): {errors}")]
    Configuration { object: String, errors: TypeErrors },
    #[error("failed to merge config: {0}")]
    Merge(NoPathElement),
    #[error("failed to compare objects: {0}")]
    Compare(NoPathElement),
    #[error("failed to convert {which} object: {errors}")]
    Convert { which: &'static str, errors: TypeErrors },
    #[error(transparent)]
    Element(#[from] NoPathElement),
}

/// Records the manager of a new object. `managedFields` from the client are ignored.
pub(crate) fn created(registry: &Registry, kind: &Kind, value: &mut Value, writer: Writer<'_>) {
    let scope = KindVersion { registry, kind };
    put(value, None);
    let mut managers = Managers::default();
    let made = changed(scope, None, value, writer, &mut managers);
    // An object that cannot be compared is rejected by validation.
    put(value, made.ok().and_then(|()| managers.write()));
}

/// Records the manager of a changed object.
pub(crate) fn updated(registry: &Registry, kind: &Kind, was: &Value, value: &mut Value, writer: Writer<'_>) {
    let scope = KindVersion { registry, kind };
    let written = take(value);
    let live = &was["metadata"]["managedFields"];
    let mut managers = match written {
        // `managedFields` cannot be changed through a subresource.
        _ if !writer.subresource.is_empty() => Managers::stored(live.clone()),
        Some(written) if is_reset(&written) => Managers::default(),
        Some(written) if written != *live => match Managers::read(&written) {
            Some(managers) if !managers.is_empty() => managers,
            _ => Managers::stored(live.clone()),
        },
        _ => Managers::stored(live.clone()),
    };
    // An object without managers is not tracked.
    if managers.is_empty() {
        return;
    }
    match changed(scope, Some(was), value, writer, &mut managers) {
        Ok(()) => put(value, managers.write()),
        Err(_) => put(value, Some(live.clone()).filter(|live| !live.is_null())),
    }
}

/// Whether a client resets `managedFields`: an empty list, or one empty entry.
fn is_reset(written: &Value) -> bool {
    match written.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(only)]) => only.is_empty(),
        _ => false,
    }
}

/// Gives changed fields to the writer, and takes them from all others. Without an old object, all fields are new.
pub(super) fn changed(
    scope: KindVersion<'_>,
    was: Option<&Value>,
    value: &Value,
    writer: Writer<'_>,
    managers: &mut Managers,
) -> Result<(), FieldsError> {
    let before = was.map_or_else(|| Cow::Owned(scope.zero_value()), |was| scope.show(was));
    let mut comparison = compare(scope.shape(), &before, &scope.show(value))?;
    comparison.ignore(&scope.ignored(writer.subresource));
    if !comparison.is_empty() {
        if let Some(was) = was {
            let change = Change { was, value, comparison: &comparison, subresource: writer.subresource };
            let (conflicts, removed) = change.owned_by_others(scope, managers, None)?;
            remove_owned(managers, &conflicts, &removed);
        }
        let version = scope.kind.api_version();
        let mut taken = comparison.modified;
        taken.add(comparison.added);
        taken.remove(&UNOWNED);
        if !taken.is_empty() {
            let manager = Manager::updater(writer.manager, &version, writer.subresource);
            if let Some(mut before) = managers.remove(&manager) {
                taken.add(std::mem::take(before.set()));
            }
            managers.insert(manager, Owned::new(&version, Some(writer.now.to_owned()), taken));
        }
    }
    managers.merge_oldest_updates();
    Ok(())
}

/// A change of a stored object through a subresource.
pub(super) struct Change<'a> {
    pub(super) was: &'a Value,
    pub(super) value: &'a Value,
    /// The comparison in the version of the kind.
    pub(super) comparison: &'a Comparison,
    pub(super) subresource: &'a str,
}

/// The changed fields that managers own.
pub(super) type OwnedFields = BTreeMap<Manager, FieldSet>;

impl Change<'_> {
    /// The fields that all managers except `except` own among those set, and among those removed; each in its own
    /// version. Managers of versions that no longer exist are dropped.
    pub(super) fn owned_by_others(
        &self,
        scope: KindVersion<'_>,
        managers: &mut Managers,
        except: Option<&Manager>,
    ) -> Result<(OwnedFields, OwnedFields), FieldsError> {
        let here = scope.kind.api_version();
        let (mut conflicts, mut removed) = (OwnedFields::new(), OwnedFields::new());
        let mut elsewhere: BTreeMap<String, Comparison> = BTreeMap::new();
        managers.retain_versions(|version| scope.in_version(version).is_some());
        for (manager, owned) in managers.iter_mut().filter(|(manager, _)| Some(*manager) != except) {
            if owned.version != here && !elsewhere.contains_key(&owned.version) {
                let other = scope.in_version(&owned.version).unwrap_or(scope);
                elsewhere.insert(owned.version.clone(), self.converted(other)?);
            }
            let comparison = elsewhere.get(&owned.version).unwrap_or(self.comparison);
            let mut touched = |set: &FieldSet| {
                if owned.may_touch(set) { owned.set().intersection(set) } else { FieldSet::default() }
            };
            let mut conflict = touched(&comparison.modified);
            conflict.add(touched(&comparison.added));
            if !conflict.is_empty() {
                conflicts.insert(manager.clone(), conflict);
            }
            let gone = touched(&comparison.removed);
            if !gone.is_empty() {
                removed.insert(manager.clone(), gone);
            }
        }
        Ok((conflicts, removed))
    }

    /// The change in another version.
    fn converted(&self, scope: KindVersion<'_>) -> Result<Comparison, FieldsError> {
        let (was, value) = (scope.show(self.was), scope.show(self.value));
        for (which, value) in [("old", &was), ("new", &value)] {
            typed::check(scope.shape(), value, Duplicates::Allowed)
                .map_err(|errors| FieldsError::Convert { which, errors })?;
        }
        let mut comparison = compare(scope.shape(), &was, &value).map_err(FieldsError::Compare)?;
        comparison.ignore(&scope.ignored(self.subresource));
        Ok(comparison)
    }
}

/// Removes fields from their managers.
pub(super) fn remove_owned(managers: &mut Managers, conflicts: &OwnedFields, removed: &OwnedFields) {
    for (manager, lost) in conflicts.iter().chain(removed) {
        if let Some(owned) = managers.get_mut(manager) {
            owned.set().remove(lost);
        }
    }
    managers.drop_empty();
}

/// Restores old timestamps if nothing else changed, so that an equal write is no change.
pub(crate) fn ignore_time_changes(value: &mut Value, was: &Value) {
    let (new, old) = (&value["metadata"]["managedFields"], &was["metadata"]["managedFields"]);
    let (Some(entries), Some(before)) = (new.as_array(), old.as_array()) else { return };
    let is_same = entries.len() == before.len()
        && new != old
        && entries.iter().zip(before).all(|(new, old)| is_same_but_time(new, old));
    if !is_same {
        return;
    }
    let managed = take(value);
    let mut bare = was.clone();
    let old = take(&mut bare);
    put(value, if *value == bare { old } else { managed });
}

fn is_same_but_time(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let names = new.keys().chain(old.keys()).filter(|name| *name != "time");
    names.into_iter().all(|name| new.get(name) == old.get(name))
}
