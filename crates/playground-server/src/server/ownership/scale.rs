//! Who owns the number of replicas, which the `scale` subresource changes by a shape of its own.
//!
//! To the managers of the object it is one field; to those of the Scale it is the only one.

use serde_json::Value;

use super::apply::{Conflict, NotApplied};
use super::field_set::FieldSet;
use super::managers::{Manager, Managers, Operation, Owned};
use super::{Scope, Writer, put};
use crate::kinds::{Kind, Registry};

/// How a number of replicas is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scaled {
    Updated,
    Applied { force: bool },
}

/// The version of a Scale, which is that of its managers for as long as they look at it.
const SCALE: &str = "autoscaling/v1";

/// Notes who set the number of replicas at `path` (a JSON pointer); `changes` says whether it is another than before.
pub(crate) fn scaled(
    registry: &Registry,
    kind: &Kind,
    value: &mut Value,
    path: &str,
    changes: bool,
    writer: Writer<'_>,
    how: Scaled,
) -> Result<(), NotApplied> {
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    let field = FieldSet::of_path(&steps);
    let mut managers = Managers::stored(value["metadata"]["managedFields"].clone());
    if managers.is_empty() && how == Scaled::Updated {
        return Ok(());
    }
    let scope = Scope { registry, kind };
    managers.keep_versions(|version| scope.in_version(version).is_some());
    let version = kind.api_version();
    let me = match how {
        Scaled::Updated => Manager::updater(writer.manager, &version, writer.subresource),
        Scaled::Applied { .. } => Manager::applier(writer.manager, writer.subresource),
    };
    if changes {
        let mut owners = Vec::new();
        for (manager, owned) in managers.iter_mut().filter(|(manager, _)| **manager != me) {
            if !owned.set().common(&field).is_empty() {
                owners.push(manager.clone());
            }
        }
        if how == (Scaled::Applied { force: false }) && !owners.is_empty() {
            return Err(NotApplied::Conflicts(owners.into_iter().map(conflict).collect()));
        }
        for owner in owners {
            if let Some(owned) = managers.get_mut(&owner) {
                owned.set().remove(&field);
            }
        }
    }
    if changes || how != Scaled::Updated {
        // Whatever time it was is lost on the way between the two shapes.
        let known = managers.get_mut(&me).is_some_and(|owned| !owned.set().common(&field).is_empty());
        if !known {
            managers.insert(me, Owned::new(&version, None, field));
        }
    }
    managers.drop_empty();
    put(value, managers.write());
    Ok(())
}

/// A conflict as those see it who look at a Scale.
fn conflict(owner: Manager) -> Conflict {
    let version = if owner.operation == Operation::Update { SCALE.to_owned() } else { owner.version };
    let path = ["f:spec", "f:replicas"].map(str::to_owned).to_vec();
    Conflict { manager: Manager { version, ..owner }, path }
}
