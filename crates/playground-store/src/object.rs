//! One version of one object: its text as clients get it, and a card with what the server looks for in it.
//!
//! A stored object never changes: a new version is a new one. The text holds everything; the card saves
//! parsing it for selectors, owners and deletion. It must not know kinds.

use std::cmp::Ordering;

use bytes::Bytes;
use muster_api::selector::Labels;
use serde_json::Value;

/// Where an object stands in its table. Objects without a namespace have an empty one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The namespace; empty for objects of the cluster.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

impl Key {
    /// The key of a namespace and a name.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key before all others of a namespace.
    pub fn first_of(namespace: &str) -> Self {
        Self::new(namespace, "")
    }
}

/// The order of texts `namespace/name`, in which the real server lists: `a-b/x` comes before `a/x`.
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

/// An owner that an object names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: Box<str>,
    /// Whether the owner's foreground deletion waits for this object.
    pub blocks: bool,
}

/// One version of an object.
#[derive(Debug)]
pub struct Object {
    /// Its place in the table.
    pub key: Key,
    /// The revision of its last change.
    pub revision: u64,
    /// Its UID.
    pub uid: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// The values of the fields that the kind lets selectors ask for, in the kind's order.
    pub fields: Box<[Box<str>]>,
    /// Its owner references.
    pub owners: Box<[Owner]>,
    /// What has to be done before it may go.
    pub finalizers: Box<[Box<str>]>,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// The object as JSON.
    pub text: Bytes,
}

impl Object {
    /// Stamps `value` with the revision and files it.
    ///
    /// The value must be a JSON object with `metadata`; the server makes sure of it when it decodes.
    pub fn file(mut value: Value, revision: u64, selectable: &[impl AsRef<str>]) -> Self {
        value["metadata"]["resourceVersion"] = Value::String(revision.to_string());
        let text = serde_json::to_vec(&value).expect("a JSON value can be printed").into();
        Self::card(&value, text, revision, selectable)
    }

    /// Files a text that was printed before.
    pub fn refile(text: Bytes, selectable: &[impl AsRef<str>]) -> Result<Self, serde_json::Error> {
        let value: Value = serde_json::from_slice(&text)?;
        let revision = value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let revision = revision.ok_or_else(|| serde::de::Error::missing_field("resourceVersion"))?;
        Ok(Self::card(&value, text, revision, selectable))
    }

    fn card(value: &Value, text: Bytes, revision: u64, selectable: &[impl AsRef<str>]) -> Self {
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
                .map(|owner| Owner {
                    uid: owner["uid"].as_str().unwrap_or_default().into(),
                    blocks: owner["blockOwnerDeletion"].as_bool().unwrap_or_default(),
                })
                .collect(),
            finalizers: list(&metadata["finalizers"]).filter_map(Value::as_str).map(Into::into).collect(),
            deleting: metadata["deletionTimestamp"].is_string(),
            text,
        }
    }

    /// The object as a value, to change it.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.text).expect("the text was printed from a value")
    }

    /// Whether it carries this finalizer.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| **finalizer == *name)
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// What a field selector compares: the text at a dotted path, or at the next one behind `|` if it is empty. If there
/// is nothing at all, it is what stands behind `=`.
pub fn field_text(value: &Value, path: &str) -> String {
    if let Some((first, second)) = path.split_once('|') {
        let text = field_text(value, first);
        return if text.is_empty() { field_text(value, second) } else { text };
    }
    let (path, absent) = path.split_once('=').unwrap_or((path, ""));
    let found = path.split('.').try_fold(value, |inner, step| inner.get(step));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(truth)) => truth.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ => absent.to_owned(),
    }
}
