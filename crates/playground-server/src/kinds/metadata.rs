//! Validates `metadata`, which all kinds share.

use std::collections::BTreeSet;

use muster_playground_schema::FieldError;
use muster_playground_schema::selectors::{label_key_errors, label_value_errors};
use serde_json::Value;

use super::names::NameRule;

/// The most bytes of all annotations of an object.
const ANNOTATIONS_SIZE_MAX: usize = 256 * 1024;

/// The errors of an object's metadata.
pub(crate) fn validate_create(value: &Value, namespaced: bool, rule: NameRule) -> Vec<FieldError> {
    let metadata = &value["metadata"];
    let mut errors = name_errors(metadata, rule);
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    if namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required("metadata.namespace", ""));
        }
        let why = if namespace.is_empty() { Vec::new() } else { NameRule::Label.errors(namespace, false) };
        errors.extend(why.into_iter().map(|why| FieldError::invalid("metadata.namespace", namespace, why)));
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
    }
    if let Some(number) = metadata["generation"].as_i64().filter(|number| *number < 0) {
        errors.push(FieldError::invalid("metadata.generation", number, "must be greater than or equal to 0"));
    }
    errors.extend(label_errors(&metadata["labels"], "metadata.labels"));
    errors.extend(annotation_errors(&metadata["annotations"]));
    errors.extend(owner_errors(&metadata["ownerReferences"]));
    errors.extend(finalizer_errors(&metadata["finalizers"]));
    errors
}

fn name_errors(metadata: &Value, rule: NameRule) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(prefix) = metadata["generateName"].as_str().filter(|prefix| !prefix.is_empty()) {
        let why = rule.errors(prefix, true).into_iter();
        errors.extend(why.map(|why| FieldError::invalid("metadata.generateName", prefix, why)));
    }
    match metadata["name"].as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required("metadata.name", "name or generateName is required")),
        name => {
            let why = rule.errors(name, false).into_iter();
            errors.extend(why.map(|why| FieldError::invalid("metadata.name", name, why)));
        }
    }
    errors
}

/// The errors of a map of labels.
pub(crate) fn label_errors(labels: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.extend(label_key_errors(key).into_iter().map(|why| FieldError::invalid(path, key.as_str(), why)));
        let why = label_value_errors(value.as_str().unwrap_or_default());
        errors.extend(why.into_iter().map(|why| FieldError::invalid(path, value.clone(), why)));
    }
    errors
}

fn annotation_errors(annotations: &Value) -> Vec<FieldError> {
    let path = "metadata.annotations";
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        // Unlike label keys, annotation keys are validated in lower case.
        let why = label_key_errors(&key.to_lowercase()).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(path, key.as_str(), why)));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_SIZE_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_SIZE_MAX as i64));
    }
    errors
}

fn owner_errors(owners: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    for (index, owner) in owners.as_array().into_iter().flatten().enumerate() {
        let path = format!("metadata.ownerReferences[{index}]");
        errors.extend(one_owner_errors(owner, &path));
        if owner["controller"] == true {
            let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
            let named = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                Some(first) => {
                    let shown: Vec<String> = owners.as_array().into_iter().flatten().map(go_owner).collect();
                    let detail = format!(
                        "[{}]: Only one reference can have Controller set to true. Found \"true\" in references for {first} and {named}",
                        shown.join(",")
                    );
                    errors.push(FieldError::invalid_unshown("metadata.ownerReferences", detail));
                }
                None => controller = Some(named),
            }
        }
    }
    errors
}

fn one_owner_errors(owner: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let version = text("apiVersion");
    let required = |field: &str| FieldError::required(format!("{path}.{field}"), "must not be empty");
    if version.is_empty() {
        errors.push(required("apiVersion"));
    } else if version.matches('/').count() > 1 || version.ends_with('/') {
        let why = "must be <group>/<version> or <version>";
        errors.push(FieldError::invalid(format!("{path}.apiVersion"), version, why));
    }
    errors.extend(["kind", "name", "uid"].into_iter().filter(|field| text(field).is_empty()).map(required));
    if (version, text("kind")) == ("v1", "Event") {
        let detail = format!("{}: /v1, Kind=Event is disallowed from being an owner", go_owner(owner));
        errors.push(FieldError::invalid_unshown(path, detail));
    }
    errors
}

/// An owner reference as printed by Go, with the fields in the order of its type.
fn go_owner(owner: &Value) -> String {
    let order = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let fields = order.iter().filter(|field| !owner[**field].is_null());
    let fields: Vec<String> = fields.map(|field| format!("\"{field}\":{}", owner[*field])).collect();
    format!("{{{}}}", fields.join(","))
}

/// Finalizers of built-in kinds that need no domain prefix.
const PLAIN_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// The additional errors of the finalizers of a built-in kind.
pub(crate) fn builtin_finalizer_errors(value: &Value) -> Vec<FieldError> {
    let names = value["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let wrong = names.enumerate().filter(|(_, name)| !name.contains('/') && !PLAIN_FINALIZERS.contains(name));
    wrong
        .map(|(index, name)| {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            FieldError::invalid(format!("metadata.finalizers[{index}]"), name, why)
        })
        .collect()
}

fn finalizer_errors(finalizers: &Value) -> Vec<FieldError> {
    let path = "metadata.finalizers";
    let mut errors = Vec::new();
    let names: Vec<&str> = finalizers.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for name in &names {
        errors.extend(label_key_errors(name).into_iter().map(|why| FieldError::invalid(path, *name, why)));
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, finalizers.clone(), detail));
    }
    errors
}

/// The errors of a change of metadata, in addition to those of the metadata itself.
pub(crate) fn validate_update(value: &Value, old: &Value) -> Vec<FieldError> {
    let (metadata, old) = (&value["metadata"], &old["metadata"]);
    let mut errors = Vec::new();
    if !old["deletionTimestamp"].is_null() {
        let names = |list: &Value| -> BTreeSet<String> {
            list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let added: Vec<String> =
            names(&metadata["finalizers"]).difference(&names(&old["finalizers"])).cloned().collect();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", detail));
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if metadata[field] != old[field] {
            errors.push(FieldError::invalid(
                format!("metadata.{field}"),
                metadata[field].clone(),
                "field is immutable",
            ));
        }
    }
    errors
}

/// Restores the metadata that a status update may not change.
pub(crate) fn restore_for_status_update(value: &mut Value, old: &Value) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        super::copy_field(&mut value["metadata"], field, &old["metadata"]);
    }
}
