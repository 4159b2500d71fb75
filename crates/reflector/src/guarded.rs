//! Objects of a watch, of which one that cannot be parsed does not stop the others.
//!
//! Users can write objects that the API server accepts and a typed client does not, for example nested deeper than the
//! parser goes. Must not depend on any kind.

use std::borrow::Cow;
use std::fmt::Debug;

use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;

use crate::delta::Delta;

/// An object, or why it cannot be parsed.
#[derive(Clone, Debug)]
pub struct Guarded<K> {
    /// The object, if it can be parsed.
    pub object: Result<K, Unreadable>,
    /// The length of its text.
    pub bytes: usize,
}

/// An object that cannot be parsed.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// What can be parsed of its metadata.
    pub metadata: Box<ObjectMeta>,
    /// The error.
    pub error: String,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct OnlyMetadata {
    metadata: ObjectMeta,
}

/// The metadata in an object's text; empty if it cannot be parsed.
pub fn metadata_of(text: &str) -> ObjectMeta {
    serde_json::from_str::<OnlyMetadata>(text).unwrap_or_default().metadata
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let object = serde_json::from_str(text.get())
            .map_err(|error| Unreadable { metadata: Box::new(metadata_of(text.get())), error: error.to_string() });
        Ok(Self { object, bytes: text.get().len() })
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
        self.object.as_ref().map_or_else(|unreadable| &*unreadable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.object.as_mut().map_or_else(|unreadable| &mut *unreadable.metadata, K::meta_mut)
    }
}

impl<K: DeserializeOwned> Delta<Guarded<K>> {
    /// The event for a cache of objects that can be parsed. Another object counts as deleted: what it was before is no
    /// longer true. The error goes along. There is no event if not even its metadata can be parsed.
    pub fn readable(self) -> (Option<Delta<K>>, Option<Unreadable>) {
        let (object, delta): (_, fn(K) -> Delta<K>) = match self {
            Self::ListStarted => return (Some(Delta::ListStarted), None),
            Self::ListDone => return (Some(Delta::ListDone), None),
            Self::NotServed => return (Some(Delta::NotServed), None),
            Self::Listed(object) => (object, Delta::Listed),
            Self::Applied(object) => (object, Delta::Applied),
            Self::Deleted(object) => (object, Delta::Deleted),
        };
        match object.object {
            Ok(object) => (Some(delta(object)), None),
            Err(unreadable) => {
                let rest = serde_json::from_value(json!({"metadata": unreadable.metadata}));
                (rest.ok().map(Delta::Deleted), Some(unreadable))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use k8s_openapi::api::core::v1::Node;
    use kube::core::{DynamicObject, ObjectList, WatchEvent};

    const BAD: &str = r#"{"metadata":{"name":"bad","resourceVersion":"7"},"spec":{"unschedulable":"maybe"}}"#;

    fn applied<K: DeserializeOwned>(text: &str) -> Delta<Guarded<K>> {
        Delta::Applied(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn one_bad_object_does_not_break_a_list_or_a_watch() {
        let list = format!(
            r#"{{"kind":"NodeList","apiVersion":"v1","metadata":{{}},"items":[{BAD},{{"metadata":{{"name":"good"}}}}]}}"#
        );
        let list: ObjectList<Guarded<Node>> = serde_json::from_str(&list).unwrap();
        let unreadable = list.items[0].object.as_ref().unwrap_err();
        assert_eq!(unreadable.metadata.name.as_deref(), Some("bad"));
        assert!(unreadable.error.contains("maybe"), "{}", unreadable.error);
        assert!(list.items[1].object.is_ok());
        let event = format!(r#"{{"type":"MODIFIED","object":{BAD}}}"#);
        let event: WatchEvent<Guarded<Node>> = serde_json::from_str(&event).unwrap();
        let WatchEvent::Modified(node) = event else { panic!("{event:?}") };
        assert_eq!(node.meta().resource_version.as_deref(), Some("7"));
    }

    #[test]
    fn metadata_that_cannot_be_parsed_is_empty() {
        assert_eq!(metadata_of(r#"{"metadata":{"name":7}}"#), ObjectMeta::default());
    }

    #[test]
    fn object_that_became_unreadable_is_gone_and_others_are_listed() {
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        let object = |name: &str, data: &str| format!(r#"{{"metadata":{{"name":"{name}"}},"data":{data}}}"#);
        let mut cache: Cache<DynamicObject> = Cache::default();
        let (delta, error) = applied(&object("a", "1")).readable();
        assert!(error.is_none() && cache.apply(delta.unwrap()).len() == 1);
        let (delta, error) = applied::<DynamicObject>(&object("a", &deep)).readable();
        assert!(error.unwrap().error.contains("recursion limit"));
        assert!(cache.apply(delta.unwrap())[0].new.is_none() && cache.all().count() == 0);
        let page = format!(
            r#"{{"kind":"L","apiVersion":"v1","metadata":{{}},"items":[{},{}]}}"#,
            object("a", &deep),
            object("b", "2")
        );
        let page: ObjectList<Guarded<DynamicObject>> = serde_json::from_str(&page).unwrap();
        cache.apply(Delta::ListStarted);
        for one in page.items {
            cache.apply(Delta::Listed(one).readable().0.unwrap());
        }
        cache.apply(Delta::ListDone);
        assert_eq!(cache.all().map(|one| one.metadata.name.clone().unwrap()).collect::<Vec<_>>(), ["b"]);
    }
}
