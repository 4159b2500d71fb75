//! Tests of protobuf and YAML bodies: they have the effect of the equivalent JSON.

use axum::body::Body;
use base64::Engine as _;
use http_body_util::BodyExt;
use muster_playground::{Server, Settings, kubectl};
use serde_json::{Value, json};

const ANSWERS: &str = include_str!("../protobuf_answers.jsonl");
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

fn server() -> Server {
    let start = "2026-01-01T00:00:00Z".parse().expect("a date");
    Server::start(Settings { start: Some(start), ..Settings::default() }).with_presentation(kubectl())
}

async fn send(server: &Server, path: &str, media_type: &str, accept: &str, body: Vec<u8>) -> (u16, Value) {
    let request = http::Request::builder().method("POST").uri(path);
    let request = request.header("content-type", media_type).header("accept", accept);
    let response = server.answer(request.body(Body::from(body)).unwrap()).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn make_namespace(server: &Server) {
    let body = json!({"metadata": {"name": "ns"}}).to_string().into_bytes();
    let (code, _) = send(server, "/api/v1/namespaces", "application/json", "application/json", body).await;
    assert_eq!(code, 201);
}

/// The collection in which objects of a kind are created.
fn collection_path(api_version: &str, kind: &str) -> Option<String> {
    let cluster_wide = ["Node", "PriorityClass", "StorageClass", "RuntimeClass", "ResourceSlice"];
    let plural = match kind {
        "Namespace" | "DeleteOptions" | "Scale" | "Binding" | "Eviction" | "TokenReview" => return None,
        "PriorityClass" | "StorageClass" | "RuntimeClass" => format!("{}es", kind.to_lowercase()),
        _ => format!("{}s", kind.to_lowercase()),
    };
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let is_wide = cluster_wide.contains(&kind) || kind.ends_with("Review");
    let scope = if is_wide { "" } else { "namespaces/ns/" };
    Some(format!("/{root}/{api_version}/{scope}{plural}"))
}

#[tokio::test(start_paused = true)]
async fn both_encodings_have_the_same_effect() {
    let (mut made, mut refused) = (0, Vec::new());
    for line in ANSWERS.lines() {
        let answer: Value = serde_json::from_str(line).expect("an answer");
        let (api_version, kind) = (answer["json"]["apiVersion"].as_str(), answer["json"]["kind"].as_str());
        let Some(path) = collection_path(api_version.expect("a version"), kind.expect("a kind")) else { continue };
        let text = answer["protobuf"].as_str().expect("its bytes");
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
        // Servers with the same seed generate the same names.
        let (one, other) = (server(), server());
        make_namespace(&one).await;
        make_namespace(&other).await;
        let as_go = format!("{PROTOBUF},application/json");
        let binary = send(&one, &path, PROTOBUF, &as_go, bytes).await;
        let json = send(&other, &path, "application/json", &as_go, answer["json"].to_string().into_bytes()).await;
        assert_eq!(binary, json, "{path}");
        match binary.0 {
            201 => made += 1,
            code => refused.push((path, code)),
        }
    }
    assert!(made > 15, "{made} made, refused: {refused:?}");
}

#[tokio::test(start_paused = true)]
async fn yaml_body_is_read_and_invalid_body_is_rejected() {
    let server = server();
    make_namespace(&server).await;
    let yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yam\ndata:\n  k: \"0644\"\n".to_vec();
    let (code, made) = send(&server, MAPS, "application/yaml", "application/json", yaml).await;
    assert_eq!((code, &made["data"]), (201, &json!({"k": "0644"})));
    let (code, refused) = send(&server, MAPS, PROTOBUF, "application/json", b"{".to_vec()).await;
    assert_eq!(code, 400);
    assert_eq!(
        refused["message"],
        "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a \
         protobuf message, expected prefix [107 56 115 0] ({)"
    );
    // A Pod instead of a ConfigMap.
    let pod = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod".to_vec();
    let (code, refused) = send(&server, MAPS, PROTOBUF, "application/json", pod).await;
    assert_eq!(code, 400);
    assert_eq!(
        refused["message"],
        "Pod in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion"
    );
    let (code, _) = send(&server, MAPS, "application/json", PROTOBUF, b"{}".to_vec()).await;
    assert_eq!(code, 406, "answers are never protobuf");
}

#[tokio::test(start_paused = true)]
async fn reviews_are_answered_and_not_stored() {
    let server = server();
    let send_request = async |kind: &str, body: Value| {
        let path = format!("/apis/authorization.k8s.io/v1/{kind}s");
        send(&server, &path, "application/json", "application/json", body.to_string().into_bytes()).await
    };
    let before = server.revision();
    let pods = json!({"resourceAttributes": {"verb": "create", "resource": "pods"}});
    let (code, answer) = send_request("selfsubjectaccessreview", json!({"spec": pods})).await;
    assert_eq!((code, &answer["status"]), (201, &json!({"allowed": true})));
    let (code, answer) = send_request("selfsubjectaccessreview", json!({"spec": {}})).await;
    assert_eq!(code, 422);
    let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    assert!(answer["message"].as_str().is_some_and(|message| message.ends_with(why)), "{answer}");
    let (code, answer) = send_request("subjectaccessreview", json!({"spec": pods})).await;
    assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!("spec.user")));
    let (code, answer) = send_request("selfsubjectrulesreview", json!({"spec": {"namespace": "default"}})).await;
    assert_eq!((code, &answer["status"]["incomplete"]), (201, &json!(false)));
    assert_eq!(send_request("selfsubjectrulesreview", json!({"spec": {}})).await.0, 400);
    assert_eq!(server.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn server_without_presentation_rejects_protobuf() {
    let server = Server::start(Settings::default());
    make_namespace(&server).await;
    let (code, observed) = send(&server, MAPS, PROTOBUF, "application/json", b"k8s\0".to_vec()).await;
    assert_eq!((code, &observed["reason"]), (415, &json!("UnsupportedMediaType")));
    assert!(
        observed["message"].as_str().unwrap().ends_with("include: application/json, application/yaml"),
        "{observed}"
    );
}
