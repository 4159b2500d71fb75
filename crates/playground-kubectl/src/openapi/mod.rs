//! OpenAPI v3 documents: the operations of the server and the schemas of its kinds.
//!
//! kubectl reads the parameters of a patch (to leave validation and dry runs to the server) and the texts of `explain`
//! from here. There is one document for each group version.

mod builtin;
mod custom;
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use k8s_openapi::schemars::generate::SchemaSettings;
use muster_playground_server::{Document, Kind, OPENAPI_V2};
use serde_json::{Map, Value, json};

use crate::to_bytes;

/// Serves the path after `/openapi`: `v3` for the index, `v3/api/v1` or `v3/apis/GROUP/VERSION` for a document, `v2`
/// for the old document.
pub(super) fn document(kinds: &[&Kind], path: &[&str]) -> Option<Document> {
    let (group, version) = match *path {
        ["v2"] => return Some(openapi_v2()),
        ["v3"] => return Some(json_document(&index(kinds))),
        ["v3", "api", version] => ("", version),
        ["v3", "apis", group, version] => (group, version),
        _ => return None,
    };
    let kinds = of_version(kinds, group, version);
    (!kinds.is_empty()).then(|| json_document(&describe(group, version, &kinds)))
}

fn json_document(value: &Value) -> Document {
    Document { media_type: "application/json", text: to_bytes(value) }
}

/// An empty OpenAPI v2 document, `swagger: "2.0"`, as protobuf. kubectl asks for it about kinds that are not in the v3
/// documents, and continues if they are not in it either.
fn openapi_v2() -> Document {
    Document { media_type: OPENAPI_V2, text: Bytes::from_static(b"\x0a\x032.0") }
}

fn of_version<'a>(kinds: &[&'a Kind], group: &str, version: &str) -> Vec<&'a Kind> {
    kinds.iter().copied().filter(|kind| kind.group() == group && kind.version() == version).collect()
}

/// The index of the documents. Each address has a hash that changes with its document.
fn index(kinds: &[&Kind]) -> Value {
    let versions: BTreeSet<(&str, &str)> = kinds.iter().map(|kind| (kind.group(), kind.version())).collect();
    let paths: BTreeMap<String, Value> = versions
        .into_iter()
        .map(|(group, version)| {
            let path = prefix(group, version);
            let hash = hash(&of_version(kinds, group, version));
            (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash:016X}")}))
        })
        .collect();
    json!({ "paths": paths })
}

/// `api/v1`, or `apis/GROUP/VERSION`.
fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Built-in kinds change with the program, custom ones with their definition.
fn hash(kinds: &[&Kind]) -> u64 {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    for kind in kinds {
        (kind.group(), kind.version(), kind.kind(), kind.plural(), kind.is_namespaced()).hash(&mut hasher);
        if let Some(schema) = kind.written_schema() {
            let parts = ["status", "scale"].map(|name| kind.has_subresource(name));
            (parts, schema.to_string()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn describe(group: &str, version: &str, kinds: &[&Kind]) -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    builtin::describe_metadata(&mut generator);
    let (mut schemas, mut paths, mut names) = (Map::new(), Map::new(), Vec::new());
    for kind in kinds {
        let name = match kind.written_schema() {
            None => builtin::describe(&mut generator, group, version, kind.kind()),
            Some(written) => {
                let name = custom::schema_name(group, version, kind.kind());
                schemas.insert(name.clone(), custom::schema(written));
                Some(name)
            }
        };
        paths::add(&mut paths, kind, name.as_deref());
        names.extend(name.map(|name| (name, kind)));
    }
    schemas.extend(generator.take_definitions(true));
    for (name, kind) in names {
        // Clients find the schema of a kind by this.
        schemas[&name]["x-kubernetes-group-version-kind"] =
            json!([{"group": kind.group(), "version": kind.version(), "kind": kind.kind()}]);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": format!("v{}", env!("CARGO_PKG_VERSION"))},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

#[cfg(test)]
mod tests;
