//! CustomResourceDefinitions: how they live, and the rows that they become.

use serde_json::{Value, json};

use super::custom::Custom;
use super::keep;

/// A checked definition, ready to be served.
pub(crate) struct Definition {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// The served versions with their rules, the storage version among them.
    pub(crate) versions: Vec<(String, Custom)>,
}

/// Names that follow from others.
pub(super) fn complete(definition: &mut Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names = &mut definition["spec"]["names"];
    let kind = text(&names["kind"]);
    if text(&names["singular"]).is_empty() && !kind.is_empty() {
        names["singular"] = json!(kind.to_lowercase());
    }
    if text(&names["listKind"]).is_empty() && !kind.is_empty() {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if definition["spec"]["conversion"].is_null() {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
    if definition["spec"]["preserveUnknownFields"] == false
        && let Some(spec) = definition["spec"].as_object_mut()
    {
        spec.remove("preserveUnknownFields");
    }
}

/// A new definition has no names yet, only a version in which its objects will be stored.
pub(super) fn on_create(definition: &mut Value) {
    definition["status"] = json!({"acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []});
    note_storage_version(definition);
}

pub(super) fn on_update(definition: &mut Value, old: &Value) {
    keep(definition, "status", old);
    note_storage_version(definition);
}

/// Adds the version that is now stored to those that ever were.
fn note_storage_version(definition: &mut Value) {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let mut stored = versions.filter(|version| version["storage"] == true).map(|version| version["name"].clone());
    let Some(name) = stored.next() else { return };
    if let Some(list) = definition["status"]["storedVersions"].as_array_mut()
        && !list.contains(&name)
    {
        list.push(name);
    }
}

/// Whether the kind is served.
pub(crate) fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

impl Definition {
    /// The rows of a definition that passed its check.
    pub(crate) fn of(definition: &Value) -> Result<Self, String> {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
        let mut versions = Vec::new();
        for version in spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true) {
            versions.push((text(&version["name"]), Custom::of(version)?));
        }
        Ok(Self {
            group: text(&spec["group"]),
            plural: text(&spec["names"]["plural"]),
            singular: text(&spec["names"]["singular"]),
            kind: text(&spec["names"]["kind"]),
            short_names: list(&spec["names"]["shortNames"]),
            categories: list(&spec["names"]["categories"]),
            namespaced: spec["scope"] == "Namespaced",
            versions,
        })
    }
}
