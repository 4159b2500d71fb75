//! Validates CustomResourceDefinitions.
//!
//! Paths are those of kube-apiserver, which keeps what all versions have in common at the top level
//! (`spec.validation`). Schemas are validated by the schema crate. Must not depend on other definitions.

use muster_playground_schema::{FieldError, NO_FIELD, Schema};
use serde_json::{Value, json};

use super::definition::is_established;
use super::definition_columns;
use super::names::NameRule;

const APPROVED: &str = "api-approved.kubernetes.io";
const IMMUTABLE: &str = "field is immutable";

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn versions(definition: &Value) -> &[Value] {
    definition["spec"]["versions"].as_array().map_or(&[], Vec::as_slice)
}

/// The errors of a new definition.
pub(super) fn validate(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &definition["spec"];
    if text(&definition["metadata"], "name") != format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group")) {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", definition["metadata"]["name"].clone(), detail));
    }
    errors.extend(validate_common(definition));
    errors.extend(approval_error(definition));
    if spec["preserveUnknownFields"] == true {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
    }
    errors
}

/// The errors of any definition, new or not.
fn validate_common(definition: &Value) -> Vec<FieldError> {
    let mut errors = spec_errors(definition);
    errors.extend(version_errors(definition));
    errors.extend(name_errors(&definition["spec"]["names"]));
    errors.extend(shared_schema_errors(definition));
    errors.extend(definition_columns::errors(versions(definition)));
    if definition["spec"]["conversion"]["strategy"] != "None" {
        let detail = "conversion by webhook is not supported by this server";
        let strategy = definition["spec"]["conversion"]["strategy"].clone();
        errors.push(FieldError::invalid("spec.conversion.strategy", strategy, detail));
    }
    errors.extend(stored_version_errors(definition));
    errors
}

pub(super) fn validate_update(definition: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_common(definition);
    let fixed_once_served: &[(&str, &str)] = &[("scope", "/spec/scope"), ("names.kind", "/spec/names/kind")];
    let fixed: &[(&str, &str)] = &[("group", "/spec/group"), ("names.plural", "/spec/names/plural")];
    let served = if is_established(old) { fixed_once_served } else { &[] };
    for (field, path) in served.iter().chain(fixed) {
        if definition.pointer(path) != old.pointer(path) {
            let value = definition.pointer(path).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(format!("spec.{field}"), value, IMMUTABLE));
        }
    }
    errors
}

fn spec_errors(definition: &Value) -> Vec<FieldError> {
    let spec = &definition["spec"];
    let mut errors = Vec::new();
    let group = text(spec, "group");
    let why = NameRule::Subdomain.errors(group, false);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !why.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, why.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    }
    let scopes = ["Cluster", "Namespaced"];
    match text(spec, "scope") {
        "" => errors.push(FieldError::required("spec.scope", "")),
        scope if scopes.contains(&scope) => {}
        scope => errors.push(FieldError::not_supported("spec.scope", scope, &scopes)),
    }
    for (index, version) in versions(definition).iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    errors
}

fn version_errors(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let all = versions(definition);
    for (index, version) in all.iter().enumerate() {
        errors.extend(label_error(text(version, "name"), &format!("spec.versions[{index}].name"), ""));
        if !share_schema(all) {
            errors.extend(schema_error(version, &format!("spec.versions[{index}].schema")));
        }
    }
    let shown = || if all.is_empty() { Value::Null } else { definition["spec"]["versions"].clone() };
    let is_twice = |index: usize| all[..index].iter().any(|other| other["name"] == all[index]["name"]);
    if (0..all.len()).any(is_twice) {
        errors.push(FieldError::invalid("spec.versions", shown(), "must contain unique version names"));
    }
    if all.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", shown(), detail));
    }
    if let Some(first) = all.first() {
        errors.extend(label_error(text(first, "name"), "spec.version", ""));
    }
    errors
}

