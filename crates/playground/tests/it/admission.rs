//! Tests of the admission hook: its requests, the effect of its responses, and when it is not called.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use muster_playground::AdmissionOperation::{Create, Update};
use muster_playground::{Admission, Server, Settings};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MERGE: &str = "application/merge-patch+json";

/// The AdmissionReviews that a hook received.
type Reviews = Arc<Mutex<Vec<Value>>>;

/// A response that allows a review, with additional fields.
fn answer(review: &Value, more: &Value) -> Value {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    for (field, value) in more.as_object().unwrap() {
        response[field] = value.clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn patch(operations: &Value) -> Value {
    json!({"patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())})
}

/// A hook for pods that records its requests.
fn hook(respond: impl Fn(&Value) -> Value + Send + Sync + 'static) -> (Admission, Reviews) {
    let reviews = Reviews::default();
    let notes = Arc::clone(&reviews);
    let hook = Admission::new("hook.example.com", move |review| {
        let answer = respond(&review);
        notes.lock().unwrap().push(review["request"].clone());
        answer
    });
    (hook.about("", "pods", &[Create, Update]), reviews)
}

fn start(hook: Admission) -> Server {
    Server::start(Settings { admission: Some(hook), ..Settings::default() })
}

struct Reply {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

async fn send_as(server: &Server, media_type: &str, method: &str, path: &str, body: &Value) -> Reply {
    let request = http::Request::builder().method(method).uri(path).header("content-type", media_type);
    let response = server.answer(request.body(Body::from(body.to_string())).unwrap()).await;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter().map(|text| text.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    Reply { code, body: serde_json::from_slice(&bytes).unwrap_or_default(), warnings }
}

async fn send(server: &Server, method: &str, path: &str, body: &Value) -> Reply {
    send_as(server, "application/json", method, path, body).await
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "annotations": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn label(value: &str) -> Value {
    patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {"by": value}}]))
}

fn path(name: &str) -> String {
    format!("{PODS}/{name}")
}

#[tokio::test(start_paused = true)]
async fn new_object_is_stored_as_the_hook_leaves_it() {
    let gate = json!([
        {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "g"}]},
        {"op": "add", "path": "/metadata/uid", "value": "mine"},
        {"op": "add", "path": "/spec/initContainers", "value": [{"name": "x", "image": "j"}]},
        {"op": "add", "path": "/spec/nonsense", "value": 1},
    ]);
    let (hook, reviews) = hook(move |review| answer(review, &patch(&gate)));
    let server = start(hook);
    let made = send(&server, "POST", PODS, &pod("p")).await;
    assert_eq!((made.code, &made.body["spec"]["schedulingGates"]), (201, &json!([{"name": "g"}])));
    assert_eq!(made.body["spec"]["initContainers"][0]["imagePullPolicy"], "Always", "defaults are filled in again");
    assert!(made.body["spec"].get("nonsense").is_none(), "unknown fields are dropped");
    assert_ne!(made.body["metadata"]["uid"], "mine");
    let stored = send(&server, "GET", &path("p"), &Value::Null).await.body;
    assert_eq!(stored, made.body);
    let reviews = reviews.lock().unwrap().clone();
    let [request] = &*reviews else { panic!("{reviews:?}") };
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "Pod"}));
    assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "pods"}));
    assert_eq!((&request["name"], &request["namespace"]), (&json!("p"), &json!("default")));
    assert_eq!((&request["operation"], &request["dryRun"]), (&json!("CREATE"), &json!(false)));
    assert_eq!(request["oldObject"], Value::Null);
    let object = &request["object"];
    assert_eq!((&object["kind"], &object["metadata"]["namespace"]), (&json!("Pod"), &json!("default")));
    assert_eq!(
        (&object["spec"]["schedulerName"], &object["spec"]["priority"]),
        (&json!("default-scheduler"), &json!(0))
    );
    assert!(object["metadata"].get("uid").is_none(), "a UID is drawn later");
    assert!(object["metadata"]["managedFields"].is_array());
}

