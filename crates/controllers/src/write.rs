//! Writes as values: what is to be done to the API, decided without doing it.
//!
//! Invariant: whatever changes or deletes an object names the UID that it was decided for, so that nothing is done to
//! another object of the same name.

use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Makes an object.
    Create {
        /// Its kind.
        resource: ApiResource,
        /// The whole of it.
        object: Value,
    },
    /// Changes an object by a merge patch.
    Patch {
        /// Which.
        target: Target,
        /// The patch, without the UID.
        body: Value,
    },
    /// Deletes an object.
    Delete {
        /// Which.
        target: Target,
    },
    /// Tells users of an object.
    Tell(Word),
}

/// An object that is there.
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
    /// The object as it was seen.
    pub fn of(resource: &ApiResource, object: &DynamicObject) -> Self {
        let metadata = &object.metadata;
        Self {
            resource: resource.clone(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
        }
    }

    /// How it is named to people.
    pub fn reference(&self) -> Value {
        json!({
            "apiVersion": self.resource.api_version, "kind": self.resource.kind,
            "namespace": self.namespace, "name": self.name, "uid": self.uid,
        })
    }
}

/// What users are told of an object, as an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Of which object.
    pub about: Target,
    /// Whether something is wrong.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub note: String,
}
