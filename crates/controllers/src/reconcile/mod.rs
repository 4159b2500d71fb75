//! Pure reconcile decisions: what to write for an item, given the caches.
//!
//! Invariant: for a cluster in the desired state the plan has no writes, so a second pass writes nothing. Must not
//! depend on how writes are sent.

mod job_set_objects;
pub(crate) mod job_sets;
pub(crate) mod jobs;
pub(crate) mod pods;
pub(crate) mod replicas;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{ApiResource, DynamicObject};
use muster_api::keys::POD_GROUP_PROTECTION_FINALIZER as PROTECTION;
use muster_api::owners::GangConfigError;
use muster_api::wire::object::{Kind, Object};
use serde_json::json;

use crate::write::{ObjectEvent, Target, Write};

/// How soon to retry after a name conflict: the deletion of a foreign object enqueues nothing.
pub(crate) const CONFLICT_RETRY: Duration = Duration::from_secs(10);

/// The reason for a gang that waits for members which its owner will never create.
pub(crate) const MEMBERS_NEVER_CREATED: &str = "MembersNeverCreated";

/// The writes of one reconcile, in order, and when to reconcile again even without an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The writes.
    pub writes: Vec<Write>,
    /// When to reconcile again.
    pub requeue_after: Option<Duration>,
}

impl Plan {
    /// A plan with these writes that is not requeued.
    pub fn of(writes: Vec<Write>) -> Self {
        Self { writes, requeue_after: None }
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

/// An owner reference without `blockOwnerDeletion`: a native group waits for its pods, and a pod that waited for its
/// group would never go away.
pub(crate) fn owner_reference<K: Kind<Scope = kube::core::NamespaceResourceScope>>(
    object: &Object<K>,
) -> OwnerReference {
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

/// The target for a typed object.
pub(crate) fn target<K: Kind<Scope = kube::core::NamespaceResourceScope>>(object: &Object<K>) -> Target {
    let metadata = &object.metadata;
    Target {
        resource: ApiResource::erase::<Object<K>>(&()),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
    }
}

/// Removes the protection finalizer of a native group that is being deleted. Kubernetes keeps such a group until no pod
/// names it; the pods of a successor with the same name would keep it forever.
pub(crate) fn remove_protection(target: &Target, object: &DynamicObject) -> Option<Write> {
    let finalizers = object.metadata.finalizers.as_ref().filter(|all| all.iter().any(|one| one == PROTECTION))?;
    let rest: Vec<&String> = finalizers.iter().filter(|one| *one != PROTECTION).collect();
    let version = &object.metadata.resource_version;
    let body = json!({"metadata": {"finalizers": rest, "resourceVersion": version}});
    Some(Write::Patch { target: target.clone(), body })
}

/// The warning event for an invalid gang configuration.
pub(crate) fn warning_event(regarding: Target, error: GangConfigError) -> Write {
    Write::Event(ObjectEvent { regarding, warning: true, reason: error.reason, note: error.message })
}
