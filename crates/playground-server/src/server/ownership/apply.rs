//! Server-side apply: a manager says all that it wants, and the object becomes that, if others let it.
//!
//! What it wanted before and wants no more goes, unless somebody else owns it. It must not know requests.

use std::borrow::Cow;
use std::collections::BTreeMap;

use muster_playground_schema::types::Shape;
use serde_json::Value;

use super::compare::compare;
use super::extent::{self, Twice, fields_of, with_named_fields, without};
use super::field_set::FieldSet;
use super::managers::{Manager, Managers, Owned};
use super::merge::merge;
use super::step::shown_path;
use super::update::{Change, Taken, changed, take_away};
use super::{Scope, UNOWNED, Writer, put};
use crate::kinds::{Kind, Registry};

/// Why something was not applied.
#[derive(Debug)]
pub(crate) enum NotApplied {
    /// Others own what would change.
    Conflicts(Vec<Conflict>),
    /// The configuration does not fit the kind.
    Unfit(String),
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) manager: Manager,
    pub(crate) path: Vec<String>,
}

impl Conflict {
    pub(crate) fn field(&self) -> String {
        shown_path(&self.path)
    }
}

/// The manager that owns what was there before the first apply.
const BEFORE: &str = "before-first-apply";
/// The manager that stands for kubectl, which knows an older way to apply.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The object after a configuration was applied to it, in the version of the kind, with its managers. Without an
/// object, it is what there would be.
pub(crate) fn applied(
    registry: &Registry,
    kind: &Kind,
    live: Option<&Value>,
    config: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, NotApplied> {
    let scope = Scope { registry, kind };
    let about = |why: String| {
        let text = |field: &str| config["metadata"][field].as_str().unwrap_or_default();
        let (name, namespace) = (text("name"), text("namespace"));
        let (group, version) = (&kind.group, &kind.version);
        NotApplied::Unfit(format!(
            "failed to create typed patch object ({namespace}/{name}; {group}/{version}, Kind={}): {why}",
            kind.kind
        ))
    };
    extent::check(scope.shape(), config, Twice::Refused).map_err(about)?;
    let shown = live.map_or_else(|| Cow::Owned(scope.fresh()), |live| scope.show(live));
    let apply = Apply { scope, live, shown, config, writer };
    let mut value = match apply.run(force) {
        Err(NotApplied::Conflicts(conflicts)) if writer.manager == KUBECTL => apply.despite_last_applied(conflicts)?,
        other => other?,
    };
    if writer.manager == KUBECTL {
        remember_last_applied(&mut value, config);
    }
    Ok(value)
}

struct Apply<'a> {
    scope: Scope<'a>,
    /// The object as it is stored, if there is one.
    live: Option<&'a Value>,
    /// The object, or an empty one, in the version of the kind.
    shown: Cow<'a, Value>,
    /// In the version of the kind.
    config: &'a Value,
    writer: Writer<'a>,
}

