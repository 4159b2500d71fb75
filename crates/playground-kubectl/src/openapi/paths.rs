//! Paths and operations of a kind, with their parameters.
//!
//! Strategic merge patch is served but not listed: clients that find it here would look for merge keys in the schemas,
//! which lack them.

use muster_playground_server::Kind;
use serde_json::{Map, Value, json};

use super::prefix;

const PATCHES: [&str; 3] =
    ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];

/// Adds the paths of a kind with this schema.
pub(super) fn add(paths: &mut Map<String, Value>, kind: &Kind, schema: Option<&str>) {
    let writer = Writer {
        kind: json!({"group": kind.group(), "version": kind.version(), "kind": kind.kind()}),
        schema: schema.map(|name| json!({"$ref": format!("#/components/schemas/{name}")})),
    };
    let base = format!("/{}", prefix(kind.group(), kind.version()));
    let (collection, mut of_path) = (format!("{base}/{}", kind.plural()), Vec::new());
    let collection = if kind.is_namespaced() {
        if !kind.is_review() {
            paths.insert(collection, json!({"get": writer.operation("list", &[])}));
        }
        of_path.push(path_parameter("namespace", "The namespace of the object."));
        format!("{base}/namespaces/{{namespace}}/{}", kind.plural())
    } else {
        collection
    };
    if kind.is_review() {
        // Answered and not stored.
        paths.insert(collection, json!({"post": writer.writing("post"), "parameters": of_path}));
        return;
    }
    let mut operations = json!({"get": writer.operation("list", &[]), "post": writer.writing("post")});
    if kind.supports_delete_collection() {
        operations["delete"] = writer.operation("deletecollection", &DELETING);
    }
    operations["parameters"] = json!(of_path);
    paths.insert(collection.clone(), operations);
    of_path.push(path_parameter("name", "The name of the object."));
    let one = format!("{collection}/{{name}}");
    let mut operations = writer.of_object();
    operations["delete"] = writer.operation("delete", &DELETING);
    operations["parameters"] = json!(of_path);
    if kind.has_subresource("status") {
        let mut operations = writer.of_object();
        operations["parameters"] = json!(of_path);
        paths.insert(format!("{one}/status"), operations);
    }
    if kind.has_subresource("scale") {
        let kind = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        let mut operations = Writer { kind, schema: None }.of_object();
        operations["parameters"] = json!(of_path);
        paths.insert(format!("{one}/scale"), operations);
    }
    paths.insert(one, operations);
}

const DRY_RUN: (&str, &str, &str) = ("dryRun", "string", "With All nothing is kept.");
const WRITING: [(&str, &str, &str); 3] = [
    DRY_RUN,
    ("fieldManager", "string", "The name of the field manager."),
    ("fieldValidation", "string", "What happens to unknown and repeated fields: Ignore, Warn or Strict."),
];
const FORCE: (&str, &str, &str) = ("force", "boolean", "Whether an apply takes fields from other managers.");
const DELETING: [(&str, &str, &str); 3] = [
    DRY_RUN,
    ("gracePeriodSeconds", "integer", "How long the object has to end."),
    ("propagationPolicy", "string", "What happens to dependents: Orphan, Background or Foreground."),
];

fn path_parameter(name: &str, description: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "description": description, "schema": {"type": "string", "uniqueItems": true}})
}

/// Builds the operations of one kind.
struct Writer {
    kind: Value,
    schema: Option<Value>,
}

impl Writer {
    fn operation(&self, action: &str, options: &[(&str, &str, &str)]) -> Value {
        let option = |(name, data_type, description): &(&str, &str, &str)| json!({"name": name, "in": "query", "description": description, "schema": {"type": data_type, "uniqueItems": true}});
        let parameters: Vec<Value> = options.iter().map(option).collect();
        json!({
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": self.kind, "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": {"application/json": self.content()}}},
        })
    }

    fn content(&self) -> Value {
        self.schema.as_ref().map_or_else(|| json!({}), |schema| json!({ "schema": schema }))
    }

    fn writing(&self, action: &str) -> Value {
        let mut operation = self.operation(action, &WRITING);
        operation["requestBody"] = json!({"required": true, "content": {"application/json": self.content()}});
        operation
    }

    fn patch(&self) -> Value {
        let mut options = WRITING.to_vec();
        options.push(FORCE);
        let mut operation = self.operation("patch", &options);
        let content: Map<String, Value> = PATCHES.iter().map(|patch| ((*patch).to_owned(), json!({}))).collect();
        operation["requestBody"] = json!({"required": true, "content": content});
        operation
    }

    fn of_object(&self) -> Value {
        json!({"get": self.operation("get", &[]), "put": self.writing("put"), "patch": self.patch()})
    }
}
