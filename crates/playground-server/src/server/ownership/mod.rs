//! Field ownership: every write leaves in `managedFields` who set what, and apply acts on it.
//!
//! An update gives its manager what it changed and takes it from all others. An apply says what its manager wants: it
//! takes over what is new, is refused where others own what it would change, and removes what it no longer wants and
//! nobody else owns. The rules and words are those of the real server.
//! Invariant: what `managedFields` say is kept on every road by which clients write.
//! It must not know requests, the store or how kinds are checked.

mod apply;
mod compare;
mod extent;
mod field_set;
mod managers;
mod merge;
mod scale;
mod step;
mod update;

use std::borrow::Cow;
use std::sync::LazyLock;

use muster_playground_schema::types::{self, Shape, Types};
use serde_json::Value;

use self::field_set::FieldSet;
use crate::kinds::{Kind, Registry, Rules};

pub(crate) use self::apply::{Conflict, NotApplied, applied};
pub(crate) use self::scale::{Scaled, scaled};
pub(crate) use self::update::{created, forgive_times, updated};

/// How the list of managers comes about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owners<'a> {
    /// Who writes gets what changes.
    Writer(&'a str),
    /// It is in the object already.
    Settled,
}

/// Who writes, by which door, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The time as objects carry it.
    pub(crate) now: &'a str,
}

/// A kind as its owners see it.
#[derive(Clone, Copy)]
struct Scope<'a> {
    registry: &'a Registry,
    kind: &'a Kind,
}

impl<'a> Scope<'a> {
    /// What fields the kind has. A kind that is not in the table has any.
    fn shape(self) -> Shape<'a> {
        shape(self.kind)
    }

    /// An object nobody has set anything in.
    fn fresh(self) -> Value {
        match self.kind.rules {
            Rules::Builtin(_) => self.shape().types.fresh(self.shape().root),
            Rules::Custom(_) => Value::Object(serde_json::Map::new()),
        }
    }

    /// A stored value in the shape of the kind's version.
    fn show(self, value: &'_ Value) -> Cow<'_, Value> {
        if self.kind.is_builtin() && !self.kind.shows_as_stored() {
            Cow::Owned(self.kind.show(value.clone()))
        } else {
            // Versions of a custom kind have one shape.
            Cow::Borrowed(value)
        }
    }

    /// The same kind in another version, if it is served.
    fn in_version(self, api_version: &str) -> Option<Scope<'a>> {
        if self.kind.api_version() == api_version {
            return Some(self);
        }
        let mut kinds = self.registry.all().filter(|kind| kind.table == self.kind.table);
        kinds.find(|kind| kind.api_version() == api_version).map(|kind| Scope { registry: self.registry, kind })
    }

    /// Fields that a write by this door does not change, whatever it says.
    fn ignored(self, subresource: &str) -> FieldSet {
        ignored(self.kind, subresource)
    }
}

fn shape(kind: &Kind) -> Shape<'_> {
    static ANYTHING: LazyLock<Types> = LazyLock::new(Types::new);
    match &kind.rules {
        Rules::Builtin(_) => types::of_builtin(&format!("{}/{}", kind.api_version(), kind.kind))
            .unwrap_or(Shape { types: &ANYTHING, root: types::ANYTHING }),
        Rules::Custom(custom) => custom.shape(),
    }
}

fn ignored(kind: &Kind, subresource: &str) -> FieldSet {
    let mut ignored = FieldSet::default();
    let custom = !kind.is_builtin();
    match subresource {
        "status" => {
            ignored.add(FieldSet::of_path(&["spec"]));
            // Which metadata the status may touch differs from kind to kind.
            match &*kind.plural {
                _ if custom => ignored.add(FieldSet::of_path(&["metadata"])),
                "podgroups" | "resourceclaims" | "csinodes" | "volumeattachments" => {
                    ignored.add(FieldSet::of_path(&["metadata"]));
                }
                "deployments" => ignored.add(FieldSet::of_path(&["metadata", "labels"])),
                "pods" => {
                    ignored.add(FieldSet::of_path(&["metadata", "deletionTimestamp"]));
                    ignored.add(FieldSet::of_path(&["metadata", "ownerReferences"]));
                }
                _ => {}
            }
        }
        _ if kind.has_subresource("status") => ignored.add(FieldSet::of_path(&["status"])),
        _ => {}
    }
    ignored
}

/// Fields that are nobody's.
static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    let mut set = FieldSet::default();
    for path in [&["apiVersion"][..], &["kind"], &["metadata"]] {
        set.add(FieldSet::of_path(path));
    }
    for field in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        set.add(FieldSet::of_path(&["metadata", field]));
    }
    set
});

/// Takes `managedFields` out of an object.
pub(crate) fn take(value: &mut Value) -> Option<Value> {
    value.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Puts `managedFields` into an object, in the place of those that are there.
pub(crate) fn put(value: &mut Value, managed: Option<Value>) {
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match managed {
        Some(managed) => metadata.insert("managedFields".to_owned(), managed),
        None => metadata.remove("managedFields"),
    };
}
