//! Ownership of `replicas`, which the `scale` subresource changes in its own shape.
//!
//! For the managers of the object it is one field of many; for those of the Scale it is the only one.

use serde_json::Value;

use super::apply::{ApplyError, Conflict};
use super::field_set::FieldSet;
use super::managers::{Manager, Managers, Operation, Owned};
use super::{KindVersion, Writer, put};
use crate::kinds::{Kind, Registry};

/// How a number of replicas was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scaled {
    Updated,
    Applied { force: bool },
}

/// The version of a Scale, which managers have while seen through the subresource.
const SCALE: &str = "autoscaling/v1";

/// Records the manager of `replicas` at `path` (a JSON pointer); `changes` is whether the number changes.
pub(crate) fn scaled(
    registry: &Registry,
    kind: &Kind,
    value: &mut Value,
    path: &str,
    changes: bool,
    writer: Writer<'_>,
    how: Scaled,
) -> Result<(), ApplyError> {
    let path_elements: Vec<&str> = path.split('/').filter(|path_element| !path_element.is_empty()).collect();
    let field = FieldSet::of_path(&path_elements);
    let mut managers = Managers::stored(value["metadata"]["managedFields"].clone());
    if managers.is_empty() && how == Scaled::Updated {
        return Ok(());
    }
    let scope = KindVersion { registry, kind };
    managers.retain_versions(|version| scope.in_version(version).is_some());
    let version = kind.api_version();
    let me = match how {
        Scaled::Updated => Manager::updater(writer.manager, &version, writer.subresource),
        Scaled::Applied { .. } => Manager::applier(writer.manager, writer.subresource),
    };
    if changes {
        let mut owners = Vec::new();
        for (manager, owned) in managers.iter_mut().filter(|(manager, _)| **manager != me) {
            if !owned.set().intersection(&field).is_empty() {
                owners.push(manager.clone());
            }
        }
        if how == (Scaled::Applied { force: false }) && !owners.is_empty() {
            return Err(ApplyError::Conflicts(owners.into_iter().map(conflict).collect()));
        }
        for owner in owners {
            if let Some(owned) = managers.get_mut(&owner) {
                owned.set().remove(&field);
            }
        }
    }
    if changes || how != Scaled::Updated {
        // The time is lost in the conversion between the two shapes.
        let known = managers.get_mut(&me).is_some_and(|owned| !owned.set().intersection(&field).is_empty());
        if !known {
            managers.insert(me, Owned::new(&version, None, field));
        }
    }
    managers.drop_empty();
    put(value, managers.write());
    Ok(())
}

/// A conflict as reported for a Scale.
fn conflict(owner: Manager) -> Conflict {
    let version = if owner.operation == Operation::Update { SCALE.to_owned() } else { owner.version };
    let path = ["f:spec", "f:replicas"].map(str::to_owned).to_vec();
    Conflict { manager: Manager { version, ..owner }, path }
}