impl Apply<'_> {
    fn run(&self, force: bool) -> Result<Value, NotApplied> {
        let (scope, writer) = (self.scope, self.writer);
        let mut managers = self.managers()?;
        let failed = |what: &str, why: String| NotApplied::Unfit(format!("failed to {what}: {why}"));
        let mut value = merge(scope.shape(), &self.shown, self.config).map_err(|why| failed("merge config", why))?;
        let manager = Manager::applier(writer.manager, writer.subresource);
        let last = managers.remove(&manager);
        let time = last.as_ref().and_then(|last| last.time.clone());
        let mut wanted = fields_of(scope.shape(), self.config);
        wanted.remove_trees(&scope.ignored(writer.subresource));
        managers.insert(manager.clone(), Owned::new(&scope.kind.api_version(), time, wanted));
        if let Some(mut last) = last {
            let set = std::mem::take(last.set());
            value = prune(scope, value, &last.version, &set, &mut managers);
        }
        // The list of managers is not part of what is compared.
        put(&mut value, self.shown["metadata"].get("managedFields").cloned());
        if let Some(live) = self.live {
            self.settle(live, &value, &manager, &mut managers, force)?;
        }
        if let Some(owned) = managers.get_mut(&manager) {
            owned.set().remove(&UNOWNED);
            if value != *self.shown {
                owned.time = Some(writer.now.to_owned());
            }
        }
        managers.drop_empty();
        put(&mut value, managers.write());
        Ok(value)
    }

    /// The managers of the object. Without any, all that is there belongs to one that stands for the time before.
    fn managers(&self) -> Result<Managers, NotApplied> {
        let mut managers = Managers::default();
        if let Some(live) = self.live {
            managers = Managers::stored(live["metadata"]["managedFields"].clone());
            if managers.is_empty() {
                let before = Writer { manager: BEFORE, ..self.writer };
                changed(self.scope, None, live, before, &mut managers).map_err(NotApplied::Unfit)?;
            }
        }
        Ok(managers)
    }

    /// Takes what changed from others, or finds that they do not let it go.
    fn settle(
        &self,
        live: &Value,
        value: &Value,
        manager: &Manager,
        managers: &mut Managers,
        force: bool,
    ) -> Result<(), NotApplied> {
        let (scope, door) = (self.scope, self.writer.subresource);
        let stored = self.stored(value.clone());
        let mut comparison = compare(scope.shape(), &self.shown, value)
            .map_err(|why| NotApplied::Unfit(format!("failed to compare objects: {why}")))?;
        comparison.ignore(&scope.ignored(door));
        let change = Change { was: live, value: &stored, comparison: &comparison, subresource: door };
        let (conflicts, removed) = change.of_others(scope, managers, Some(manager)).map_err(NotApplied::Unfit)?;
        if !force && !conflicts.is_empty() {
            return Err(NotApplied::Conflicts(told(conflicts)));
        }
        take_away(managers, &conflicts, &removed);
        Ok(())
    }

    /// A value of this version as it is stored.
    fn stored(&self, value: Value) -> Value {
        if self.scope.kind.is_builtin() && !self.scope.kind.shows_as_stored() {
            self.scope.kind.read(value.clone()).map_or(value, |(stored, _)| stored)
        } else {
            value
        }
    }

    /// kubectl may change what it applied itself before, in its older way.
    fn despite_last_applied(&self, conflicts: Vec<Conflict>) -> Result<Value, NotApplied> {
        let Some(allowed) = self.last_applied() else { return Err(NotApplied::Conflicts(conflicts)) };
        let left: Vec<Conflict> = conflicts.into_iter().filter(|conflict| !allowed.has_path(&conflict.path)).collect();
        if left.is_empty() { self.run(true) } else { Err(NotApplied::Conflicts(left)) }
    }

    /// The fields that were applied in the older way and are still as they were applied.
    fn last_applied(&self) -> Option<FieldSet> {
        let text = self.live?["metadata"]["annotations"][LAST_APPLIED].as_str().filter(|text| !text.is_empty())?;
        let before: Value = serde_json::from_str(text).ok()?;
        let shape = self.scope.shape();
        if before["apiVersion"] != self.scope.kind.api_version()
            || extent::check(shape, &before, Twice::Refused).is_err()
        {
            return None;
        }
        let mut fields = fields_of(shape, &before);
        let comparison = compare(shape, &before, &self.shown).ok()?;
        for changed in [&comparison.modified, &comparison.added, &comparison.removed] {
            fields.remove(changed);
        }
        Some(fields)
    }
}

fn told(conflicts: Taken) -> Vec<Conflict> {
    let conflicts = conflicts.into_iter().flat_map(|(manager, set)| {
        set.paths().into_iter().map(move |path| Conflict { manager: manager.clone(), path })
    });
    conflicts.collect()
}

/// Takes out what the manager applied last and applies no more, and nobody else owns.
fn prune(scope: Scope<'_>, merged: Value, version: &str, last: &FieldSet, managers: &mut Managers) -> Value {
    // Versions have one shape, or are read as the one that is asked for.
    let Some(at) = scope.in_version(version) else { return merged };
    let shape = if at.kind.is_builtin() { scope.shape() } else { at.shape() };
    let mut pruned = without(shape, &merged, &with_named_fields(shape, last));
    let mut by_version: Vec<(Shape<'_>, FieldSet)> = Vec::new();
    let mut owned_at: BTreeMap<String, FieldSet> = BTreeMap::new();
    for (_, owned) in managers.iter_mut() {
        let set = owned.set().clone();
        owned_at.entry(owned.version.clone()).or_default().add(set);
    }
    // The pruned version first, then the others.
    if let Some(set) = owned_at.remove(version) {
        by_version.push((shape, set));
    }
    for (version, set) in owned_at {
        if let Some(other) = scope.in_version(&version) {
            by_version.push((if other.kind.is_builtin() { scope.shape() } else { other.shape() }, set));
        }
    }
    for (shape, owned) in by_version {
        let mut gone = with_named_fields(shape, &fields_of(shape, &merged));
        gone.remove(&with_named_fields(shape, &fields_of(shape, &pruned)));
        gone.remove(&with_named_fields(shape, &owned));
        pruned = without(shape, &merged, &gone);
    }
    let mut gone = with_named_fields(shape, &fields_of(shape, &merged));
    gone.remove(&with_named_fields(shape, &fields_of(shape, &pruned)));
    without(shape, &merged, &gone.common(&with_named_fields(shape, last)))
}

/// The annotation of the older way follows, where it is there.
fn remember_last_applied(value: &mut Value, config: &Value) {
    let annotations = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotation) = annotations.and_then(|annotations| annotations.get_mut(LAST_APPLIED)) else { return };
    if annotation.as_str().is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    *annotation = Value::String(format!("{config}\n"));
}
