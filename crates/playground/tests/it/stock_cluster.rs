//! Tests of a server without native groups: how a stock cluster answers requests for them.

use http::{Method, Request};
use http_body_util::BodyExt;
use muster_playground::{NativeGroups, Server, Settings};
use serde_json::{Value, json};

fn stock() -> Server {
    Server::start(Settings { native_groups: NativeGroups::Stock, ..Settings::default() })
}

pub(crate) async fn send_request(server: &Server, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let media_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", media_type);
    let response = server.answer(request.body(text).expect("a request")).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

pub(crate) async fn get(server: &Server, path: &str) -> (u16, Value) {
    send_request(server, Method::GET, path, &Value::Null).await
}

fn pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}], "schedulingGroup": {"podGroupName": "g"}})
}

#[tokio::test(start_paused = true)]
async fn native_groups_are_not_discovered_and_not_found() {
    let server = stock();
    let (_, group) = get(&server, "/apis/scheduling.k8s.io").await;
    assert_eq!(group["versions"], json!([{"groupVersion": "scheduling.k8s.io/v1", "version": "v1"}]));
    let (_, all) = get(&server, "/apis").await;
    assert!(!all.to_string().contains("scheduling.k8s.io/v1beta1"));
    for path in ["", "/podgroups", "/namespaces/default/podgroups", "/namespaces/default/workloads/w"] {
        let (code, status) = get(&server, &format!("/apis/scheduling.k8s.io/v1beta1{path}")).await;
        assert_eq!((code, &status["reason"]), (404, &json!("NotFound")), "{path}");
        assert_eq!(status["message"], "the server could not find the requested resource", "{path}");
    }
    let (code, _) = get(&server, "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical").await;
    assert_eq!(code, 200, "classes stay");
}

#[tokio::test(start_paused = true)]
async fn scheduling_group_of_a_pod_is_dropped_silently() {
    let server = stock();
    let pods = "/api/v1/namespaces/default/pods?fieldValidation=Strict";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_spec()});
    let (code, created) = send_request(&server, Method::POST, pods, &pod).await;
    assert_eq!((code, &created["spec"]["schedulingGroup"]), (201, &Value::Null));
    let patch = json!({"spec": {"schedulingGroup": {"podGroupName": "g"}}});
    let (code, patched) = send_request(&server, Method::PATCH, "/api/v1/namespaces/default/pods/p", &patch).await;
    assert_eq!((code, &patched["spec"]["schedulingGroup"]), (200, &Value::Null));
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
            "schedulingGroup": {"podGroupName": "g"}}}},
    });
    let (code, created) = send_request(&server, Method::POST, "/apis/batch/v1/namespaces/default/jobs", &job).await;
    assert_eq!((code, &created["spec"]["template"]["spec"]["schedulingGroup"]), (201, &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn native_groups_keep_the_scheduling_group() {
    let server = Server::start(Settings::default());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_spec()});
    let (code, created) = send_request(&server, Method::POST, "/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!((code, &created["spec"]["schedulingGroup"]["podGroupName"]), (201, &json!("g")));
    assert_eq!(get(&server, "/apis/scheduling.k8s.io/v1beta1").await.0, 200);
}
