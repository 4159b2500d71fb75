//! Server-side apply: merges a manager's configuration into an object unless it conflicts with other managers.
//!
//! Fields that the manager applied before and no longer applies are removed, unless another manager owns them. Must not
//! depend on requests.

use std::borrow::Cow;
use std::collections::BTreeMap;

use muster_playground_schema::types::Shape;
use serde_json::Value;

use super::compare::compare;
use super::field_set::FieldSet;
use super::managers::{Manager, Managers, Owned};
use super::merge::merge;
use super::path_element::shown_path;
use super::typed::{self, Duplicates, TypeErrors, fields_of, with_named_fields, without};
use super::update::{Change, FieldsError, OwnedFields, changed, remove_owned};
use super::{KindVersion, UNOWNED, Writer, put};
use crate::kinds::{Kind, Registry};

/// Why a configuration was not applied.
#[derive(Debug)]
pub(crate) enum ApplyError {
    /// Other managers own fields that would change.
    Conflicts(Vec<Conflict>),
    /// The configuration does not fit the kind.
    Invalid(FieldsError),
}

impl From<FieldsError> for ApplyError {
    fn from(error: FieldsError) -> Self {
        ApplyError::Invalid(error)
    }
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

/// The manager of fields that existed before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager name of kubectl, which also has client-side apply.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The object after a configuration was applied to it, in the version of the kind, with its `managedFields`. Without an
/// object, the one to create.
pub(crate) fn applied(
    registry: &Registry,
    kind: &Kind,
    live: Option<&Value>,
    config: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let scope = KindVersion { registry, kind };
    let invalid = |errors: TypeErrors| {
        let text = |field: &str| config["metadata"][field].as_str().unwrap_or_default();
        let (name, namespace) = (text("name"), text("namespace"));
        let (group, version) = (&kind.group, &kind.version);
        let object = format!("{namespace}/{name}; {group}/{version}, Kind={}", kind.kind);
        FieldsError::Configuration { object, errors }
    };
    typed::check(scope.shape(), config, Duplicates::Rejected).map_err(invalid)?;
    let shown = live.map_or_else(|| Cow::Owned(scope.zero_value()), |live| scope.show(live));
    let apply = Apply { scope, live, shown, config, writer };
    let mut value = match apply.run(force) {
        Err(ApplyError::Conflicts(conflicts)) if writer.manager == KUBECTL => apply.ignore_last_applied(conflicts)?,
        other => other?,
    };
    if writer.manager == KUBECTL {
        update_last_applied(&mut value, config);
    }
    Ok(value)
}

struct Apply<'a> {
    scope: KindVersion<'a>,
    /// The stored object, if there is one.
    live: Option<&'a Value>,
    /// The object, or a zero value, in the version of the kind.
    shown: Cow<'a, Value>,
    /// The configuration, in the version of the kind.
    config: &'a Value,
    writer: Writer<'a>,
}

impl Apply<'_> {
    fn run(&self, force: bool) -> Result<Value, ApplyError> {
        let (scope, writer) = (self.scope, self.writer);
        let mut managers = self.managers()?;
        let mut value = merge(scope.shape(), &self.shown, self.config).map_err(FieldsError::Merge)?;
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
        // `managedFields` are not part of the comparison.
        put(&mut value, self.shown["metadata"].get("managedFields").cloned());
        if let Some(live) = self.live {
            self.resolve_conflicts(live, &value, &manager, &mut managers, force)?;
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

    /// The managers of the object. Without any, all existing fields belong to `before-first-apply`.
    fn managers(&self) -> Result<Managers, ApplyError> {
        let mut managers = Managers::default();
        if let Some(live) = self.live {
            managers = Managers::stored(live["metadata"]["managedFields"].clone());
            if managers.is_empty() {
                let before = Writer { manager: BEFORE_FIRST_APPLY, ..self.writer };
                changed(self.scope, None, live, before, &mut managers)?;
            }
        }
        Ok(managers)
    }

    /// Takes changed fields from other managers, or returns the conflicts.
    fn resolve_conflicts(
        &self,
        live: &Value,
        value: &Value,
        manager: &Manager,
        managers: &mut Managers,
        force: bool,
    ) -> Result<(), ApplyError> {
        let (scope, subresource) = (self.scope, self.writer.subresource);
        let stored = self.stored(value.clone());
        let mut comparison = compare(scope.shape(), &self.shown, value).map_err(FieldsError::Compare)?;
        comparison.ignore(&scope.ignored(subresource));
        let change = Change { was: live, value: &stored, comparison: &comparison, subresource };
        let (conflicts, removed) = change.owned_by_others(scope, managers, Some(manager))?;
        if !force && !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflict_list(conflicts)));
        }
        remove_owned(managers, &conflicts, &removed);
        Ok(())
    }

    /// Converts a value of this version to the stored form.
    fn stored(&self, value: Value) -> Value {
        if self.scope.kind.is_builtin() && !self.scope.kind.is_stored_form() {
            self.scope.kind.decode(value.clone()).map_or(value, |(stored, _)| stored)
        } else {
            value
        }
    }

    /// kubectl may change what it applied itself before by client-side apply.
    fn ignore_last_applied(&self, conflicts: Vec<Conflict>) -> Result<Value, ApplyError> {
        let Some(allowed) = self.last_applied() else { return Err(ApplyError::Conflicts(conflicts)) };
        let left: Vec<Conflict> = conflicts.into_iter().filter(|conflict| !allowed.has_path(&conflict.path)).collect();
        if left.is_empty() { self.run(true) } else { Err(ApplyError::Conflicts(left)) }
    }

    /// The fields from client-side apply that still have the applied values.
    fn last_applied(&self) -> Option<FieldSet> {
        let text = self.live?["metadata"]["annotations"][LAST_APPLIED].as_str().filter(|text| !text.is_empty())?;
        let before: Value = serde_json::from_str(text).ok()?;
        let shape = self.scope.shape();
        if before["apiVersion"] != self.scope.kind.api_version()
            || typed::check(shape, &before, Duplicates::Rejected).is_err()
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

fn conflict_list(conflicts: OwnedFields) -> Vec<Conflict> {
    let conflicts = conflicts.into_iter().flat_map(|(manager, set)| {
        set.paths().into_iter().map(move |path| Conflict { manager: manager.clone(), path })
    });
    conflicts.collect()
}

/// Removes the fields that the manager no longer applies and that no other manager owns.
fn prune(scope: KindVersion<'_>, merged: Value, version: &str, last: &FieldSet, managers: &mut Managers) -> Value {
    // All versions have one shape, or are converted to the requested one.
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
    without(shape, &merged, &gone.intersection(&with_named_fields(shape, last)))
}

/// Updates the annotation of client-side apply, if it exists.
fn update_last_applied(value: &mut Value, config: &Value) {
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
