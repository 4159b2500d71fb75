//! Objects as text, for kinds that a dialect parses; and how much memory the objects of a watch take.

use std::borrow::Cow;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use muster_api::wire::Pod;
use muster_engine::model::pod::PodName;
use muster_reflector::{Guarded, Unreadable, key_of, metadata_of};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object of a watch, which knows about how much memory it takes.
pub(crate) trait Watched {
    /// The length of its text.
    fn bytes(&self) -> usize;
}

/// An object as text.
#[derive(Clone, Debug)]
pub(crate) struct RawObject {
    pub(crate) metadata: ObjectMeta,
    /// The whole object as JSON.
    pub(crate) text: Box<RawValue>,
}

/// The API resource of a kind.
pub(super) fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let [group, version, api_version, kind, plural] = [group, version, api_version, kind, plural].map(str::to_owned);
    ApiResource { group, version, api_version, kind, plural }
}

/// The value of a pod's annotation.
pub(crate) fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self { metadata: metadata_of(text.get()), text })
    }
}

impl<K> Watched for Guarded<K> {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Watched for RawObject {
    fn bytes(&self) -> usize {
        self.text.get().len()
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The name of a pod that cannot be parsed, if its metadata can.
pub(super) fn pod_name_of(unreadable: &Unreadable) -> Option<PodName> {
    let metadata = &unreadable.metadata;
    Some(PodName { namespace: metadata.namespace.clone()?, name: metadata.name.clone()?, uid: metadata.uid.clone()? })
}

/// The object, or the log message for one that cannot be parsed.
pub(super) fn parsed<K: Resource<DynamicType: Default>>(guarded: Guarded<K>) -> Result<K, String> {
    let (namespace, name) = key_of(&guarded);
    let kind = K::kind(&K::DynamicType::default()).into_owned();
    guarded.object.map_err(|unreadable| format!("{kind} {namespace}/{name} cannot be read: {}", unreadable.error))
}
