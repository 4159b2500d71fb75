//! Writes as values: API requests that a reconcile decided on and the actuator sends.
//!
//! Invariant: a write that changes or deletes an object names its UID, so that another object of the same name is never
//! touched.

use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Creates an object.
    Create {
        /// Its kind.
        resource: ApiResource,
        /// The complete object.
        object: Value,
    },
    /// Changes an object by a merge patch.
    Patch {
        /// The object.
        target: Target,
        /// The patch, without the UID.
        body: Value,
    },
    /// Deletes an object.
    Delete {
        /// The object.
        target: Target,
    },
    /// Changes one condition in the status of an object. Where the server forbids it, the rest of the plan is left out.
    Condition(ConditionChange),
    /// Records an event about an object.
    Event(ObjectEvent),
}

/// A change of one condition. The others are not part of the request, and the object must be as it was seen, so that no
/// condition of another writer is lost.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionChange {
    /// The object.
    pub target: Target,
    /// The object as it was seen.
    pub resource_version: String,
    /// Where the condition is in the list, if it is there.
    pub index: Option<usize>,
    /// Whether the list is empty or does not exist.
    pub is_first: bool,
    /// The condition; `None` removes it. Without `lastTransitionTime` it gets the time of the write.
    pub condition: Option<Value>,
}

/// An existing object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its kind.
    pub resource: ApiResource,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Target {
    /// The target for an object from a cache.
    pub fn of(resource: &ApiResource, object: &DynamicObject) -> Self {
        let metadata = &object.metadata;
        Self {
            resource: resource.clone(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
        }
    }

    /// The object reference, as events have it.
    pub fn reference(&self) -> Value {
        json!({
            "apiVersion": self.resource.api_version, "kind": self.resource.kind,
            "namespace": self.namespace, "name": self.name, "uid": self.uid,
        })
    }
}

/// An event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEvent {
    /// The object.
    pub regarding: Target,
    /// Whether the type is `Warning` instead of `Normal`.
    pub warning: bool,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// The message.
    pub note: String,
}