#[tokio::test(start_paused = true)]
async fn name_is_generated_after_the_hook() {
    let (hook, reviews) = hook(|review| answer(review, &label("hook")));
    let server = start(hook);
    let unnamed = json!({"metadata": {"generateName": "run-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = send(&server, "POST", PODS, &unnamed).await;
    let name = made.body["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(made.code == 201 && name.starts_with("run-"), "{name}");
    assert_eq!(made.body["metadata"]["labels"], json!({"by": "hook"}));
    let request = reviews.lock().unwrap()[0].clone();
    assert!(request.get("name").is_none() && request["object"]["metadata"].get("name").is_none());
    assert_eq!(request["object"]["metadata"]["generateName"], "run-");
    // A name that the hook sets is kept.
    let named = json!([{"op": "add", "path": "/metadata/name", "value": "given"}]);
    server.set_webhook(Some(self::hook(move |review| answer(review, &patch(&named))).0));
    assert_eq!(send(&server, "POST", PODS, &unnamed).await.body["metadata"]["name"], "given");
}

#[tokio::test(start_paused = true)]
async fn hook_is_called_for_every_kind_of_update() {
    let (hook, reviews) = hook(|review| answer(review, &label(review["request"]["operation"].as_str().unwrap())));
    let server = start(hook);
    let mut made = send(&server, "POST", PODS, &pod("p")).await.body;
    assert_eq!(made["metadata"]["labels"], json!({"by": "CREATE"}));
    made["metadata"]["annotations"]["a"] = json!("c");
    made["metadata"]["labels"] = json!({"by": "me"});
    let changed = send(&server, "PUT", &path("p"), &made).await;
    assert_eq!((changed.code, &changed.body["metadata"]["labels"]), (200, &json!({"by": "UPDATE"})));
    let merge = json!({"metadata": {"labels": {"by": "me"}}});
    let changed = send_as(&server, MERGE, "PATCH", &path("p"), &merge).await;
    assert_eq!((changed.code, &changed.body["metadata"]["labels"]), (200, &json!({"by": "UPDATE"})));
    let apply = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"x": "y"}}});
    let applying = format!("{}?fieldManager=m", path("p"));
    let changed = send_as(&server, "application/apply-patch+yaml", "PATCH", &applying, &apply).await;
    assert_eq!((changed.code, &changed.body["metadata"]["annotations"]["x"]), (200, &json!("y")));
    let applying = format!("{}?fieldManager=m", path("q"));
    let mut apply = pod("q");
    (apply["apiVersion"], apply["kind"]) = (json!("v1"), json!("Pod"));
    let created = send_as(&server, "application/apply-patch+yaml", "PATCH", &applying, &apply).await;
    assert_eq!((created.code, &created.body["metadata"]["labels"]), (201, &json!({"by": "CREATE"})));
    let reviews = reviews.lock().unwrap().clone();
    let operations: Vec<&Value> = reviews.iter().map(|request| &request["operation"]).collect();
    assert_eq!(operations, ["CREATE", "UPDATE", "UPDATE", "UPDATE", "CREATE"]);
    let (old, new) = (&reviews[1]["oldObject"]["metadata"], &reviews[1]["object"]["metadata"]);
    assert_eq!((&old["annotations"]["a"], &new["annotations"]["a"]), (&json!("b"), &json!("c")));
    assert_eq!((&old["labels"]["by"], &new["labels"]["by"]), (&json!("CREATE"), &json!("me")));
    assert_eq!(old["uid"], new["uid"]);
}

