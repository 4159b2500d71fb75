//! Field management: every write records in `managedFields` which manager set which fields, and apply uses it.
//!
//! An update gives its manager the fields that it changed and takes them from all others. An apply owns all fields of
//! its configuration: it conflicts where others own a field that it would change, and removes fields that it no longer
//! contains and no other manager owns. Rules and messages are those of kube-apiserver.
//! Invariant: `managedFields` are updated by every kind of write by a client.
//! Must not depend on requests, the store or validation.

mod apply;
mod compare;
mod field_set;
mod managers;
mod merge;
mod path_element;
mod scale;
mod typed;
mod update;

use std::borrow::Cow;
use std::sync::LazyLock;

use muster_playground_schema::types::{self, Shape, Types};
use serde_json::Value;

use self::field_set::FieldSet;
use crate::kinds::{Kind, Registry, Strategy};

pub(crate) use self::apply::{ApplyError, Conflict, applied};
pub(crate) use self::scale::{Scaled, scaled};
pub(crate) use self::update::{created, ignore_time_changes, updated};

/// How `managedFields` are determined.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldTracking<'a> {
    /// The writer becomes the manager of changed fields.
    Manager(&'a str),
    /// They are already set in the object.
    AlreadySet,
}

/// The field manager, subresource and time of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The time in the format of Kubernetes objects.
    pub(crate) now: &'a str,
}

/// A kind in one version, for field management.
#[derive(Clone, Copy)]
struct KindVersion<'a> {
    registry: &'a Registry,
    kind: &'a Kind,
}

impl<'a> KindVersion<'a> {
    /// The field types of the kind. A kind that is not in the table may have any fields.
    fn shape(self) -> Shape<'a> {
        shape(self.kind)
    }

    /// An object without any field set.
    fn zero_value(self) -> Value {
        match self.kind.strategy {
            Strategy::Builtin(_) => self.shape().types.zero_value(self.shape().root),
            Strategy::Custom(_) => Value::Object(serde_json::Map::new()),
        }
    }

    /// A stored value in the form of the kind's version.
    fn show(self, value: &'_ Value) -> Cow<'_, Value> {
        if self.kind.is_builtin() && !self.kind.is_stored_form() {
            Cow::Owned(self.kind.show(value.clone()))
        } else {
            // All versions of a custom kind have one shape.
            Cow::Borrowed(value)
        }
    }

    /// The same kind in another version, if it is served.
    fn in_version(self, api_version: &str) -> Option<KindVersion<'a>> {
        if self.kind.api_version() == api_version {
            return Some(self);
        }
        let mut kinds = self.registry.all().filter(|kind| kind.table == self.kind.table);
        kinds.find(|kind| kind.api_version() == api_version).map(|kind| KindVersion { registry: self.registry, kind })
    }

    /// Fields that a write through this subresource never changes.
    fn ignored(self, subresource: &str) -> FieldSet {
        ignored(self.kind, subresource)
    }
}

fn shape(kind: &Kind) -> Shape<'_> {
    static ANYTHING: LazyLock<Types> = LazyLock::new(Types::new);
    match &kind.strategy {
        Strategy::Builtin(_) => types::builtin_type(&format!("{}/{}", kind.api_version(), kind.kind))
            .unwrap_or(Shape { types: &ANYTHING, root: types::ANYTHING }),
        Strategy::Custom(custom) => custom.shape(),
    }
}

fn ignored(kind: &Kind, subresource: &str) -> FieldSet {
    let mut ignored = FieldSet::default();
    let custom = !kind.is_builtin();
    match subresource {
        "status" => {
            ignored.add(FieldSet::of_path(&["spec"]));
            // Which metadata a status update may change depends on the kind.
            match &*kind.plural {
                _ if custom => ignored.add(FieldSet::of_path(&["metadata"])),
                "podgroups" | "compositepodgroups" | "resourceclaims" | "csinodes" | "volumeattachments" => {
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

/// Fields without an owner.
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

/// Removes `managedFields` from an object.
pub(crate) fn take(value: &mut Value) -> Option<Value> {
    value.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Replaces the `managedFields` of an object.
pub(crate) fn put(value: &mut Value, managed: Option<Value>) {
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match managed {
        Some(managed) => metadata.insert("managedFields".to_owned(), managed),
        None => metadata.remove("managedFields"),
    };
}
