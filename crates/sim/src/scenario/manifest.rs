//! Manifests: parsing, validation and defaulting.
//!
//! Fields that scenarios leave out are filled in, so that `spec: {}` is a valid pod. Must not depend on the cluster.

use serde_json::{Map, Value, json};

use super::carrier::{Member, ScenarioCarrier};
use super::field_error::FieldError;
use super::yaml;

/// The placeholder for the number of an object or node.
const NUMBER: &str = "{i}";
/// The image of containers that scenarios do not define themselves.
const IMAGE: &str = "registry.k8s.io/pause:3.10";

/// Parses manifests: YAML or JSON, several documents.
pub(super) fn documents(text: &str) -> Result<Vec<Value>, String> {
    let documents: Vec<Value> = yaml::several(text).map_err(|error| error.to_string())?;
    let documents: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    if documents.is_empty() {
        return Err("has no manifest".to_owned());
    }
    for (index, document) in documents.iter().enumerate() {
        check(document).map_err(|error| format!("document {}: {error}", index + 1))?;
    }
    Ok(documents)
}

/// Rejects invalid manifests.
pub(super) fn check(manifest: &Value) -> Result<(), FieldError> {
    for field in ["apiVersion", "kind"] {
        match manifest.get(field) {
            Some(Value::String(text)) if !text.is_empty() => {}
            other => return Err(FieldError::new(field, format!("{}: must be set", other.unwrap_or(&Value::Null)))),
        }
    }
    let metadata = &manifest["metadata"];
    if !metadata["name"].is_string() && !metadata["generateName"].is_string() {
        return Err(FieldError::new("metadata.name", format!("{}: must be set", metadata["name"])));
    }
    if manifest["kind"] != "Node" && manifest.get("status").is_some() {
        let reason = "a server takes no status from a manifest; write a patch with subresource: status";
        return Err(FieldError::new("status", reason));
    }
    Ok(())
}

/// The text with the number filled in.
pub(super) fn numbered_text(text: &str, number: u32) -> String {
    text.replace(NUMBER, &number.to_string())
}

/// The value with the number filled in in all strings.
pub(super) fn numbered(value: &Value, number: u32) -> Value {
    match value {
        Value::String(text) => numbered_text(text, number).into(),
        Value::Array(entries) => entries.iter().map(|entry| numbered(entry, number)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (numbered_text(key, number), numbered(value, number))).collect()
        }
        other => other.clone(),
    }
}

/// Fills in the scheduler name and a container of pods and pod templates.
pub(super) fn complete(manifest: &mut Value, scheduler_name: &str) -> Result<(), FieldError> {
    if let Some((_, spec)) = pod_parts(manifest)? {
        spec.entry("schedulerName").or_insert_with(|| json!(scheduler_name));
        spec.entry("containers").or_insert_with(|| json!([{"name": "main", "image": IMAGE}]));
    }
    Ok(())
}

/// Makes the pods of a manifest members of a group.
pub(super) fn join(
    manifest: &mut Value,
    scenario_carrier: &ScenarioCarrier,
    member: &Member<'_>,
) -> Result<(), FieldError> {
    let kind = manifest["kind"].clone();
    match pod_parts(manifest)? {
        Some((metadata, spec)) => scenario_carrier.join(member, metadata, spec),
        None => Err(FieldError::new("kind", format!("{kind}: has no pods that could join group {}", member.group))),
    }
}

type Parts<'a> = (&'a mut Map<String, Value>, &'a mut Map<String, Value>);

/// Metadata and spec of a pod manifest, or of the pod template in a manifest.
fn pod_parts(manifest: &mut Value) -> Result<Option<Parts<'_>>, FieldError> {
    let is_pod = manifest["apiVersion"] == "v1" && manifest["kind"] == "Pod";
    let pod = if is_pod {
        manifest
    } else {
        match manifest.pointer_mut("/spec/template") {
            Some(template @ Value::Object(_)) => template,
            _ => return Ok(None),
        }
    };
    let Value::Object(pod) = pod else { return Ok(None) };
    for part in ["metadata", "spec"] {
        let value = pod.entry(part).or_insert_with(|| json!({}));
        if !value.is_object() {
            return Err(FieldError::new(part, format!("{value}: must be a map")));
        }
    }
    let mut metadata = None;
    let mut spec = None;
    for (key, value) in pod.iter_mut() {
        match (key.as_str(), value) {
            ("metadata", Value::Object(fields)) => metadata = Some(fields),
            ("spec", Value::Object(fields)) => spec = Some(fields),
            _ => {}
        }
    }
    Ok(metadata.zip(spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_filled_in_in_every_string() {
        let value = json!({"name": "a-{i}", "args": ["{i}{i}", 5], "labels": {"k{i}": "{j}"}});
        assert_eq!(numbered(&value, 7), json!({"name": "a-7", "args": ["77", 5], "labels": {"k7": "{j}"}}));
    }

    #[test]
    fn pods_and_templates_get_defaults_and_others_do_not() {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        complete(&mut pod, "muster").unwrap();
        assert_eq!(pod["spec"]["schedulerName"], "muster");
        assert_eq!(pod["spec"]["containers"][0]["name"], "main");
        let mut set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "s"},
            "spec": {"template": {"spec": {"schedulerName": "other", "containers": [{"name": "c"}]}}}});
        complete(&mut set, "muster").unwrap();
        assert_eq!(set["spec"]["template"]["spec"], json!({"schedulerName": "other", "containers": [{"name": "c"}]}));
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {}});
        let mut completed = map.clone();
        complete(&mut completed, "muster").unwrap();
        assert_eq!(completed, map);
    }

    #[test]
    fn invalid_manifests_are_rejected_by_field() {
        let why = |text: &str| documents(text).unwrap_err();
        assert!(why("").contains("no manifest"));
        assert_eq!(why("kind: Pod\n"), "document 1: apiVersion: null: must be set");
        assert_eq!(why("apiVersion: v1\nkind: Pod\n"), "document 1: metadata.name: null: must be set");
        let second = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n{\"apiVersion\": \"v1\", \"kind\": 5}\n";
        assert_eq!(why(second), "document 2: kind: 5: must be set");
        assert!(why("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nstatus: {}\n").contains("subresource: status"));
    }
}
