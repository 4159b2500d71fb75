//! One version of one object: its JSON as clients receive it, and indexed fields extracted from it.
//!
//! A stored object is immutable; an update stores a new one. The JSON is complete; the indexed fields save parsing it
//! for selectors, owner references and deletion. Must not depend on kinds.

use std::cmp::Ordering;

use bytes::Bytes;
use muster_api::selector::Labels;
use serde_json::Value;

/// The key of an object in its table. Cluster-scoped objects have an empty namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

impl Key {
    /// Joins a namespace and a name.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The smallest key of a namespace.
    pub fn first_in(namespace: &str) -> Self {
        Self::new(namespace, "")
    }
}

/// Orders keys as `namespace/name` strings, as kube-apiserver lists them: `a-b/x` comes before `a/x`.
impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        fn text(key: &Key) -> impl Iterator<Item = u8> {
            let slash = if key.namespace.is_empty() { None } else { Some(b'/') };
            key.namespace.bytes().chain(slash).chain(key.name.bytes())
        }
        if self.namespace == other.namespace {
            return self.name.cmp(&other.name);
        }
        text(self).cmp(text(other))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// An entry of `ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference {
    pub uid: Box<str>,
    /// Whether foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

/// One version of an object.
#[derive(Debug)]
pub struct Object {
    /// Its key in the table.
    pub key: Key,
    /// The revision of its last change.
    pub revision: u64,
    /// Its UID.
    pub uid: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// The values of the kind's selectable fields, in the kind's order.
    pub fields: Box<[Box<str>]>,
    /// Its owner references.
    pub owners: Box<[OwnerReference]>,
    /// Its finalizers.
    pub finalizers: Box<[Box<str>]>,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// The object as JSON.
    pub text: Bytes,
}

impl Object {
    /// Sets `resourceVersion` to `revision` and encodes the object.
    ///
    /// The value must be a JSON object with `metadata`; the server ensures this when it decodes.
    pub fn encode(mut value: Value, revision: u64, selectable: &[impl AsRef<str>]) -> Self {
        value["metadata"]["resourceVersion"] = Value::String(revision.to_string());
        let text = serde_json::to_vec(&value).expect("a JSON value can be encoded").into();
        Self::with_index(&value, text, revision, selectable)
    }

    /// Restores an object from its encoded form.
    pub fn decode(text: Bytes, selectable: &[impl AsRef<str>]) -> Result<Self, serde_json::Error> {
        let value: Value = serde_json::from_slice(&text)?;
        let revision = value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let revision = revision.ok_or_else(|| serde::de::Error::missing_field("resourceVersion"))?;
        Ok(Self::with_index(&value, text, revision, selectable))
    }

    fn with_index(value: &Value, text: Bytes, revision: u64, selectable: &[impl AsRef<str>]) -> Self {
        let metadata = &value["metadata"];
        let text_of = |field: &str| metadata[field].as_str().unwrap_or_default();
        let labels = metadata["labels"].as_object().into_iter().flatten();
        Self {
            key: Key::new(text_of("namespace"), text_of("name")),
            revision,
            uid: text_of("uid").into(),
            labels: labels.map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned())).collect(),
            fields: selectable.iter().map(|path| field_text(value, path.as_ref()).into()).collect(),
            owners: list(&metadata["ownerReferences"])
                .map(|owner| OwnerReference {
                    uid: owner["uid"].as_str().unwrap_or_default().into(),
                    block_owner_deletion: owner["blockOwnerDeletion"].as_bool().unwrap_or_default(),
                })
                .collect(),
            finalizers: list(&metadata["finalizers"]).filter_map(Value::as_str).map(Into::into).collect(),
            deleting: metadata["deletionTimestamp"].is_string(),
            text,
        }
    }

    /// The object as a value, for changes.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.text).expect("the JSON was encoded from a value")
    }

    /// Whether it has this finalizer.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| **finalizer == *name)
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The string that a field selector compares: the value at a dotted path, or at the path after `|` if that is empty. A
/// missing value is the string after `=`.
pub fn field_text(value: &Value, path: &str) -> String {
    if let Some((first, second)) = path.split_once('|') {
        let text = field_text(value, first);
        return if text.is_empty() { field_text(value, second) } else { text };
    }
    let (path, absent) = path.split_once('=').unwrap_or((path, ""));
    let found = path.split('.').try_fold(value, |inner, step| inner.get(step));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ => absent.to_owned(),
    }
}
