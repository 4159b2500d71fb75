//! Dialects: the group APIs that are read, one file each, all into one form.
//!
//! A dialect defines how a pod names its group, how an object becomes groups, and how status is written back.
//! Everything behind this trait is the same for all of them.
//! Must not depend on the engine's decisions, other objects, or the network.

mod condition;
mod group_error;
mod group_object;
mod made_for;
mod muster_pod_group;
mod muster_workload;
mod native_composite;
mod native_conditions;
mod native_pod_group;
mod native_workload;
mod parsed_group;
pub(crate) mod recorded_start;
mod scheduler_plugins;
mod status;
#[cfg(test)]
mod tests;
mod volcano;

use kube::core::ApiResource;
use muster_api::invalid::InvalidField;
use muster_api::wire::Pod;
use muster_engine::model::group::GroupKey;
use serde_json::Value;

pub(crate) use condition::{Conditions, is_ours};
pub(crate) use group_error::{GroupError, GroupErrorKind};
pub(crate) use group_object::GroupObject;
pub(crate) use made_for::MadeFor;
pub(crate) use muster_pod_group::MusterPodGroup;
pub(crate) use muster_workload::MusterWorkload;
pub(crate) use native_composite::NativeCompositePodGroup;
pub(crate) use native_pod_group::NativePodGroup;
pub(crate) use native_workload::NativeWorkload;
pub(crate) use parsed_group::{Parent, ParsedGroup, ParsedLaterPods, PriorityField, WithoutClass};
pub(crate) use scheduler_plugins::SchedulerPlugins;
pub(crate) use status::{InstanceStatus, ObjectStatus};
pub(crate) use volcano::Volcano;

/// A group API.
pub(crate) trait Dialect: Send + Sync {
    /// The group and kind of its objects, as users know it.
    fn origin(&self) -> &'static str;

    /// Its API resource.
    fn resource(&self) -> ApiResource;

    /// The group that the pod names in this dialect, if it names one.
    fn reference(&self, pod: &Pod) -> Option<Result<Reference, InvalidField>>;

    /// Parses an object from its JSON text. Errors are part of the result.
    fn read(&self, text: &str) -> GroupObject;

    /// The patch of the object's `status` to this status; `None` if it is already current.
    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch>;
}

/// The group that a pod names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The object that defines it, in the pod's namespace.
    pub(crate) object: String,
    /// The group inside the object; empty if the object is the group.
    pub(crate) group: String,
    /// The replica; empty if there is only one.
    pub(crate) replica: String,
    /// The subset; empty if the pod names none.
    pub(crate) subset: String,
}

impl Reference {
    /// A reference to an object that is the group.
    pub(crate) fn to_object(name: &str) -> Self {
        Self { object: name.to_owned(), group: String::new(), replica: String::new(), subset: String::new() }
    }

    /// The group's key in the engine.
    pub(crate) fn key(&self, origin: &str, namespace: &str) -> GroupKey {
        let name = if self.group.is_empty() { self.object.clone() } else { format!("{}/{}", self.object, self.group) };
        GroupKey { origin: origin.to_owned(), namespace: namespace.to_owned(), name, replica: self.replica.clone() }
    }
}

/// A patch of an object's status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StatusPatch {
    /// A JSON merge patch.
    Merge(Value),
    /// A strategic merge patch: lists are merged by their keys.
    Strategic(Value),
    /// A JSON merge patch of the object itself, for kinds without a `status` subresource.
    OfObject(Value),
}

impl StatusPatch {
    /// The body of the patch.
    pub(crate) fn body(&self) -> &Value {
        match self {
            Self::Merge(body) | Self::Strategic(body) | Self::OfObject(body) => body,
        }
    }
}
