//! Dialects: the ways in which clusters write groups, each one file, all read into one form.
//!
//! A dialect says how a pod names its group, how an object becomes groups, and how status is written back. Everything
//! behind this trait is the same for all of them.
//! A dialect must not know the engine's decisions, other objects, or the network.

mod condition;
mod draft;
mod muster_pod_group;
mod muster_workload;
mod native_conditions;
mod native_pod_group;
mod native_v1alpha1;
mod native_v1alpha2;
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

pub(crate) use condition::{Conditions, is_ours, started_minimum};
pub(crate) use draft::{Draft, Flaw, FlawKind, GroupObject, Mismatch, WithoutClass};
pub(crate) use muster_pod_group::MusterPodGroup;
pub(crate) use muster_workload::MusterWorkload;
pub(crate) use native_pod_group::NativePodGroup;
pub(crate) use native_v1alpha1::NativeWorkload;
pub(crate) use native_v1alpha2::NativePodGroupV1alpha2;
pub(crate) use scheduler_plugins::SchedulerPlugins;
pub(crate) use status::{Counts, InstanceStatus, ObjectStatus};
pub(crate) use volcano::Volcano;

/// One way of writing groups.
pub(crate) trait Dialect: Send + Sync {
    /// The dialect as users know it: group and kind of its objects.
    fn origin(&self) -> &'static str;

    /// Where its objects are.
    fn resource(&self) -> ApiResource;

    /// The group that the pod names in this dialect, if it names one.
    fn reference(&self, pod: &Pod) -> Option<Result<Reference, InvalidField>>;

    /// Reads an object from its JSON text. What is wrong with it is part of the answer.
    fn read(&self, text: &str) -> GroupObject;

    /// What has to be sent to the object's `status` so that it shows this; `None` if it does already.
    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch>;
}

/// The group that a pod names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The object that defines it, in the pod's namespace.
    pub(crate) object: String,
    /// The group inside the object; empty if the object is the group.
    pub(crate) group: String,
    /// Which replica of it; empty if there is one.
    pub(crate) replica: String,
    /// The subset; empty if the pod names none.
    pub(crate) subset: String,
}

impl Reference {
    /// An object that is the group.
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
    /// A JSON merge patch of an object whose kind has no `status` of its own to be written.
    OfObject(Value),
}

impl StatusPatch {
    /// What is sent.
    pub(crate) fn body(&self) -> &Value {
        match self {
            Self::Merge(body) | Self::Strategic(body) | Self::OfObject(body) => body,
        }
    }
}
