//! Tests that every served kind has a schema, and that kubectl finds what it needs.

use std::sync::Arc;

use http::Request;
use http_body_util::{BodyExt, Empty};
use muster_playground_server::{Server, Settings};

use super::*;
use crate::Kubectl;

fn server() -> Server {
    Server::start(Settings::default()).with_presentation(Arc::new(Kubectl))
}

async fn send_request(server: &Server, path: &str, accept: &str) -> (u16, Value) {
    let request = Request::builder().uri(path).header("Accept", accept).body(Empty::<Bytes>::new()).unwrap();
    let response = server.answer(request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn read(server: &Server, path: &str) -> Value {
    let (code, document) = send_request(server, &format!("/openapi/v3{path}"), "application/json").await;
    assert_eq!(code, 200, "{path:?} has no document");
    document
}

/// Group, version and kind of everything that is stored or answered.
async fn kinds(server: &Server) -> Vec<(String, String, String)> {
    const FORM: &str = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io";
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut kinds = Vec::new();
    for root in ["/api", "/apis"] {
        let (_, list) = send_request(server, root, FORM).await;
        for group in list["items"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                for resource in version["resources"].as_array().unwrap() {
                    if resource["resource"] != "bindings" {
                        let kind = text(&resource["responseKind"]["kind"]);
                        kinds.push((text(&group["metadata"]["name"]), text(&version["version"]), kind));
                    }
                }
            }
        }
    }
    kinds
}

/// The schema that is marked with this kind.
fn schema_of<'a>(document: &'a Value, group: &str, version: &str, kind: &str) -> Option<&'a Value> {
    let own = json!({"group": group, "version": version, "kind": kind});
    let mut schemas = document["components"]["schemas"].as_object()?.values();
    schemas.find(|schema| schema["x-kubernetes-group-version-kind"][0] == own)
}

#[tokio::test]
async fn every_built_in_kind_has_a_schema() {
    let server = server();
    let index = read(&server, "").await;
    let kinds = kinds(&server).await;
    assert!(kinds.len() > 40, "{}", kinds.len());
    for (group, version, kind) in kinds {
        let path = prefix(&group, &version);
        let url = index["paths"][&path]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
        let document = read(&server, &format!("/{path}")).await;
        let schema = schema_of(&document, &group, &version, &kind);
        let schema = schema.unwrap_or_else(|| panic!("{path} {kind} has no schema"));
        assert!(schema["properties"]["metadata"].is_object(), "{path} {kind}");
    }
}

#[tokio::test]
async fn references_resolve() {
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
    let document = read(&server(), "/apis/apps/v1").await;
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 100);
    for reference in found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
}

#[tokio::test]
async fn every_patch_has_the_parameters_that_kubectl_checks() {
    let document = read(&server(), "/api/v1").await;
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

#[tokio::test]
async fn missing_document_is_not_found() {
    let server = server();
    for path in ["v3/apis/none.io/v1", "v3/api/v9", "v3/other", "v1", ""] {
        assert_eq!(send_request(&server, &format!("/openapi/{path}"), "*/*").await.0, 404, "{path:?}");
    }
}

#[test]
fn custom_schema_names_start_with_the_reversed_group() {
    assert_eq!(custom::schema_name("muster.dev", "v1alpha1", "PodGroup"), "dev.muster.v1alpha1.PodGroup");
}