#[tokio::test(start_paused = true)]
async fn hook_is_called_for_dry_runs_with_the_flag() {
    let (hook, reviews) = hook(|review| answer(review, &label("hook")));
    let server = start(hook);
    let made = send(&server, "POST", &format!("{PODS}?dryRun=All"), &pod("p")).await;
    assert_eq!((made.code, &made.body["metadata"]["labels"]), (201, &json!({"by": "hook"})));
    assert_eq!(send(&server, "GET", &path("p"), &Value::Null).await.code, 404);
    send(&server, "POST", PODS, &pod("p")).await;
    let merge = json!({"metadata": {"labels": null}});
    let changed = send_as(&server, MERGE, "PATCH", &format!("{}?dryRun=All", path("p")), &merge).await;
    assert_eq!((changed.code, &changed.body["metadata"]["labels"]), (200, &json!({"by": "hook"})));
    let dry_runs: Vec<Value> = reviews.lock().unwrap().iter().map(|request| request["dryRun"].clone()).collect();
    assert_eq!(dry_runs, [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn rejection_has_the_message_and_code_of_the_hook() {
    let (hook, _) = hook(|review| {
        let status = review["request"]["object"]["metadata"]["annotations"]["status"].as_str().unwrap_or("null");
        let status: Value = serde_json::from_str(status).unwrap();
        answer(review, &json!({"allowed": false, "status": status, "warnings": ["beware"]}))
    });
    let server = start(hook);
    let refused = async |status: &Value| {
        let mut pod = pod("p");
        pod["metadata"]["annotations"] = json!({"status": status.to_string()});
        let reply = send(&server, "POST", PODS, &pod).await;
        assert_eq!(reply.warnings, ["299 - \"beware\""]);
        assert_eq!((&reply.body["kind"], &reply.body["status"]), (&json!("Status"), &json!("Failure")));
        (reply.code, reply.body["reason"].clone(), reply.body["message"].clone(), reply.body["details"].clone())
    };
    let denied = |why: &str| json!(format!("admission webhook \"hook.example.com\" denied the request{why}"));
    let observed = refused(&json!({"code": 403, "message": "no", "reason": "Forbidden"})).await;
    assert_eq!(observed, (403, json!("Forbidden"), denied(": no"), Value::Null));
    let details = json!({"causes": [{"field": "spec.x", "message": "bad", "reason": "FieldValueInvalid"}]});
    let observed = refused(&json!({"code": 422, "message": "no", "details": details})).await;
    assert_eq!(observed, (422, Value::Null, denied(": no"), details));
    assert_eq!(refused(&json!({"reason": "Why"})).await, (400, json!("Why"), denied(": Why"), Value::Null));
    assert_eq!(refused(&json!({"code": 200})).await.0, 400, "a refusal is no success");
    assert_eq!(refused(&Value::Null).await, (400, Value::Null, denied(" without explanation"), Value::Null));
    assert_eq!(send(&server, "GET", PODS, &Value::Null).await.body["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn invalid_response_fails_the_write() {
    let cases: &[(Value, &str)] = &[
        (Value::Null, "failed calling webhook \"hook.example.com\": failed to call webhook: "),
        (json!({"allowed": "yes"}), "failed to call webhook: "),
        (json!({"uid": "other"}), "received invalid webhook response: expected response.uid="),
        (json!({"patchType": "JSONPatch"}), "webhook returned response.patchType but not response.patch"),
        (json!({"patch": "W10="}), "webhook returned response.patch but not response.patchType"),
        (json!({"patchType": "JSONPatch", "patch": "!"}), "failed to call webhook: "),
        (json!({"patchType": "JSONPatch", "patch": "e30="}), "received undecodable patch in webhook response: "),
        (json!({"patchType": "Other", "patch": label("x")["patch"]}), "unsupported patch type \"Other\""),
        (patch(&json!([{"op": "remove", "path": "/spec/none"}])), "does not apply"),
        (patch(&json!([{"op": "replace", "path": "/spec", "value": 1}])), "Internal error occurred: "),
        (patch(&json!([{"op": "remove", "path": "/metadata"}])), "Internal error occurred: "),
        (patch(&json!([{"op": "replace", "path": "/kind", "value": "Node"}])), "Internal error occurred: "),
    ];
    for (more, expected) in cases {
        let more = more.clone();
        let (hook, _) = hook(move |review| if more.is_null() { json!(1) } else { answer(review, &more) });
        let server = start(hook);
        let reply = send(&server, "POST", PODS, &pod("p")).await;
        let message = reply.body["message"].as_str().unwrap();
        assert_eq!((reply.code, &reply.body["reason"]), (500, &json!("InternalError")), "{expected}: {message}");
        assert!(message.starts_with("Internal error occurred: ") && message.contains(expected), "{message}");
    }
    let server = start(hook(|_| json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"})).0);
    let message = send(&server, "POST", PODS, &pod("p")).await.body["message"].clone();
    let why = "received invalid webhook response: webhook response was absent";
    assert_eq!(message, format!("Internal error occurred: failed calling webhook \"hook.example.com\": {why}"));
}

#[tokio::test(start_paused = true)]
async fn warnings_reach_the_client() {
    let (hook, _) = hook(|review| answer(review, &json!({"warnings": ["one", "two"]})));
    let server = start(hook);
    let made = send(&server, "POST", PODS, &pod("p")).await;
    assert_eq!((made.code, made.warnings), (201, vec!["299 - \"one\"".to_owned(), "299 - \"two\"".to_owned()]));
    let merge = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send_as(&server, MERGE, "PATCH", &path("p"), &merge).await.warnings.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn result_of_the_hook_is_validated() {
    let server = start(hook(|review| answer(review, &label("not a label!"))).0);
    let refused = send(&server, "POST", PODS, &pod("p")).await;
    assert_eq!((refused.code, &refused.body["reason"]), (422, &json!("Invalid")));
    let elsewhere = json!([{"op": "replace", "path": "/metadata/namespace", "value": "other"}]);
    server.set_webhook(Some(hook(move |review| answer(review, &patch(&elsewhere))).0));
    assert_eq!(send(&server, "POST", PODS, &pod("p")).await.code, 400);
    // The server's own admission runs again: the old priority does not match the class.
    let class = json!([{"op": "add", "path": "/spec/priorityClassName", "value": "system-node-critical"}]);
    server.set_webhook(Some(hook(move |review| answer(review, &patch(&class))).0));
    assert_eq!(send(&server, "POST", PODS, &pod("p")).await.code, 403);
    server.set_webhook(None);
    send(&server, "POST", PODS, &pod("p")).await;
    let renamed = json!([{"op": "replace", "path": "/metadata/name", "value": "q"}]);
    server.set_webhook(Some(hook(move |review| answer(review, &patch(&renamed))).0));
    let merge = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send_as(&server, MERGE, "PATCH", &path("p"), &merge).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn hook_is_not_called_for_other_requests() {
    let (hook, reviews) = hook(|review| answer(review, &json!({"allowed": false})));
    let server = start(hook.about("apps", "deployments", &[Create, Update]));
    let map = json!({"metadata": {"name": "m"}});
    assert_eq!(send(&server, "POST", "/api/v1/namespaces/default/configmaps", &map).await.code, 201);
    assert_eq!(send(&server, "POST", PODS, &pod("p")).await.code, 400);
    server.set_webhook(None);
    assert_eq!(send(&server, "POST", PODS, &pod("p")).await.code, 201, "a removed hook is not called");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]});
    let deployment = json!({"metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(send(&server, "POST", deployments, &deployment).await.code, 201);
    let (hook, later) = self::hook(|review| answer(review, &json!({"allowed": false})));
    server.set_webhook(Some(hook.about("apps", "deployments", &[Update])));
    let status = json!({"status": {"message": "m"}});
    assert_eq!(send_as(&server, MERGE, "PATCH", &format!("{}/status", path("p")), &status).await.code, 200);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(send(&server, "POST", &format!("{}/binding", path("p")), &binding).await.code, 201);
    let scale = json!({"spec": {"replicas": 3}});
    assert_eq!(send_as(&server, MERGE, "PATCH", &format!("{deployments}/d/scale"), &scale).await.code, 200);
    let other = json!({"metadata": {"name": "e"}, "spec": deployment["spec"]});
    assert_eq!(send(&server, "POST", deployments, &other).await.code, 201, "it is called for updates only");
    assert_eq!(send(&server, "DELETE", &path("p"), &json!({"gracePeriodSeconds": 0})).await.code, 200);
    assert_eq!((reviews.lock().unwrap().len(), later.lock().unwrap().len()), (1, 0));
    assert_eq!(send_as(&server, MERGE, "PATCH", &format!("{deployments}/d"), &scale).await.code, 400);
}
