//! Tests of what kubectl reads: discovery, OpenAPI and tables, also of Muster's kinds.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use muster_api::crds;
use muster_playground::{Server, Settings, kubectl};
use serde_json::{Value, json};

const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

async fn send_request(server: &Server, method: &str, path: &str, accept: &str, body: &Value) -> (u16, Value) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header("content-type", "application/json")
        .body(if body.is_null() { Body::empty() } else { Body::from(body.to_string()) })
        .unwrap();
    let response = server.answer(request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
}

async fn get(server: &Server, path: &str, accept: &str) -> Value {
    let (code, answer) = send_request(server, "GET", path, accept, &Value::Null).await;
    assert_eq!(code, 200, "{path}: {answer}");
    answer
}

async fn post(server: &Server, path: &str, body: &Value) {
    let (code, answer) = send_request(server, "POST", path, "application/json", body).await;
    assert_eq!(code, 201, "{path}: {answer}");
}

async fn server_with_our_kinds() -> Server {
    let server = Server::start(Settings::default()).with_presentation(kubectl());
    for definition in [crds::PODGROUPS, crds::WORKLOADS] {
        let definition: Value = serde_saphyr::from_str(definition).unwrap();
        post(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    server
}

#[tokio::test(start_paused = true)]
async fn discovery_lists_our_kinds_after_the_built_in_ones() {
    let server = server_with_our_kinds().await;
    let answer = get(&server, "/apis", DISCOVERY).await;
    assert_eq!(answer["apiVersion"], "apidiscovery.k8s.io/v2");
    let groups: Vec<&str> =
        answer["items"].as_array().unwrap().iter().map(|group| group["metadata"]["name"].as_str().unwrap()).collect();
    let at =
        |name: &str| groups.iter().position(|group| *group == name).unwrap_or_else(|| panic!("{name}: {groups:?}"));
    // Of two kinds with the same name kubectl uses the first.
    assert!(at("apps") < at("batch") && at("batch") < at("scheduling.k8s.io"));
    assert!(at("scheduling.k8s.io") < at("muster.dev"));
    let ours = &answer["items"][at("muster.dev")]["versions"][0];
    assert_eq!(ours["freshness"], "Current");
    let row = ours["resources"].as_array().unwrap().iter().find(|row| row["resource"] == "podgroups").unwrap();
    assert_eq!(row["responseKind"], json!({"group": "muster.dev", "version": "v1alpha1", "kind": "PodGroup"}));
    assert_eq!(row["scope"], "Namespaced");
    assert_eq!(row["subresources"][0]["subresource"], "status");
    // The unaggregated form has the same groups in the same order.
    let plain = get(&server, "/apis", "application/json").await;
    let names: Vec<&str> =
        plain["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert_eq!(names, groups);
    let oldest = get(&server, "/api", DISCOVERY).await;
    let pods = oldest["items"][0]["versions"][0]["resources"].as_array().unwrap();
    let pods = pods.iter().find(|row| row["resource"] == "pods").unwrap();
    assert_eq!(pods["shortNames"], json!(["po"]));
    assert_eq!(pods["categories"], json!(["all"]));
}

#[tokio::test(start_paused = true)]
async fn our_kinds_have_openapi_schemas() {
    let server = server_with_our_kinds().await;
    let index = get(&server, "/openapi/v3", "application/json").await;
    let url = index["paths"]["apis/muster.dev/v1alpha1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = get(&server, &url, "application/json").await;
    let schema = &document["components"]["schemas"]["dev.muster.v1alpha1.PodGroup"];
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "PodGroup");
    assert!(schema["description"].as_str().unwrap().contains("placed together"));
    assert!(schema["properties"]["spec"]["properties"].as_object().unwrap().len() > 1);
    assert!(schema["properties"]["metadata"]["allOf"][0]["$ref"].as_str().unwrap().ends_with("ObjectMeta"));
    let path = &document["paths"]["/apis/muster.dev/v1alpha1/namespaces/{namespace}/podgroups/{name}"];
    assert_eq!(path["patch"]["x-kubernetes-group-version-kind"]["kind"], "PodGroup");
    // Another schema has another address.
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.muster.dev";
    let mut changed = get(&server, definition, "application/json").await;
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = json!("Other words.");
    let (code, answer) = send_request(&server, "PUT", definition, "application/json", &changed).await;
    assert_eq!(code, 200, "{answer}");
    let index = get(&server, "/openapi/v3", "application/json").await;
    assert_ne!(index["paths"]["apis/muster.dev/v1alpha1"]["serverRelativeURL"], *url);
}

#[tokio::test(start_paused = true)]
async fn our_kinds_have_the_columns_of_their_definition() {
    let server = server_with_our_kinds().await;
    let path = "/apis/muster.dev/v1alpha1/namespaces/default/podgroups";
    let group = json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"},
        "spec": {"policy": {"gang": {"minCount": 2}}},
    });
    post(&server, path, &group).await;
    let mut shown = get(&server, &format!("{path}/g"), "application/json").await;
    shown["status"] = json!({
        "summary": {"policy": "Gang", "minimum": 2, "scheduled": 0, "running": 0},
        "conditions": [{
            "type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": "no room",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    let (code, answer) = send_request(&server, "PUT", &format!("{path}/g/status"), "application/json", &shown).await;
    assert_eq!(code, 200, "{answer}");
    tokio::time::sleep(Duration::from_secs(90)).await;
    let table = get(&server, path, TABLE).await;
    assert_eq!(table["kind"], "Table");
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    let names = table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap());
    let row: Vec<(&str, &Value)> = names.zip(cells).collect();
    let of = |name: &str| row.iter().find(|(column, _)| *column == name).unwrap().1;
    assert_eq!(
        (of("Name"), of("Min"), of("Status"), of("Reason")),
        (&json!("g"), &json!(2), &json!("False"), &json!("Unschedulable"))
    );
    assert_eq!(of("Age"), "90s");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test(start_paused = true)]
async fn metrics_are_absent() {
    let server = Server::start(Settings::default()).with_presentation(kubectl());
    for path in ["/apis/metrics.k8s.io", "/apis/metrics.k8s.io/v1beta1", "/metrics"] {
        let (code, _) = send_request(&server, "GET", path, "application/json", &Value::Null).await;
        assert_eq!(code, 404, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn server_without_presentation_serves_only_json() {
    let server = Server::start(Settings::default());
    assert_eq!(get(&server, "/api/v1/nodes", TABLE).await["kind"], "NodeList", "the client takes JSON too");
    let only = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(send_request(&server, "GET", "/api/v1/nodes", only, &Value::Null).await.0, 406);
    for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"] {
        assert_eq!(send_request(&server, "GET", path, "*/*", &Value::Null).await.0, 404, "{path}");
    }
    let paths = get(&server, "/", "application/json").await;
    assert!(!paths["paths"].as_array().unwrap().contains(&json!("/openapi/v3")), "{paths}");
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    assert_eq!(get(&server, "/api/v1/nodes", metadata).await["kind"], "PartialObjectMetadataList");
}
