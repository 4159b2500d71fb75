//! A simple model of the store: the objects that must exist after each request, computed without the server.
//!
//! It covers only what the random runs use: labels, data, finalizers, owners, one node per pod.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The kinds that the runs write, with the path of their collections in a namespace.
pub(crate) const KINDS: [(&str, &str, &str); 3] = [
    ("ConfigMap", "/api/v1", "configmaps"),
    ("Pod", "/api/v1", "pods"),
    ("Thing", "/apis/test.example.com/v1", "things"),
];
pub(crate) const NAMESPACES: [&str; 2] = ["one", "two"];

/// Kind, namespace, name.
pub(crate) type ObjectId = (usize, &'static str, String);

/// The modelled state of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelObject {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) data: BTreeMap<String, String>,
    pub(crate) finalizers: BTreeSet<String>,
    pub(crate) owner: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) deleting: bool,
}

impl ModelObject {
    /// Reads the state from a response.
    pub(crate) fn read(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let map = |value: &Value| -> BTreeMap<String, String> {
            let entries = value.as_object().into_iter().flatten();
            entries.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
        };
        let data = if object["kind"] == "ConfigMap" { &object["data"] } else { &object["status"]["notes"] };
        Self {
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            labels: map(&metadata["labels"]),
            data: map(data),
            finalizers: metadata["finalizers"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            owner: metadata["ownerReferences"][0]["uid"].as_str().map(str::to_owned),
            node: object["spec"]["nodeName"].as_str().map(str::to_owned),
            deleting: metadata["deletionTimestamp"].is_string(),
        }
    }
}

/// All objects that must exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) objects: BTreeMap<ObjectId, ModelObject>,
    /// Pods in their grace period.
    graceful: BTreeSet<ObjectId>,
}

impl Model {
    /// A delete that was accepted.
    pub(crate) fn delete(&mut self, id: &ObjectId, grace_zero: bool) {
        let Some(object) = self.objects.get_mut(id) else { return };
        // A grace period can be shortened, not restarted.
        let could_begin = !object.deleting || self.graceful.contains(id);
        let has_grace = KINDS[id.0].0 == "Pod" && object.node.is_some() && !grace_zero && could_begin;
        if has_grace {
            self.graceful.insert(id.clone());
        } else {
            self.graceful.remove(id);
        }
        if object.finalizers.is_empty() && !has_grace {
            self.objects.remove(id);
        } else {
            object.deleting = true;
        }
        self.collect_garbage();
    }

    /// Replaces the finalizers of an object.
    pub(crate) fn finalize(&mut self, id: &ObjectId, finalizers: BTreeSet<String>) {
        let Some(object) = self.objects.get_mut(id) else { return };
        object.finalizers = finalizers;
        if object.deleting && object.finalizers.is_empty() && !self.graceful.contains(id) {
            self.objects.remove(id);
        }
        self.collect_garbage();
    }

    /// Deletes objects whose owner does not exist.
    pub(crate) fn collect_garbage(&mut self) {
        loop {
            let uids: BTreeSet<&String> = self.objects.values().map(|object| &object.uid).collect();
            let lost = self.objects.iter().find(|(_, object)| {
                !object.deleting && object.owner.as_ref().is_some_and(|owner| !uids.contains(owner))
            });
            let Some(id) = lost.map(|(id, _)| id.clone()) else { return };
            self.delete(&id, false);
        }
    }
}

/// The body of a new object.
pub(crate) fn body(kind: usize, name: &str, label: &str, owner: Option<&(ObjectId, String)>) -> Value {
    let (kind, group, _) = KINDS[kind];
    let api_version = group.trim_start_matches("/apis/").trim_start_matches("/api/");
    let metadata = json!({"name": name, "labels": {"colour": label}});
    let mut body = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    match kind {
        "Pod" => body["spec"] = json!({"containers": [{"name": "c", "image": "i:1"}]}),
        "Thing" => body["spec"] = json!({"size": 1}),
        _ => {}
    }
    if let Some(((kind, _, name), uid)) = owner {
        let (kind, group, _) = KINDS[*kind];
        let version = group.trim_start_matches("/apis/").trim_start_matches("/api/");
        body["metadata"]["ownerReferences"] = json!([{"apiVersion": version, "kind": kind, "name": name, "uid": uid}]);
    }
    body
}

/// The definition of the custom kind.
pub(crate) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.example.com"},
        "spec": {
            "group": "test.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 0}}},
                    "status": {"type": "object", "properties": {"notes": {"type": "object", "additionalProperties": {"type": "string"}}}},
                }}},
            }],
        },
    })
}