/// Whether all versions have the same schema.
fn share_schema(versions: &[Value]) -> bool {
    versions.iter().all(|version| version["schema"] == versions[0]["schema"])
}

fn shared_schema_errors(definition: &Value) -> Option<FieldError> {
    let all = versions(definition);
    let first = all.first().filter(|_| share_schema(all))?;
    schema_error(first, "spec.validation")
}

/// The first error in a version's schema, with its path below `path`.
fn schema_error(version: &Value, path: &str) -> Option<FieldError> {
    let schema = version["schema"].get("openAPIV3Schema").filter(|schema| !schema.is_null())?;
    let mut error = Schema::parse(schema).err()?;
    error.field = match error.field.as_str() {
        NO_FIELD => path.to_owned(),
        below => format!("{path}.{below}"),
    };
    Some(error)
}

fn label_error(name: &str, field: &str, before: &str) -> Option<FieldError> {
    let why = NameRule::Rfc1035Label.errors(name, false);
    (!why.is_empty()).then(|| FieldError::invalid(field, name, format!("{before}{}", why.join(","))))
}

fn name_errors(names: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(names, field).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{field}"), ""));
        }
    }
    for field in ["plural", "singular"] {
        let name = text(names, field);
        errors.extend(label_error(name, &format!("spec.names.{field}"), "").filter(|_| !name.is_empty()));
    }
    for field in ["kind", "listKind"] {
        let name = text(names, field);
        let before = "may have mixed case, but should otherwise match: ";
        let error = label_error(&name.to_lowercase(), &format!("spec.names.{field}"), before);
        errors.extend(error.filter(|_| !name.is_empty()).map(|error| FieldError { value: Some(json!(name)), ..error }));
    }
    if !text(names, "kind").is_empty() && names["kind"] == names["listKind"] {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid("spec.names.listKind", names["listKind"].clone(), detail));
    }
    for list in ["shortNames", "categories"] {
        for (index, name) in names[list].as_array().into_iter().flatten().enumerate() {
            let field = format!("spec.names.{list}[{index}]");
            errors.extend(label_error(name.as_str().unwrap_or_default(), &field, ""));
        }
    }
    errors
}

/// All versions in `storedVersions` must exist.
fn stored_version_errors(definition: &Value) -> Vec<FieldError> {
    let field = "status.storedVersions";
    let stored = &definition["status"]["storedVersions"];
    let list = stored.as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        return vec![FieldError::invalid(field, Value::Null, "must have at least one stored version")];
    }
    let all = versions(definition);
    let unstored = all.iter().filter(|version| version["storage"] == true && !list.contains(&version["name"]));
    let mut errors: Vec<FieldError> = unstored
        .map(|version| {
            let detail = format!("must have the storage version {}", text(version, "name"));
            FieldError::invalid(field, stored.clone(), detail)
        })
        .collect();
    for (index, name) in list.iter().enumerate() {
        if !all.iter().any(|version| version["name"] == *name) {
            let name = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{field}[{index}]"), name, detail));
        }
    }
    errors
}

/// The groups of the Kubernetes project require an approval annotation.
fn approval_error(definition: &Value) -> Option<FieldError> {
    let group = text(&definition["spec"], "group");
    let is_protected =
        ["k8s.io", "kubernetes.io"].iter().any(|name| group == *name || group.ends_with(&format!(".{name}")));
    let field = format!("metadata.annotations[{APPROVED}]");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let approval = definition["metadata"]["annotations"][APPROVED].as_str().unwrap_or_default();
    let is_address = approval.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
    if !is_protected || is_address || approval.starts_with("unapproved") {
        return None;
    }
    let must = format!("protected groups must have approval annotation \"{APPROVED}\"");
    if approval.is_empty() {
        return Some(FieldError::required(field, format!("{must}, {see}")));
    }
    let detail = format!("{must} with either a URL or a reason starting with \"unapproved\", {see}");
    Some(FieldError::invalid(field, approval, detail))
}
