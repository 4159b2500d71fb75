//! CustomResourceDefinitions: what they must say, and the rows that they become.

use serde_json::{Value, json};

use super::custom::Custom;
use crate::schema::{FieldError, Schema};

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
    let names = &definition["spec"]["names"];
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    let names = &mut definition["spec"]["names"];
    if names["singular"].is_null() {
        names["singular"] = json!(kind.to_lowercase());
    }
    if names["listKind"].is_null() {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if definition["spec"]["conversion"].is_null() {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
}

/// What is wrong with a definition.
pub(super) fn check(definition: &Value) -> Vec<FieldError> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let mut errors = Vec::new();
    let name = format!("{plural}.{group}");
    if definition["metadata"]["name"] != *name {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", definition["metadata"]["name"].clone(), detail));
    }
    for (field, value) in [("spec.group", &group), ("spec.names.plural", &plural)] {
        if value.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    if !["Namespaced", "Cluster"].iter().any(|scope| spec["scope"] == **scope) {
        errors.push(FieldError::not_supported("spec.scope", spec["scope"].clone(), &["Cluster", "Namespaced"]));
    }
    if !["None"].iter().any(|strategy| spec["conversion"]["strategy"] == **strategy) {
        let detail = "conversion by webhook is not supported by this server";
        errors.push(FieldError::invalid("spec.conversion.strategy", spec["conversion"]["strategy"].clone(), detail));
    }
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", spec["versions"].clone(), detail));
    }
    for (index, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
        match version["schema"].get("openAPIV3Schema") {
            None => errors.push(FieldError::required(field, "schemas are required")),
            Some(schema) => {
                if let Err(error) = Schema::parse(schema) {
                    errors.push(FieldError::invalid(field, "", error.to_string()));
                }
            }
        }
    }
    errors
}

pub(super) fn check_update(definition: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = check(definition);
    for (field, path) in [
        ("group", "/spec/group"),
        ("scope", "/spec/scope"),
        ("names.kind", "/spec/names/kind"),
        ("names.plural", "/spec/names/plural"),
    ] {
        if definition.pointer(path) != old.pointer(path) {
            let value = definition.pointer(path).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(format!("spec.{field}"), value, "field is immutable"));
        }
    }
    errors
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

/// The status of a definition whose kind is served.
pub(crate) fn established(definition: &Value, now: &str) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now,
        })
    };
    let storage = definition["spec"]["versions"].as_array().into_iter().flatten();
    let storage: Vec<&Value> =
        storage.filter(|version| version["storage"] == true).map(|version| &version["name"]).collect();
    json!({
        "acceptedNames": definition["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": storage,
    })
}
