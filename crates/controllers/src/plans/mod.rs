//! What is to be written for an object, given all that has been seen: pure decisions.
//!
//! Invariant: a plan for a world that is as it should be has no writes, so a second pass writes nothing.
//! It must not know how writes are sent.

mod job_set_objects;
pub(crate) mod job_sets;
pub(crate) mod jobs;
pub(crate) mod pods;
pub(crate) mod replicas;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{ApiResource, DynamicObject};
use muster_api::keys::POD_GROUP_PROTECTION_FINALIZER as PROTECTION;
use muster_api::makers::Flaw;
use muster_api::wire::object::{Kind, Object};
use serde_json::json;

use crate::write::{Target, Word, Write};

/// How long something may be in the way before it is looked at again: its end concerns nobody that we know.
pub(crate) const IN_THE_WAY: Duration = Duration::from_secs(10);

/// What is to be written, in this order, and when to look again even if nothing happens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The writes.
    pub writes: Vec<Write>,
    /// When to look again.
    pub again: Option<Duration>,
}

impl Plan {
    /// These writes.
    pub fn of(writes: Vec<Write>) -> Self {
        Self { writes, again: None }
    }
}

/// Whether an object's controller is the object of this UID.
pub(crate) fn is_controlled_by(metadata: &ObjectMeta, uid: &str) -> bool {
    controller_of(metadata).is_some_and(|owner| owner.uid == uid)
}

/// The controller of an object.
pub(crate) fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// A reference to an owner that need not wait for what it owns: a native group waits for its pods, and a pod that waited
/// for its group would never go.
pub(crate) fn owner<K: Kind<Scope = kube::core::NamespaceResourceScope>>(object: &Object<K>) -> OwnerReference {
    let resource = ApiResource::erase::<Object<K>>(&());
    OwnerReference {
        api_version: resource.api_version,
        kind: resource.kind,
        name: object.metadata.name.clone().unwrap_or_default(),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}

/// The object, to be written or spoken of.
pub(crate) fn target<K: Kind<Scope = kube::core::NamespaceResourceScope>>(object: &Object<K>) -> Target {
    let metadata = &object.metadata;
    Target {
        resource: ApiResource::erase::<Object<K>>(&()),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
    }
}

/// Kubernetes keeps groups of its own that are deleted until no pod names them. Where a successor of the same name is
/// wanted its pods name the old one already, and would keep it for ever: then it is let go.
pub(crate) fn let_go(target: &Target, object: &DynamicObject) -> Option<Write> {
    let kept = object.metadata.finalizers.as_ref().filter(|all| all.iter().any(|one| one == PROTECTION))?;
    let rest: Vec<&String> = kept.iter().filter(|one| *one != PROTECTION).collect();
    let version = &object.metadata.resource_version;
    let body = json!({"metadata": {"finalizers": rest, "resourceVersion": version}});
    Some(Write::Patch { target: target.clone(), body })
}

/// Tells of a flaw.
pub(crate) fn tell_flaw(about: Target, flaw: Flaw) -> Write {
    Write::Tell(Word { about, warning: true, reason: flaw.reason, note: flaw.message })
}
