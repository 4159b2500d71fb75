//! A simple model of the store: what objects there must be after each request, worked out without the server.
//!
//! It knows only what the random runs use: labels, data, finalizers, owners, one node per pod.

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
pub(crate) type Place = (usize, &'static str, String);

/// What the model remembers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thing {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) data: BTreeMap<String, String>,
    pub(crate) finalizers: BTreeSet<String>,
    pub(crate) owner: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) deleting: bool,
}

impl Thing {
    /// What an answer of the server says.
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

/// All objects that must be there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) things: BTreeMap<Place, Thing>,
    /// Pods whose grace period runs.
    graceful: BTreeSet<Place>,
}

impl Model {
    /// A delete that was not refused.
    pub(crate) fn delete(&mut self, place: &Place, grace_zero: bool) {
        let Some(thing) = self.things.get_mut(place) else { return };
        // A period can be shortened, not begun again.
        let could_begin = !thing.deleting || self.graceful.contains(place);
        let has_grace = KINDS[place.0].0 == "Pod" && thing.node.is_some() && !grace_zero && could_begin;
        if has_grace {
            self.graceful.insert(place.clone());
        } else {
            self.graceful.remove(place);
        }
        if thing.finalizers.is_empty() && !has_grace {
            self.things.remove(place);
        } else {
            thing.deleting = true;
        }
        self.collect_garbage();
    }

    /// The finalizers of an object are now these.
    pub(crate) fn finalize(&mut self, place: &Place, finalizers: BTreeSet<String>) {
        let Some(thing) = self.things.get_mut(place) else { return };
        thing.finalizers = finalizers;
        if thing.deleting && thing.finalizers.is_empty() && !self.graceful.contains(place) {
            self.things.remove(place);
        }
        self.collect_garbage();
    }

    /// What has an owner that is not there goes too.
    pub(crate) fn collect_garbage(&mut self) {
        loop {
            let uids: BTreeSet<&String> = self.things.values().map(|thing| &thing.uid).collect();
            let lost = self
                .things
                .iter()
                .find(|(_, thing)| !thing.deleting && thing.owner.as_ref().is_some_and(|owner| !uids.contains(owner)));
            let Some(place) = lost.map(|(place, _)| place.clone()) else { return };
            self.delete(&place, false);
        }
    }
}

/// The body of a new object.
pub(crate) fn body(kind: usize, name: &str, label: &str, owner: Option<&(Place, String)>) -> Value {
    let version = |group: &str| group.trim_start_matches("/apis/").trim_start_matches("/api/").to_owned();
    let (named, group, _) = KINDS[kind];
    let metadata = json!({"name": name, "labels": {"colour": label}});
    let mut body = json!({"apiVersion": version(group), "kind": named, "metadata": metadata});
    match named {
        "Pod" => body["spec"] = json!({"containers": [{"name": "c", "image": "i:1"}]}),
        "Thing" => body["spec"] = json!({"size": 1}),
        _ => {}
    }
    if let Some(((kind, _, name), uid)) = owner {
        let (kind, group, _) = KINDS[*kind];
        body["metadata"]["ownerReferences"] =
            json!([{"apiVersion": version(group), "kind": kind, "name": name, "uid": uid}]);
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
