//! Every served kind is described, and kubectl finds what it looks for.

use jiff::Timestamp;

use super::*;
use crate::server::Settings;

fn state() -> State {
    State::new(&Settings::default(), Timestamp::UNIX_EPOCH)
}

fn read(state: &State, path: &[&str]) -> Value {
    match answer(state, path) {
        Answer::Json { text, .. } => serde_json::from_slice(&text).unwrap(),
        _ => panic!("{path:?} has no document"),
    }
}

/// The schema that says that it is of this kind.
fn schema_of<'a>(document: &'a Value, kind: &Kind) -> Option<&'a Value> {
    let own = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let mut schemas = document["components"]["schemas"].as_object()?.values();
    schemas.find(|schema| schema["x-kubernetes-group-version-kind"][0] == own)
}

#[test]
fn every_built_in_kind_is_described() {
    let state = state();
    let index = read(&state, &[]);
    for kind in state.registry.all() {
        let path = prefix(&kind.group, &kind.version);
        let url = index["paths"][&path]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
        let document = read(&state, &path.split('/').collect::<Vec<_>>());
        let schema = schema_of(&document, kind).unwrap_or_else(|| panic!("{path} {} has no schema", kind.kind));
        assert!(schema["properties"]["metadata"].is_object(), "{path} {}", kind.kind);
    }
}

#[test]
fn references_lead_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|inner| references(inner, found));
            }
            Value::Array(entries) => entries.iter().for_each(|inner| references(inner, found)),
            _ => {}
        }
    }
    let document = read(&state(), &["apis", "apps", "v1"]);
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 100);
    for reference in found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
}

#[test]
fn every_patch_takes_the_options_that_kubectl_looks_for() {
    let document = read(&state(), &["api", "v1"]);
    let paths = document["paths"].as_object().unwrap();
    let patches: Vec<&Value> = paths.values().map(|path| &path["patch"]).filter(|patch| patch.is_object()).collect();
    assert!(patches.len() > 20);
    for patch in patches {
        for option in ["dryRun", "fieldManager", "fieldValidation", "force"] {
            let mut parameters = patch["parameters"].as_array().unwrap().iter();
            assert!(parameters.any(|one| one["name"] == option && one["in"] == "query"), "{patch}");
        }
        assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_null());
    }
    assert!(paths.contains_key("/api/v1/namespaces/{namespace}/pods/{name}/status"));
    assert!(paths.contains_key("/api/v1/nodes/{name}"));
}

#[test]
fn a_document_that_is_not_there_is_not_found() {
    for path in [&["apis", "none.io", "v1"][..], &["api", "v9"], &["other"]] {
        assert!(matches!(answer(&state(), path), Answer::Text { code: 404, .. }), "{path:?}");
    }
}

#[test]
fn custom_kinds_are_named_backwards() {
    assert_eq!(custom::schema_name("muster.dev", "v1alpha1", "PodGroup"), "dev.muster.v1alpha1.PodGroup");
}
