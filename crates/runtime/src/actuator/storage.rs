//! Reserves volumes for claims, and selects the nodes for which volumes are provisioned.
//!
//! Neither can be undone, so each write names the version of the object that was decided on: nothing is written over
//! what another writer has changed since, and a repeated write changes nothing. If the response does not show whether a
//! write took effect, the current object is read. After a conflict, too, since an earlier write whose response was lost
//! may be what conflicts.

use kube::Api;
use kube::api::{Patch, PatchParams};
use muster_api::keys::storage::{BOUND_BY_CONTROLLER, SELECTED_NODE};
use muster_engine::model::storage::{ClaimName, StorageWriteOutcome};
use serde_json::{Value, json};
use tokio::time::timeout_at;

use super::RequestContext;
use super::bind::{FENCED, NO_ANSWER};
use super::outcome::Failure;
use crate::intake::raw::RawObject;
use crate::intake::storage::Storage;

/// A write to a claim or volume.
struct Write<'a> {
    kind: Storage,
    /// Empty for a volume.
    namespace: &'a str,
    name: &'a str,
    /// The version of the object that was decided on.
    version: &'a str,
    /// A merge patch with that version.
    patch: Value,
}

/// What the current object shows.
enum CurrentState {
    /// What was to be written.
    Written,
    /// The object as it was decided on.
    Unchanged,
    /// Another state of it: the write cannot take effect any more.
    Changed,
    /// It does not exist, or another object has its name.
    Gone,
    /// It could not be read.
    Unknown(String),
}

impl RequestContext {
    /// Sets the `claimRef` of a volume; the volume controller does the rest.
    pub(super) async fn reserve_volume(
        &self,
        claim: &ClaimName,
        claim_version: &str,
        volume: &str,
        version: &str,
    ) -> StorageWriteOutcome {
        let claim_ref = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace, "name": claim.name,
            "uid": claim.uid, "resourceVersion": claim_version,
        });
        let metadata = json!({"resourceVersion": version, "annotations": {BOUND_BY_CONTROLLER: "yes"}});
        let patch = json!({"metadata": metadata, "spec": {"claimRef": claim_ref}});
        let write = Write { kind: Storage::Volume, namespace: "", name: volume, version, patch };
        self.write_storage(&write, |volume| {
            let found = &volume["spec"]["claimRef"];
            let is_ours =
                found["namespace"] == claim.namespace && found["name"] == claim.name && found["uid"] == claim.uid;
            Some(is_ours)
        })
        .await
    }

    /// Sets the node for which the volume of a claim is provisioned.
    pub(super) async fn select_node(&self, claim: &ClaimName, version: &str, node: &str) -> StorageWriteOutcome {
        let annotations = json!({SELECTED_NODE: node});
        let patch = json!({"metadata": {"uid": claim.uid, "resourceVersion": version, "annotations": annotations}});
        let (namespace, name) = (claim.namespace.as_str(), claim.name.as_str());
        let write = Write { kind: Storage::Claim, namespace, name, version, patch };
        self.write_storage(&write, |found| {
            let metadata = &found["metadata"];
            (metadata["uid"] == claim.uid).then(|| metadata["annotations"][SELECTED_NODE] == node)
        })
        .await
    }

    /// Sends a write. `is_written` says whether an object shows it; nothing if it is another object of that name.
    async fn write_storage(
        &self,
        write: &Write<'_>,
        is_written: impl Fn(&Value) -> Option<bool>,
    ) -> StorageWriteOutcome {
        let Some(deadline) = self.deadline() else {
            return StorageWriteOutcome::Transient { message: FENCED.to_owned() };
        };
        let (api, parameters) = (self.storage_api(write), PatchParams::default());
        let patch = Patch::Merge(&write.patch);
        let request = api.patch(write.name, &parameters, &patch);
        let Err(failure) = self.send(("patch", write.kind.plural()), deadline, request).await else {
            return StorageWriteOutcome::Written;
        };
        let error = failure.message().to_owned();
        match failure {
            Failure::Refused(message) | Failure::Missing(message) => return StorageWriteOutcome::Refused { message },
            Failure::Busy(message, _) => return StorageWriteOutcome::Transient { message },
            Failure::Conflict(_) | Failure::Unknown(_) => {}
        }
        let what = write.kind.resource().kind;
        match self.read_storage(write, is_written).await {
            CurrentState::Written => StorageWriteOutcome::Written,
            CurrentState::Unchanged => StorageWriteOutcome::Transient { message: error },
            CurrentState::Changed => {
                let message = format!("another writer has changed the {what} {} meanwhile: {error}", write.name);
                StorageWriteOutcome::Refused { message }
            }
            CurrentState::Gone => {
                StorageWriteOutcome::Refused { message: format!("the {what} {} is gone", write.name) }
            }
            CurrentState::Unknown(why) => {
                StorageWriteOutcome::Transient { message: format!("{error}; and then: {why}") }
            }
        }
    }

    async fn read_storage(&self, write: &Write<'_>, is_written: impl Fn(&Value) -> Option<bool>) -> CurrentState {
        let Some(deadline) = self.deadline() else { return CurrentState::Unknown(FENCED.to_owned()) };
        let found = match timeout_at(deadline, self.storage_api(write).get(write.name)).await {
            Ok(Ok(found)) => serde_json::from_str::<Value>(found.text.get()),
            Ok(Err(error)) => {
                return match Failure::of(&error) {
                    Failure::Missing(_) => CurrentState::Gone,
                    failure => CurrentState::Unknown(failure.message().to_owned()),
                };
            }
            Err(_) => return CurrentState::Unknown(NO_ANSWER.to_owned()),
        };
        match found {
            Err(error) => CurrentState::Unknown(error.to_string()),
            Ok(found) => match is_written(&found) {
                None => CurrentState::Gone,
                Some(true) => CurrentState::Written,
                Some(false) if found["metadata"]["resourceVersion"] == write.version => CurrentState::Unchanged,
                Some(false) => CurrentState::Changed,
            },
        }
    }

    fn storage_api(&self, write: &Write<'_>) -> Api<RawObject> {
        let (client, resource) = (self.client.clone(), write.kind.resource());
        match write.kind {
            Storage::Claim => Api::namespaced_with(client, write.namespace, &resource),
            _ => Api::all_with(client, &resource),
        }
    }
}
