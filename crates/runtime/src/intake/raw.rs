//! Objects as delivered by a watch: one that cannot be parsed does not stop the others.
//!
//! `Guarded` holds a typed object or the error; `RawObject` holds the text, for kinds that a dialect parses. Both keep
//! the metadata that a watch needs.

use std::borrow::Cow;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use muster_api::wire::Pod;
use muster_engine::model::pod::PodName;
use muster_reflector::key_of;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object of a watch, which knows about how much memory it takes.
pub(crate) trait Watched {
    /// The length of its text.
    fn bytes(&self) -> usize;
}

/// An object, or why it cannot be parsed; and the length of its text.
#[derive(Clone, Debug)]
pub(crate) struct Guarded<K>(pub(crate) Result<K, Unreadable>, usize);

/// An object that cannot be parsed.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) metadata: Box<ObjectMeta>,
    /// The error.
    pub(crate) error: String,
}

/// An object as text.
#[derive(Clone, Debug)]
pub(crate) struct RawObject {
    pub(crate) metadata: ObjectMeta,
    /// The whole object as JSON.
    pub(crate) text: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct OnlyMetadata {
    metadata: ObjectMeta,
}

/// The metadata in an object's text; empty if it cannot be parsed.
pub(crate) fn metadata_of(text: &str) -> ObjectMeta {
    serde_json::from_str::<OnlyMetadata>(text).unwrap_or_default().metadata
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

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let object = serde_json::from_str(text.get())
            .map_err(|error| Unreadable { metadata: Box::new(metadata_of(text.get())), error: error.to_string() });
        Ok(Self(object, text.get().len()))
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self { metadata: metadata_of(text.get()), text })
    }
}

impl<K> Watched for Guarded<K> {
    fn bytes(&self) -> usize {
        self.1
    }
}

impl Watched for RawObject {
    fn bytes(&self) -> usize {
        self.text.get().len()
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(kind: &K::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &K::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &K::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &K::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unreadable| &*unreadable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| &mut *unreadable.metadata, K::meta_mut)
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

impl<K: Resource<DynamicType: Default>> Guarded<K> {
    /// The object, or the log message for one that cannot be parsed.
    pub(super) fn parsed(self) -> Result<K, String> {
        let (namespace, name) = key_of(&self);
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        self.0.map_err(|unreadable| format!("{kind} {namespace}/{name} cannot be read: {}", unreadable.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::{ObjectList, WatchEvent};
    use muster_api::wire::Node;

    const BAD: &str = r#"{"metadata":{"name":"bad","resourceVersion":"7"},"spec":{"unschedulable":"maybe"}}"#;

    #[test]
    fn one_bad_object_does_not_break_a_list_or_a_watch() {
        let list = format!(
            r#"{{"kind":"NodeList","apiVersion":"v1","metadata":{{}},"items":[{BAD},{{"metadata":{{"name":"good"}}}}]}}"#
        );
        let list: ObjectList<Guarded<Node>> = serde_json::from_str(&list).unwrap();
        let unreadable = list.items[0].0.as_ref().unwrap_err();
        assert_eq!(unreadable.metadata.name.as_deref(), Some("bad"));
        assert!(unreadable.error.contains("maybe"), "{}", unreadable.error);
        assert!(list.items[1].0.is_ok());
        let event = format!(r#"{{"type":"MODIFIED","object":{BAD}}}"#);
        let event: WatchEvent<Guarded<Node>> = serde_json::from_str(&event).unwrap();
        let WatchEvent::Modified(node) = event else { panic!("{event:?}") };
        assert_eq!(node.meta().resource_version.as_deref(), Some("7"));
    }

    #[test]
    fn metadata_that_cannot_be_parsed_is_empty() {
        assert_eq!(metadata_of(r#"{"metadata":{"name":7}}"#), ObjectMeta::default());
    }
}
