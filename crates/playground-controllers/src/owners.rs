//! Who belongs to whom: controllers, selectors, and how objects are taken in and let go.
//!
//! It must not know any kind.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use muster_api::invalid::FieldPath;
use muster_api::selector::{self, WrittenLabelSelector};
use serde::de::DeserializeOwned;
use serde_json::json;

/// The controller that an object names.
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

/// A selector that can be asked. One that is empty or cannot be read selects nothing.
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

/// What is to be done so that a controller has the objects that its selector asks for, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is the controller's.
    Keep,
    /// It is nobody's and should be the controller's.
    Adopt,
    /// It is the controller's and should not be.
    Release,
    /// It is no concern of the controller.
    Leave,
}

/// Judges one object.
pub(crate) fn claim<K: Resource, O: Resource>(owner: &O, selector: &selector::LabelSelector, object: &K) -> Claim {
    let is_going = owner.meta().deletion_timestamp.is_some();
    let matches = selector.matches(object.labels());
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.meta().uid.as_ref() => Claim::Leave,
        Some(_) if matches || is_going => Claim::Keep,
        Some(_) => Claim::Release,
        None if matches && !is_going && object.meta().deletion_timestamp.is_none() => Claim::Adopt,
        None => Claim::Leave,
    }
}

/// Adopts or releases an object. Answers with what it is then.
pub(crate) async fn settle<K, O>(client: &Client, owner: &O, object: &K, claim: Claim) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    O: Resource<DynamicType = ()>,
{
    let references = match claim {
        Claim::Adopt => json!([controlled_by(owner)]),
        _ => json!([{"$patch": "delete", "uid": owner.meta().uid}]),
    };
    let patch = Patch::Strategic(json!({"metadata": {"uid": object.uid(), "ownerReferences": references}}));
    let objects: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    objects.patch(&object.name_any(), &PatchParams::default(), &patch).await
}

/// What a failed request says, as its server put it.
pub(crate) fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether a request that failed may have been done all the same.
pub(crate) fn is_doubtful(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code))
}
