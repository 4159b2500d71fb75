//! What creates, updates and patches do to ownership.
//!
//! Who sets a field owns it, alone; what goes is nobody's. A write that changes nothing leaves everything as it was, the
//! times too.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::compare::{Comparison, compare};
use super::extent::{self, Twice};
use super::field_set::FieldSet;
use super::managers::{Manager, Managers, Owned};
use super::{Scope, UNOWNED, Writer, put, take};
use crate::kinds::{Kind, Registry};

/// Notes who made an object. Clients do not choose its managers.
pub(crate) fn created(registry: &Registry, kind: &Kind, value: &mut Value, writer: Writer<'_>) {
    let scope = Scope { registry, kind };
    put(value, None);
    let mut managers = Managers::default();
    let made = changed(scope, None, value, writer, &mut managers);
    // What cannot be compared is refused when it is checked.
    put(value, made.ok().and_then(|()| managers.write()));
}

/// Notes who changed an object from what it was.
pub(crate) fn updated(registry: &Registry, kind: &Kind, was: &Value, value: &mut Value, writer: Writer<'_>) {
    let scope = Scope { registry, kind };
    let written = take(value);
    let live = &was["metadata"]["managedFields"];
    let mut managers = match written {
        // By a subresource nobody rewrites the list itself.
        _ if !writer.subresource.is_empty() => Managers::stored(live.clone()),
        Some(written) if is_reset(&written) => Managers::default(),
        Some(written) if written != *live => match Managers::read(&written) {
            Some(managers) if !managers.is_empty() => managers,
            _ => Managers::stored(live.clone()),
        },
        _ => Managers::stored(live.clone()),
    };
    // An object without managers is one whose owners nobody wants to know.
    if managers.is_empty() {
        return;
    }
    match changed(scope, Some(was), value, writer, &mut managers) {
        Ok(()) => put(value, managers.write()),
        Err(_) => put(value, Some(live.clone()).filter(|live| !live.is_null())),
    }
}

/// Whether a client says that it does not want managers: an empty list, or one empty entry.
fn is_reset(written: &Value) -> bool {
    match written.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(only)]) => only.is_empty(),
        _ => false,
    }
}

/// Gives what changed to the writer, and takes it from all others. Without an old object, all of it is new.
pub(super) fn changed(
    scope: Scope<'_>,
    was: Option<&Value>,
    value: &Value,
    writer: Writer<'_>,
    managers: &mut Managers,
) -> Result<(), String> {
    let before = was.map_or_else(|| Cow::Owned(scope.fresh()), |was| scope.show(was));
    let mut comparison = compare(scope.shape(), &before, &scope.show(value))?;
    comparison.ignore(&scope.ignored(writer.subresource));
    if !comparison.is_empty() {
        if let Some(was) = was {
            let change = Change { was, value, comparison: &comparison, subresource: writer.subresource };
            let (conflicts, removed) = change.of_others(scope, managers, None)?;
            take_away(managers, &conflicts, &removed);
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
    managers.cap();
    Ok(())
}

/// A change of a stored object, by a door.
pub(super) struct Change<'a> {
    pub(super) was: &'a Value,
    pub(super) value: &'a Value,
    /// In the version of the kind.
    pub(super) comparison: &'a Comparison,
    pub(super) subresource: &'a str,
}

/// What managers own of a change.
pub(super) type Taken = BTreeMap<Manager, FieldSet>;

impl Change<'_> {
    /// What all managers but `except` own of what is set, and of what goes; each in its own version. Managers of
    /// versions that are no more are forgotten.
    pub(super) fn of_others(
        &self,
        scope: Scope<'_>,
        managers: &mut Managers,
        except: Option<&Manager>,
    ) -> Result<(Taken, Taken), String> {
        let here = scope.kind.api_version();
        let (mut conflicts, mut removed) = (Taken::new(), Taken::new());
        let mut elsewhere: BTreeMap<String, Comparison> = BTreeMap::new();
        managers.keep_versions(|version| scope.in_version(version).is_some());
        for (manager, owned) in managers.iter_mut().filter(|(manager, _)| Some(*manager) != except) {
            if owned.version != here && !elsewhere.contains_key(&owned.version) {
                let other = scope.in_version(&owned.version).unwrap_or(scope);
                elsewhere.insert(owned.version.clone(), self.converted(other)?);
            }
            let comparison = elsewhere.get(&owned.version).unwrap_or(self.comparison);
            let mut touched = |set: &FieldSet| {
                if owned.may_touch(set) { owned.set().common(set) } else { FieldSet::default() }
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
    fn converted(&self, scope: Scope<'_>) -> Result<Comparison, String> {
        let (was, value) = (scope.show(self.was), scope.show(self.value));
        for (what, value) in [("old", &was), ("new", &value)] {
            extent::check(scope.shape(), value, Twice::Allowed)
                .map_err(|why| format!("failed to convert {what} object: {why}"))?;
        }
        let mut comparison =
            compare(scope.shape(), &was, &value).map_err(|why| format!("failed to compare objects: {why}"))?;
        comparison.ignore(&scope.ignored(self.subresource));
        Ok(comparison)
    }
}

/// Takes what others lose.
pub(super) fn take_away(managers: &mut Managers, conflicts: &Taken, removed: &Taken) {
    for (manager, lost) in conflicts.iter().chain(removed) {
        if let Some(owned) = managers.get_mut(manager) {
            owned.set().remove(lost);
        }
    }
    managers.drop_empty();
}

/// Puts the old times back if nothing but times changed: a write that says the same again is no change.
pub(crate) fn forgive_times(value: &mut Value, was: &Value) {
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
