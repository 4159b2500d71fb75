//! Schemas of custom kinds: the schema of the definition plus the fields of every object.

use serde_json::{Value, json};

use super::builtin::metadata_name;

/// `io.example.v1.Widget` for a Widget of `example.io`.
pub(super) fn schema_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// The schema of a kind.
pub(super) fn schema(written: &Value) -> Value {
    let mut schema = written.clone();
    let properties = &mut schema["properties"];
    properties["apiVersion"] =
        json!({"type": "string", "description": "The group and version that the object is written in."});
    properties["kind"] = json!({"type": "string", "description": "The kind of the object."});
    properties["metadata"] = json!({
        "description": "What every object has: name, namespace, labels and so on.",
        "allOf": [{"$ref": format!("#/components/schemas/{}", metadata_name())}],
    });
    schema
}
