//! Controller references: which objects a controller owns, adopts and releases.
//!
//! Must not depend on any kind.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use muster_api::invalid::FieldPath;
use muster_api::selector::{self, WrittenLabelSelector};
use serde::de::DeserializeOwned;
use serde_json::json;

/// The controller reference of an object.
pub(crate) fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// Whether `owner` is the controller of the object.
pub(crate) fn is_controlled_by<K: Resource, O: Resource>(object: &K, owner: &O) -> bool {
    owner.meta().uid.is_some() && controller_of(object).map(|owner| &owner.uid) == owner.meta().uid.as_ref()
}

/// A reference that makes `owner` the controller.
pub(crate) fn controlled_by<O: Resource<DynamicType = ()>>(owner: &O) -> OwnerReference {
    let reference = owner.controller_owner_ref(&()).unwrap_or_default();
    OwnerReference { block_owner_deletion: Some(true), ..reference }
}

/// A validated selector. An empty or invalid one selects nothing.
pub(crate) fn selector_of(written: &LabelSelector) -> selector::LabelSelector {
    let is_empty = written.match_labels.as_ref().is_none_or(std::collections::BTreeMap::is_empty)
        && written.match_expressions.as_ref().is_none_or(Vec::is_empty);
    let read = serde_json::to_value(written).and_then(serde_json::from_value::<WrittenLabelSelector>);
    match read {
        Ok(read) if !is_empty => WrittenLabelSelector::validate(Some(&read), &FieldPath::Root("spec.selector"))
            .unwrap_or(selector::LabelSelector::Nothing),
        _ => selector::LabelSelector::Nothing,
    }
}

/// What to do so that a controller owns the objects that its selector matches, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnershipAction {
    /// The controller owns it.
    Keep,
    /// It is an orphan that the controller should own.
    Adopt,
    /// The controller owns it but should not.
    Release,
    /// It does not concern the controller.
    Leave,
}

/// Returns the action for one object.
pub(crate) fn ownership_action<K: Resource, O: Resource>(
    owner: &O,
    selector: &selector::LabelSelector,
    object: &K,
) -> OwnershipAction {
    let is_terminating = owner.meta().deletion_timestamp.is_some();
    let matches = selector.matches(object.labels());
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.meta().uid.as_ref() => OwnershipAction::Leave,
        Some(_) if matches || is_terminating => OwnershipAction::Keep,
        Some(_) => OwnershipAction::Release,
        None if matches && !is_terminating && object.meta().deletion_timestamp.is_none() => OwnershipAction::Adopt,
        None => OwnershipAction::Leave,
    }
}

/// Adopts or releases an object. Returns the updated object.
pub(crate) async fn apply_ownership<K, O>(
    client: &Client,
    owner: &O,
    object: &K,
    action: OwnershipAction,
) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    O: Resource<DynamicType = ()>,
{
    let references = match action {
        OwnershipAction::Adopt => json!([controlled_by(owner)]),
        _ => json!([{"$patch": "delete", "uid": owner.meta().uid}]),
    };
    let patch = Patch::Strategic(json!({"metadata": {"uid": object.uid(), "ownerReferences": references}}));
    let objects: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    objects.patch(&object.name_any(), &PatchParams::default(), &patch).await
}

/// The message of a failed request, as the server sent it.
pub(crate) fn error_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether a failed request may have been executed all the same.
pub(crate) fn is_outcome_unknown(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code))
}
